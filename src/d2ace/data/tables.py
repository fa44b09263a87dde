"""Two tables made into a dataset: checked shapes, float32 features, 0/1 labels, names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from d2ace.data.container import MultiLabelData, unlabelled
from d2ace.data.files import fault


def as_data(
    path: Path,
    name: str,
    X: Any,
    Y: Any,
    feature_names: tuple[str, ...] | None = None,
    label_names: tuple[str, ...] | None = None,
) -> MultiLabelData:
    """A dataset of ``X`` and ``Y``, or a ``DataError`` that says why they make none."""
    rows = as_rows(path, name, X, feature_names)
    _check_table(path, "Y", Y)
    if X.shape[0] != Y.shape[0]:
        raise fault(path, None, f"X has {X.shape[0]} rows and Y has {Y.shape[0]}; they must agree")
    if Y.shape[1] == 0:
        raise fault(path, None, f"is empty: X is {X.shape} and Y is {Y.shape}")
    names = _names(path, "label", label_names, Y.shape[1])
    return replace(rows, Y=_labels(path, Y), label_names=names)


def as_rows(
    path: Path, name: str, X: Any, feature_names: tuple[str, ...] | None = None
) -> MultiLabelData:
    """The same without labels."""
    _check_table(path, "X", X)
    if 0 in X.shape:
        raise fault(path, None, f"is empty: X is {X.shape}")
    names = _names(path, "feature", feature_names, X.shape[1])
    return unlabelled(name, _features(path, X), names)


def _check_table(path: Path, key: str, table: Any) -> None:
    if table.ndim != 2 or table.dtype.kind not in "biuf":
        kind = f"{table.ndim}-dimensional {table.dtype}"
        raise fault(path, None, f"{key} is {kind}; a two-dimensional table of numbers is needed")


def _features(path: Path, X: Any) -> Any:
    X = sp.csr_matrix(X) if sp.issparse(X) else np.ascontiguousarray(X)
    with np.errstate(over="ignore"):
        X = X.astype(np.float32)
    wrong = ~np.isfinite(X.data if sp.issparse(X) else X)
    if wrong.any():
        row = _row_of(X, int(np.argmax(wrong)))
        raise fault(path, None, f"row {row} of X is not finite (or too large for a 32-bit float)")
    return X


def _labels(path: Path, Y: Any) -> Any:
    Y = sp.csr_matrix(Y, copy=True) if sp.issparse(Y) else np.ascontiguousarray(Y)
    if sp.issparse(Y):
        Y.sum_duplicates()  # a label that is stored twice counts two, and is refused
    wrong = ~np.isin(Y.data if sp.issparse(Y) else Y, (0, 1))
    if wrong.any():
        row = _row_of(Y, int(np.argmax(wrong)))
        raise fault(path, None, f"row {row} of Y has a label other than 0 and 1; correct it")
    return Y.astype(np.uint8)


def _row_of(table: Any, place: int) -> int:
    if sp.issparse(table):
        return int(np.searchsorted(table.indptr, place, side="right")) - 1
    return place // int(table.shape[1])


def _names(path: Path, what: str, names: tuple[str, ...] | None, count: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{what}_{i}" for i in range(count))
    if len(names) != count:
        raise fault(path, None, f"has {len(names)} {what} names for {count} columns")
    return names
