"""What a caller hands over, checked once: labels, features, indices, predictions, options.

Every refusal is one sentence that names the argument, the value and what is expected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

Labels = Any  # torch.Tensor, numpy.ndarray, scipy.sparse matrix, or nested sequences
Features = Any


def whole_number(name: str, value: Any, least: int) -> int:
    """``value`` as an int of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number, got {value!r} ({type(value).__name__}).")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}.")
    return int(value)


def real_number(
    name: str, value: Any, low: float, high: float = math.inf, *, open_low: bool = False
) -> float:
    """``value`` as a finite float in [low, high], or (low, high] with ``open_low``."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, got {value!r} ({type(value).__name__}).")
    number = float(value)
    if not math.isfinite(number) or number > high or number < low or (open_low and number == low):
        bracket = "(" if open_low else "["
        bound = f"{'above' if open_low else 'at least'} {low:g}"
        wanted = f"in {bracket}{low:g}, {high:g}]" if high < math.inf else bound
        raise ValueError(f"{name} must be {wanted}, got {value}.")
    return number


def choice(name: str, value: Any, allowed: Sequence[str]) -> str:
    """``value`` if it is one of ``allowed``."""
    if not isinstance(value, str) or value not in allowed:
        words = ", ".join(repr(word) for word in allowed)
        raise ValueError(f"{name} must be one of {words}, got {value!r}.")
    return value


def torch_device(value: Any) -> torch.device:
    """``value`` as a device."""
    try:
        return torch.device(value)
    except (RuntimeError, TypeError):
        raise ValueError(
            f"device must name a device such as 'cpu' or 'cuda:0', got {value!r}."
        ) from None


def pair(name: str, value: Any) -> tuple[Any, Any]:
    """``value`` as a tuple of two."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a pair of numbers, got {value!r}.")
    items = tuple(value)
    if len(items) != 2:
        raise ValueError(f"{name} must be a pair of numbers, got {len(items)} of them: {value!r}.")
    return items


