"""Scaling features to [0, 1], fitted on some rows and applied to any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .assembly import first_cell
from .container import DataError
from .stratify import row_numbers

__all__ = ["Scaler"]

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Scaler:
    """``(x - low) / span`` for each feature.

    Dense features: ``low`` is the smallest and ``low + span`` the largest value among the rows it
    was fitted on, which so come to lie in [0, 1]; other rows may leave that range. Sparse features:
    ``low`` is 0 and ``span`` the largest absolute value, so that zeros stay zero and the matrix
    stays sparse; features without negative values come to lie in [0, 1], others in [-1, 1].
    Features that are constant (sparse: all zero) in those rows become 0 everywhere.

    Ranges are kept as exactly as the rows are: in 32 bits, times in seconds would be one number.
    """

    low: Floats
    span: Floats

    @classmethod
    def fit(cls, X: Any, rows: npt.ArrayLike | None = None) -> Scaler:
        """Learn the range of each feature from ``rows`` (numbers or a mask) of ``X``."""
        if rows is not None:
            X = X[row_numbers(rows, X.shape[0])]
        if not X.shape[0]:
            raise DataError("a scaler cannot be fitted on no rows; give at least one")
        if not _finite(X):
            raise DataError("features contain NaN or infinity; replace them before scaling")
        X = X.astype(np.result_type(X.dtype, np.float32), copy=False)
        if sp.issparse(X):
            return cls(np.zeros(X.shape[1], dtype=X.dtype), abs(X).max(axis=0).toarray().ravel())
        low, high = X.min(axis=0), X.max(axis=0)
        with np.errstate(over="ignore"):
            span = high - low
            if not np.isfinite(span).all() and X.dtype.itemsize < 8:
                low, high = low.astype(np.float64), high.astype(np.float64)
                span = high - low
        wide = ~np.isfinite(span)
        if wide.any():
            j = int(np.argmax(wide))
            raise DataError(
                f"feature {j} runs from {low[j]:g} to {high[j]:g}, a range too large for a 64-bit "
                "float; divide it by a power of ten"
            )
        return cls(low, span)

    def transform(self, X: Any) -> Any:
        """``X`` scaled, as float32, sparse if ``X`` is."""
        if X.shape[1] != self.low.size:
            raise DataError(
                f"the scaler was fitted on {self.low.size} features, but X has {X.shape[1]}"
            )
        if sp.issparse(X) and self.low.any():
            raise DataError(
                "the scaler was fitted on dense features and cannot keep X sparse; "
                "fit it on sparse rows"
            )
        exact = np.result_type(X.dtype, self.low.dtype)
        scaled = self._scaled(X, exact)
        if not _finite(scaled) and exact.itemsize < 8:
            scaled = self._scaled(X, np.dtype(np.float64))  # a step on the way was too large
        if not _finite(scaled):
            self._refuse_overflow(X, scaled)
        if sp.issparse(scaled):
            scaled.eliminate_zeros()
        return scaled

    def _scaled(self, X: Any, exact: np.dtype[Any]) -> Any:
        """``X`` scaled with numbers of the kind ``exact``; a sparse table keeps its zeros."""
        constant = self.span == 0
        span = np.where(constant, self.span.dtype.type(1), self.span)
        with np.errstate(over="ignore"):
            if sp.issparse(X):
                sparse = sp.csr_matrix(X, dtype=exact, copy=True)
                sparse.data /= span[sparse.indices]
                sparse.data[constant[sparse.indices]] = 0
                return sparse.astype(np.float32, copy=False)
            dense = np.subtract(X, self.low, dtype=exact)
            dense /= span
            dense[:, constant] = 0
            return dense.astype(np.float32, copy=False)

    def _refuse_overflow(self, X: Any, scaled: Any) -> None:
        """Say why a number is not finite any more; one that never was is not scaling's to judge."""
        given = sp.csr_matrix(X) if sp.issparse(X) else np.asarray(X)
        before, after = (table.data if sp.issparse(X) else table for table in (given, scaled))
        lost = np.isfinite(before) & ~np.isfinite(after)
        if lost.any():
            row, column, value = first_cell(given, lost)
            raise DataError(
                f"row {row} has {value:g} as feature {column}, too far outside the range of "
                f"{self.span[column]:g} in the rows it is scaled by: the result is too large for "
                "a 32-bit float; correct or leave out the row or the feature"
            )

    def state_dict(self) -> dict[str, Floats]:
        """The scaler as plain arrays; ``Scaler(**state)`` restores it."""
        return {"low": self.low, "span": self.span}


def _finite(table: Any) -> bool:
    return bool(np.isfinite(table.data if sp.issparse(table) else table).all())
