"""Cells that a file leaves open: which they are, and what some rows say should stand there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

__all__ = ["Missing", "filled", "typical"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Missing:
    """The missing cells of a table of features.

    ``cells`` [n, d] is a CSR matrix of booleans that stores nothing else. ``nominal`` [d] numbers
    the nominal attribute that a feature codes, alone or, after one-hot coding, with others; -1 is
    a feature that is a number.
    """

    cells: sp.csr_matrix
    nominal: Ints

    def rows(self, rows: npt.ArrayLike) -> Missing:
        """The same for some rows."""
        return Missing(self.cells[np.asarray(rows)], self.nominal)

    def features(self, columns: npt.ArrayLike) -> Missing:
        """The same for some features."""
        chosen = np.asarray(columns)
        return Missing(sp.csr_matrix(self.cells[:, chosen]), self.nominal[chosen])


def typical(X: Any, missing: Missing | None) -> Floats:
    """For each feature the mean of its known cells; for a nominal one its most frequent value.

    A feature without a known cell gets 0.
    """
    n, d = X.shape
    if missing is None:
        missing = Missing(sp.csr_matrix((n, d), dtype=bool), np.full(d, -1))
    # What stands in missing cells now must leave no trace, so it is not subtracted afterwards.
    known = filled(X, missing, np.zeros(d, dtype=np.float32))
    gaps = np.bincount(missing.cells.indices, minlength=d)
    total = np.asarray(known.sum(axis=0, dtype=np.float64)).ravel()
    values = total / np.maximum(n - gaps, 1)
    by_column = sp.csc_matrix(known) if sp.issparse(known) else known
    for columns in _attributes(missing.nominal):
        if len(columns) == 1:
            values[columns] = _mode(by_column, int(columns[0]), n - int(gaps[columns[0]]))
        else:
            values[columns] = np.arange(len(columns)) == np.argmax(total[columns])
    return values.astype(np.float32)


def filled(X: Any, missing: Missing | None, values: Floats) -> Any:
    """``X`` with the value of its feature in each missing cell."""
    if missing is None or not missing.cells.nnz:
        return X
    rows, columns = missing.cells.nonzero()
    put = values[columns]
    if not sp.issparse(X):
        table = np.array(X)
        table[rows, columns] = put
        return table
    now, d = sp.coo_matrix(X), X.shape[1]
    known = ~np.isin(now.row.astype(np.int64) * d + now.col, rows.astype(np.int64) * d + columns)
    places = tuple(
        np.concatenate([old[known], new]) for old, new in ((now.row, rows), (now.col, columns))
    )
    sparse = sp.csr_matrix((np.concatenate([now.data[known], put]), places), shape=X.shape)
    sparse.eliminate_zeros()
    return sparse


def _attributes(nominal: Ints) -> list[Ints]:
    """The features of each nominal attribute."""
    coded = np.flatnonzero(nominal >= 0)
    coded = coded[np.argsort(nominal[coded], kind="stable")]
    if not coded.size:
        return []
    return np.split(coded, np.flatnonzero(np.diff(nominal[coded])) + 1)


def _mode(table: Any, column: int, known: int) -> int:
    """The most frequent code of a column with ``known`` cells; all others of it are 0."""
    if sp.issparse(table):
        codes = table.data[table.indptr[column] : table.indptr[column + 1]]
    else:
        codes = table[:, column]
    tally = np.bincount(codes.astype(np.intp), minlength=1)
    tally[0] += known - len(codes)
    return int(np.argmax(tally))
