"""What every reader returns: one immutable multi-label dataset."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from d2ace._util.errors import SentenceError

from .missing import Missing


class DataError(SentenceError, ValueError):
    """A file or a table that cannot be used; one sentence that says what, where and what to do."""


class UnknownDataError(DataError):
    """A name, path or option that does not exist: what was asked for is wrong, not the data."""


class DataWarning(UserWarning):
    """The data is usable, but has a property that its user should know."""


@dataclass(frozen=True, eq=False, repr=False)
class MultiLabelData:
    """Features, labels and their names.

    ``X`` is float32, a dense array or CSR; ``Y`` is 0/1, CSR or a dense uint8 array.
    ``missing`` says which cells of ``X`` its file left open; they have been filled from all rows.
    """

    name: str
    X: np.ndarray[Any, np.dtype[np.float32]] | sp.csr_matrix
    Y: np.ndarray[Any, np.dtype[np.uint8]] | sp.csr_matrix
    feature_names: tuple[str, ...]
    label_names: tuple[str, ...]
    missing: Missing | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check what costs nothing: kinds, shapes and names."""
        if not isinstance(self.name, str):
            raise DataError(f"the name of the data is {self.name!r}; give text")
        for key, what in (("X", "feature"), ("Y", "label")):
            table, names = getattr(self, key), getattr(self, f"{what}_names")
            _refuse_other_tables(key, table)
            names = tuple(
                _text(name, f"{self.name} has {{}} among its {what} names") for name in names
            )
            object.__setattr__(self, f"{what}_names", names)
            if len(names) != table.shape[1]:
                raise DataError(
                    f"{self.name} has {len(names)} {what} names for {table.shape[1]} columns of "
                    f"{key}; give one for each"
                )
        if self.X.shape[0] != self.Y.shape[0]:
            raise DataError(
                f"{self.name} has {self.X.shape[0]} rows in X and {self.Y.shape[0]} in Y; give the "
                "labels of the same rows"
            )

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    @property
    def q(self) -> int:
        """Number of labels."""
        return int(self.Y.shape[1])

    @property
    def cardinality(self) -> float:
        """Mean number of labels per row."""
        return float(self.Y.sum(dtype=np.int64)) / self.n if self.n else 0.0

    def __repr__(self) -> str:
        """Name, sizes and storage on one line."""
        storage = "sparse" if sp.issparse(self.X) else "dense"
        return f"MultiLabelData({self.name!r}, n={self.n}, d={self.d}, q={self.q}, X {storage})"


def _text(name: Any, sentence: str) -> str:
    """A name as plain text, of NumPy's text and of numbers too, since others cannot be stored."""
    if not isinstance(name, str | int | np.integer):
        raise DataError(f"{sentence.format(repr(name))}; give text")
    return str(name)


def _refuse_other_tables(key: str, table: Any) -> None:
    """Rows are taken by number, which DataFrames, tensors and COO matrices understand otherwise.

    What a masked array hides would be taken for values.
    """
    plain = isinstance(table, np.ndarray) and not isinstance(table, np.ma.MaskedArray | np.matrix)
    if not plain and not (sp.issparse(table) and table.format in ("csr", "csc")):
        remedies = {
            "to_numpy": "{}.to_numpy(dtype=...)",
            "tocsr": "{}.tocsr()",
            "numpy": "{}.numpy()",
            "filled": "{}.filled(...)",
            "A1": "np.asarray({})",
        }
        remedy = next((word for name, word in remedies.items() if hasattr(table, name)), "")
        raise DataError(
            f"{key} is a {type(table).__name__}; give a NumPy array or a SciPy CSR matrix"
            + (f", such as {remedy.format(key)}" if remedy else "")
        )
    if table.ndim != 2 or table.dtype.kind not in "biuf":
        raise DataError(
            f"{key} is {table.ndim}-dimensional {table.dtype}; a two-dimensional table of numbers "
            "is needed"
        )


def unlabelled(
    name: str, X: Any, feature_names: tuple[str, ...], missing: Missing | None = None
) -> MultiLabelData:
    """New rows: a dataset of no labels."""
    Y = sp.csr_matrix((X.shape[0], 0), dtype=np.uint8)
    return MultiLabelData(name, X, Y, feature_names, (), missing=missing)
