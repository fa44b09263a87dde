"""What a metric is handed, checked once: labels, scores, threshold, policy.

Every refusal is one sentence that names the argument, the value and what is expected.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

Array = npt.NDArray[Any]
Undefined = Literal["skip", "nan", "half", "error"]


class Pairs(NamedTuple):
    """Checked input: truth [n, q] as booleans, scores [n, q] finite floating-point numbers."""

    truth: Array
    scores: Array


def checked(Y_true: Any, scores: Any) -> Pairs:
    """Both arguments of a metric as matrices of one shape on the host."""
    truth, values = _truth(Y_true), _scores(scores)
    if truth.shape != values.shape:
        raise ValueError(
            f"Y_true has shape {truth.shape} and scores has shape {values.shape}; "
            f"both must be [instances, labels] of the same size."
        )
    return Pairs(truth, values)


def checked_threshold(threshold: float) -> float:
    """``threshold`` as a finite number."""
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float, np.number)):
        raise TypeError(
            f"threshold must be a number, got {threshold!r} ({type(threshold).__name__})."
        )
    if not math.isfinite(threshold):
        raise ValueError(f"threshold must be finite, got {threshold}.")
    return float(threshold)


def checked_policy(undefined: str) -> Undefined:
    """``undefined`` if it is one of the four policies."""
    for policy in get_args(Undefined):
        if undefined == policy:
            return policy
    words = ", ".join(repr(word) for word in get_args(Undefined))
    raise ValueError(f"undefined must be one of {words}, got {undefined!r}.")


def _matrix(name: str, value: Any) -> Any:
    """``value`` as a two-dimensional array or scipy.sparse matrix of real numbers."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().to_dense()
        value = value.float() if value.dtype == torch.bfloat16 else value
        value = value.numpy()
    if not sp.issparse(value):
        try:
            value = np.asarray(value)
        except (ValueError, TypeError):
            raise ValueError(
                f"{name} must be an array; its rows differ in length or kind."
            ) from None
    if value.ndim != 2 or 0 in value.shape:
        raise ValueError(
            f"{name} must be a matrix [instances, labels] with at least one of each, "
            f"got shape {tuple(value.shape)}."
        )
    if value.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers, got dtype {value.dtype}.")
    return value


def _truth(Y_true: Any) -> Array:
    labels = _matrix("Y_true", Y_true)
    if sp.issparse(labels):
        labels = sp.csr_array(labels, copy=True)  # the next step works in place
        labels.sum_duplicates()
        wrong = np.flatnonzero((labels.data != 0) & (labels.data != 1))
        if wrong.size:
            where = int(np.searchsorted(labels.indptr, wrong[0], side="right")) - 1
            _refuse_label(where, int(labels.indices[wrong[0]]), labels.data[wrong[0]])
        return labels.astype(bool).toarray()
    if labels.dtype.kind == "b":
        return labels
    truth = labels != 0
    right = labels == truth  # a NaN is equal to nothing
    if not right.all():
        row, column = np.unravel_index(int(right.argmin()), right.shape)
        _refuse_label(int(row), int(column), labels[row, column])
    return truth


def _refuse_label(row: int, column: int, value: Any) -> None:
    raise ValueError(f"Y_true[{row}, {column}] is {value}, but labels must be 0 or 1.")


def _scores(scores: Any) -> Array:
    values = _matrix("scores", scores)
    if sp.issparse(values):
        values = values.toarray()
    if values.dtype.kind != "f":
        return values.astype(np.float64)
    finite = np.isfinite(values)
    if not finite.all():
        row, column = np.unravel_index(int(finite.argmin()), finite.shape)
        raise ValueError(
            f"scores[{row}, {column}] is {values[row, column]}, but scores must be finite; "
            f"look for a diverged model or a logarithm of 0."
        )
    return values
