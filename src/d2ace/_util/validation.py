"""What a caller hands over, checked once: numbers, choices, labels.

Every refusal is one sentence that names the argument, the value and what is expected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

Labels = Any  # torch.Tensor, numpy.ndarray, scipy.sparse matrix, or nested sequences
Features = Any
NUMPY_HAS = (torch.float16, torch.float32, torch.float64)


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
        bound = f"{'above' if open_low else 'at least'} {low:g}" if low > -math.inf else "finite"
        wanted = f"in {bracket}{low:g}, {high:g}]" if high < math.inf else bound
        raise ValueError(f"{name} must be {wanted}, got {value}.")
    return number


def scalar_loss(value: Any) -> float:
    """A loss given as a number or a tensor of one element, as a float that is not negative."""
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_meta:
        value = value.item()
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"loss must be a number, got {value!r} ({type(value).__name__}).")
    if value < 0:
        raise ValueError(
            f"loss must be at least 0, as the mean binary cross-entropy is, got {value}."
        )
    return float(value)


def truth(name: str, value: Any) -> bool:
    """``value`` as a bool; a word from a file or a command line would always be true."""
    if isinstance(value, (bool, int, np.bool_, np.integer)) and value in (0, 1):
        return bool(value)
    raise TypeError(f"{name} must be True or False, got {value!r}.")


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


def as_array(name: str, value: Any) -> np.ndarray[Any, Any]:
    """``value`` as an array, with the argument named where NumPy cannot make one of it."""
    if np.ma.is_masked(value):  # NumPy would take what the mask hides
        raise ValueError(f"There are masked cells in {name}; fill them, or leave out their rows.")
    try:
        return np.asarray(value)
    except (ValueError, TypeError):
        raise ValueError(f"{name} must be an array; its rows differ in length or kind.") from None


def refuse_dtype(expected: str, dtype: np.dtype[Any]) -> NoReturn:
    """Say which dtype came instead; pandas' nullable columns come as objects."""
    remedy = "; of a DataFrame, pass .to_numpy(dtype=float)" if dtype.kind == "O" else ""
    raise TypeError(f"{expected}, got dtype {dtype}{remedy}.")


def csr(tensor: Tensor) -> sp.csr_array:
    """A sparse tensor of any layout."""
    if tensor.dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.float()  # SciPy has neither
    coo = tensor.to_sparse_coo().coalesce()
    rows, columns = coo.indices().numpy()
    return sp.csr_array((coo.values().numpy(), (rows, columns)), shape=tuple(coo.shape))


def as_table(name: str, value: Any) -> Any:
    """``value``, a tensor too, as an array or scipy.sparse matrix of whatever it holds."""
    if isinstance(value, Tensor):
        if value.is_meta:
            raise ValueError(f"{name} is on the meta device and holds no numbers; give real ones.")
        value, dense = value.detach().cpu(), value.layout == torch.strided
        if dense and value.is_floating_point() and value.dtype not in NUMPY_HAS:
            value = value.float()
        value = value.numpy() if dense else csr(value)
    return value if sp.issparse(value) else as_array(name, value)


def real_matrix(name: str, value: Any, *, empty: bool = False) -> Any:
    """``value`` [instances, labels] as an array or scipy.sparse matrix of real numbers.

    It may have no rows or no columns only if it may be ``empty``.
    """
    value = as_table(name, value)
    if value.ndim != 2 or (0 in value.shape and not empty):
        least = "" if empty else " with at least one of each"
        raise ValueError(
            f"{name} must be a matrix [instances, labels]{least}, got shape {tuple(value.shape)}."
        )
    if value.dtype.kind not in "biuf":
        refuse_dtype(f"{name} must hold real numbers", value.dtype)
    return value


def label_matrix(labels: Labels, name: str = "labels", *, empty: bool = False) -> sp.csr_array:
    """``labels`` as an n x q CSR matrix of ones; a sparse input never becomes dense."""
    given = real_matrix(name, labels, empty=empty)
    if sp.issparse(given):
        return _ones(name, given)
    n, q = given.shape
    # Several times faster than SciPy's own conversion of a dense matrix.
    cells = np.flatnonzero(_truth(name, given))
    starts = np.searchsorted(cells, np.arange(n + 1, dtype=np.int64) * q)
    ones = np.ones(cells.size, dtype=np.uint8)
    return sp.csr_array((ones, cells % max(q, 1), starts), shape=(n, q))


def label_array(labels: Labels, name: str = "labels") -> npt.NDArray[np.bool_]:
    """``labels`` as an n x q array of booleans."""
    given = real_matrix(name, labels)
    if sp.issparse(given):
        return _ones(name, given).astype(np.bool_).toarray()
    return _truth(name, given)


def _ones(name: str, given: Any) -> sp.csr_array:
    matrix = sp.csr_array(given, copy=True)  # what follows works in place
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    wrong = np.flatnonzero(matrix.data != 1)
    if wrong.size:
        row = int(np.searchsorted(matrix.indptr, wrong[0], side="right")) - 1
        _refuse_label(name, row, int(matrix.indices[wrong[0]]), matrix.data[wrong[0]])
    ones = np.ones(matrix.nnz, dtype=np.uint8)
    return sp.csr_array((ones, matrix.indices, matrix.indptr), shape=matrix.shape)


def _truth(name: str, given: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if given.dtype.kind == "b":
        return given
    truth: npt.NDArray[np.bool_] = given != 0
    right = given == truth  # a NaN is equal to nothing
    if not right.all():
        row, column = np.unravel_index(int(right.argmin()), right.shape)
        _refuse_label(name, int(row), int(column), given[row, column])
    return truth


def _refuse_label(name: str, row: int, column: int, value: Any) -> NoReturn:
    raise ValueError(f"{name}[{row}, {column}] is {value}, but labels must be 0 or 1.")