def _tensor(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor on the array's memory, or on a copy where torch may not write (memory maps)."""
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


def as_array(name: str, value: Any) -> np.ndarray[Any, Any]:
    """``value`` as an array, with the argument named where NumPy cannot make one of it."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError):
        raise ValueError(f"{name} must be an array; its rows differ in length or kind.") from None


def _csr(tensor: Tensor) -> sp.csr_array:
    """A sparse tensor of any layout."""
    coo = tensor.to_sparse_coo().coalesce()
    rows, columns = coo.indices().numpy()
    return sp.csr_array((coo.values().numpy(), (rows, columns)), shape=tuple(coo.shape))


def label_matrix(labels: Labels) -> sp.csr_array:
    """``labels`` as an n x q CSR matrix of ones; a sparse input never becomes dense."""
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu()
        labels = labels.float() if labels.is_floating_point() else labels
        labels = labels.numpy() if labels.layout == torch.strided else _csr(labels)
    if not sp.issparse(labels):
        labels = as_array("labels", labels)
        labels = labels.astype(np.float32) if labels.dtype == np.float16 else labels
    if labels.ndim != 2 or 0 in labels.shape:
        raise ValueError(
            f"labels must be a matrix [instances, labels] with at least one of each, "
            f"got shape {tuple(labels.shape)}."
        )
    if labels.dtype.kind not in "biuf":
        raise TypeError(f"labels must be numbers 0 and 1, got dtype {labels.dtype}.")
    matrix = sp.csr_array(labels, copy=True)  # what follows works in place
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    wrong = np.flatnonzero(matrix.data != 1)
    if wrong.size:
        row = int(np.searchsorted(matrix.indptr, wrong[0], side="right")) - 1
        column = int(matrix.indices[wrong[0]])
        raise ValueError(
            f"labels[{row}, {column}] is {matrix.data[wrong[0]]}, but labels must be 0 or 1."
        )
    return sp.csr_array(
        (np.ones(matrix.nnz, dtype=np.uint8), matrix.indices, matrix.indptr), shape=matrix.shape
    )


def feature_matrix(features: Features, n: int) -> Tensor | sp.csr_array:
    """``features`` as a dense tensor (left on its device) or a float64 CSR matrix of n rows."""
    matrix: Any
    if isinstance(features, Tensor):
        if features.is_complex():
            raise TypeError(f"features must be real numbers, got dtype {features.dtype}.")
        matrix = features.detach()
        matrix = matrix if matrix.layout == torch.strided else _csr(matrix.cpu())
    elif sp.issparse(features):
        matrix = sp.csr_array(features)
    else:
        array = as_array("features", features)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"features must be numbers, got dtype {array.dtype}.")
        matrix = _tensor(array)
    if matrix.ndim != 2 or matrix.shape[0] != n or matrix.shape[1] < 1:
        raise ValueError(
            f"features must be a matrix with one row per row of labels ({n}), "
            f"got shape {tuple(matrix.shape)}."
        )
    if isinstance(matrix, Tensor):
        matrix = matrix if matrix.is_floating_point() else matrix.to(torch.float64)
        finite = bool(torch.isfinite(matrix).all())
    else:
        matrix = matrix.astype(np.float64)
        finite = bool(np.isfinite(matrix.data).all())
    if not finite:
        raise ValueError(
            "features hold NaN or infinite values; impute or drop those rows, "
            "or pass features=None to use each instance alone as its neighbourhood."
        )
    return matrix


class Rows(NamedTuple):
    """Checked row numbers on the host."""

    array: np.ndarray[Any, Any]
    repeated: bool


def host_rows(index: Any, n: int, *, unique: bool) -> Rows:
    """``index`` checked; a tensor, an array, a list or a range of row numbers."""
    if isinstance(index, Tensor):
        index = index.detach().cpu().numpy()
    array = as_array("index", index)
    if array.ndim != 1:
        raise ValueError(f"index must be one-dimensional, got shape {array.shape}.")
    if not array.size:
        return Rows(array.astype(np.int64), False)
    if array.dtype.kind not in "iu":
        raise TypeError(f"index must hold whole numbers, got dtype {array.dtype}.")
    ordered = np.sort(array)
    if ordered[0] < 0 or ordered[-1] >= n:
        wrong = ordered[0] if ordered[0] < 0 else ordered[-1]
        raise ValueError(f"index holds {wrong}, but rows run from 0 to {n - 1}.")
    same = ordered[1:] == ordered[:-1]
    repeated = bool(same.any())
    if unique and repeated:
        raise ValueError(
            f"index holds row {ordered[same.argmax()]} twice; each row may occur once in a batch "
            f"(unless the selector is made with replacement=True)."
        )
    return Rows(array, repeated)


def device_rows(index: Tensor) -> Tensor:
    """Rows that stay on an accelerator: what can be checked of them without reading them."""
    if index.ndim != 1:
        raise ValueError(f"index must be one-dimensional, got shape {tuple(index.shape)}.")
    if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise TypeError(f"index must hold whole numbers, got dtype {index.dtype}.")
    return index.detach()


def predictions(logits: Any, probs: Any) -> tuple[Tensor, bool]:
    """The one of ``logits`` and ``probs`` that was given, detached, and whether it is logits."""
    if (logits is None) == (probs is None):
        given = "neither" if logits is None else "both"
        raise ValueError(f"observe needs exactly one of logits and probs, got {given}.")
    name, value = ("probs", probs) if logits is None else ("logits", logits)
    if not isinstance(value, Tensor):
        value = _tensor(as_array(name, value))
    if value.layout != torch.strided:
        raise TypeError(f"{name} must be dense, got layout {value.layout}.")
    if not value.is_floating_point():
        raise TypeError(f"{name} must be floating point, got dtype {value.dtype}.")
    return value.detach(), probs is None
