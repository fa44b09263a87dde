"""Two tables made into a dataset: checked shapes, float32 features, 0/1 labels, names."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from d2ace.data.readers.source import MAX_COLUMNS, fault

from .container import MultiLabelData, unlabelled

ONLY_LABELS = "write 0 or 1, the only labels"


def as_data(
    path: Path,
    name: str,
    X: Any,
    Y: Any,
    feature_names: tuple[str, ...] | None = None,
    label_names: tuple[str, ...] | None = None,
    *,
    signs: bool = False,
) -> MultiLabelData:
    """A dataset of ``X`` and ``Y``, or a ``DataError`` that says why they make none.

    Labels are 0 and 1 or, where ``signs`` are usual, -1 and +1.
    """
    rows = as_rows(path, name, X, feature_names)
    _check_table(path, "Y", Y)
    if X.shape[0] != Y.shape[0]:
        raise fault(path, None, f"X has {X.shape[0]} rows and Y has {Y.shape[0]}; they must agree")
    if Y.shape[1] == 0:
        raise fault(path, None, f"is empty: X is {X.shape} and Y is {Y.shape}")
    names = _names(path, "label", label_names, Y.shape[1])
    return replace(rows, Y=_labels(path, Y, names, signs), label_names=names)


def as_rows(
    path: Path, name: str, X: Any, feature_names: tuple[str, ...] | None = None
) -> MultiLabelData:
    """The same without labels."""
    _check_table(path, "X", X)
    if 0 in X.shape:
        raise fault(path, None, f"is empty: X is {X.shape}")
    names = _names(path, "feature", feature_names, X.shape[1])
    return unlabelled(name, _features(path, X, names), names)


def _check_table(path: Path, key: str, table: Any) -> None:
    if table.ndim != 2 or table.dtype.kind not in "biuf":
        kind = f"{table.ndim}-dimensional {table.dtype}"
        raise fault(path, None, f"{key} is {kind}; a two-dimensional table of numbers is needed")
    if table.shape[1] > MAX_COLUMNS:  # each gets a name, whatever the file holds
        message = f"{key} has {table.shape[1]} columns; at most {MAX_COLUMNS} are read"
        raise fault(path, None, message)


def check_sparse(table: Any) -> None:
    """A ``ValueError`` for a CSR or CSC table with indices that lead out of it."""
    if (np.diff(table.indptr) < 0).any():  # which SciPy does not see where the last is 0
        raise ValueError("its index pointer decreases")
    table.check_format(full_check=True)


def _features(path: Path, X: Any, names: tuple[str, ...]) -> Any:
    X = sp.csr_matrix(X) if sp.issparse(X) else np.ascontiguousarray(X)
    if sp.issparse(X):
        X.sum_duplicates()
    with np.errstate(over="ignore", under="ignore"):
        table = X.astype(np.float32, copy=False)
    given, kept = (t.data if sp.issparse(t) else t for t in (X, table))
    wrong = ~np.isfinite(kept)
    if wrong.any():
        row, column, value = first_cell(X, wrong)
        finite = np.isfinite(value)
        size = ", too large for a 32-bit float; divide the feature by a power of ten"
        reason = size if finite else "; replace what is missing or infinite"
        place = f"row {row} (counted from 0) has {value} as {names[column]!r}"
        raise fault(path, None, f"{place}{reason}")
    if X.dtype.kind == "f" and X.dtype.itemsize > 4:
        vanished = (kept == 0) & (given != 0)
        if vanished.any():
            lost = np.setdiff1d(_columns(X, vanished), _columns(X, kept != 0))
            if lost.size:
                message = f"all of {names[int(lost[0])]!r} is too small for a 32-bit float"
                raise fault(path, None, f"{message}; multiply the feature by a power of ten")
    return table


def _labels(path: Path, Y: Any, names: tuple[str, ...], signs: bool) -> Any:
    Y = sp.csr_matrix(Y, copy=True) if sp.issparse(Y) else np.ascontiguousarray(Y)
    sparse = sp.issparse(Y)
    if sparse:
        Y.sum_duplicates()  # a label that is stored twice counts two, and is refused
    cells = Y.data if sparse else Y
    negative = cells == -1 if signs else np.zeros(cells.shape, dtype=bool)
    wrong = ~((cells == 0) | (cells == 1) | negative)
    if wrong.any():
        row, column, value = first_cell(Y, wrong)
        place = f"row {row} (counted from 0) has {value} as label {names[column]!r}"
        also = " (or -1 and +1 throughout)" if signs else ""
        raise fault(path, None, f"{place}; {ONLY_LABELS}{also}")
    if negative.any():
        if cells.size < math.prod(Y.shape) or (cells == 0).any():
            message = "has labels of -1 and of 0, one of which may mean unknown; use 0/1 or -1/+1"
            raise fault(path, None, message)
        Y = Y.maximum(0) if sparse else np.maximum(Y, 0)
    return Y.astype(np.uint8)


def first_cell(table: Any, wrong: npt.NDArray[np.bool_]) -> tuple[int, int, Any]:
    """Row, column and value of the first cell (of those that are stored) that is wrong."""
    place = int(np.argmax(wrong))
    if sp.issparse(table):
        row = int(np.searchsorted(table.indptr, place, side="right")) - 1
        return row, int(table.indices[place]), table.data[place]
    row, column = divmod(place, int(table.shape[1]))
    return row, column, table[row, column]


def _columns(table: Any, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """The columns that hold a cell (of those that are stored) among ``chosen``."""
    found: npt.NDArray[np.intp] = (
        np.unique(table.indices[chosen]) if sp.issparse(table) else np.flatnonzero(chosen.any(0))
    )
    return found


def _names(path: Path, what: str, names: tuple[str, ...] | None, count: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{what}_{i}" for i in range(count))
    if len(names) != count:
        raise fault(path, None, f"has {len(names)} {what} names for {count} columns")
    return names
