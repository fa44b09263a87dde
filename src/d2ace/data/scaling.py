"""Scaling features to [0, 1], fitted on some rows and applied to any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from d2ace.data.container import DataError
from d2ace.data.stratify import row_numbers

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
        values = X.data if sp.issparse(X) else X
        if not np.isfinite(values).all():
            raise DataError("features contain NaN or infinity; replace them before scaling")
        X = X.astype(np.result_type(X.dtype, np.float32), copy=False)
        if sp.issparse(X):
            return cls(np.zeros(X.shape[1], dtype=X.dtype), abs(X).max(axis=0).toarray().ravel())
        low = X.min(axis=0)
        return cls(low, X.max(axis=0) - low)

    def transform(self, X: Any) -> Any:
        """``X`` scaled, as float32, sparse if ``X`` is."""
        if X.shape[1] != self.low.size:
            raise DataError(
                f"the scaler was fitted on {self.low.size} features, but X has {X.shape[1]}"
            )
        constant = self.span == 0
        span = np.where(constant, self.span.dtype.type(1), self.span)
        exact = np.result_type(X.dtype, self.low.dtype)
        if sp.issparse(X):
            if self.low.any():
                raise DataError(
                    "the scaler was fitted on dense features and cannot keep X sparse; "
                    "fit it on sparse rows"
                )
            scaled = sp.csr_matrix(X, dtype=exact, copy=True)
            scaled.data /= span[scaled.indices]
            scaled.data[constant[scaled.indices]] = 0
            scaled.eliminate_zeros()
            return scaled.astype(np.float32, copy=False)
        dense = np.subtract(X, self.low, dtype=exact)
        dense /= span
        dense[:, constant] = 0
        return dense.astype(np.float32, copy=False)

    def state_dict(self) -> dict[str, Floats]:
        """The scaler as plain arrays; ``Scaler(**state)`` restores it."""
        return {"low": self.low, "span": self.span}
