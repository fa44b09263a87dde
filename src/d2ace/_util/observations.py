"""Predictions for rows of a training set, checked once: row numbers, logits, probabilities.

Every refusal is one sentence that names the argument, the value and what is expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor

from .validation import as_array, refuse_dtype


def array_tensor(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor on the array's memory, or on a copy that torch can use.

    Torch has no memory maps that may not be written, no foreign byte order, no long doubles.
    """
    native = array.dtype.newbyteorder("=")
    native = np.dtype(np.float64) if native.kind == "f" and native.itemsize > 8 else native
    return torch.from_numpy(np.require(array, dtype=native, requirements=["C", "W"]))


def state_device(device: torch.device) -> torch.device:
    """Where state is kept for predictions on ``device``: Apple's has no float64."""
    return torch.device("cpu") if device.type == "mps" else device


class CheckedRows(NamedTuple):
    """Checked row numbers on the host."""

    array: np.ndarray[Any, Any]
    repeated: bool


def host_rows(index: Any, n: int, *, unique: bool) -> CheckedRows:
    """``index`` checked; a tensor, an array, a list or a range of row numbers."""
    if isinstance(index, Tensor):
        if index.is_meta:
            raise TypeError("index is on the meta device and holds no numbers; give real ones.")
        array = index.detach().cpu().numpy()
    else:
        array = as_array("index", index)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        _refuse_index(array.shape, array.dtype)
    if not array.size:
        return CheckedRows(array.astype(np.int64), False)
    ordered = np.sort(array)
    if ordered[0] < 0 or ordered[-1] >= n:
        wrong = ordered[0] if ordered[0] < 0 else ordered[-1]
        raise ValueError(
            f"index holds {wrong}, but rows run from 0 to {n - 1}; it must give the rows' places "
            "in the labels that the selector was made with."
        )
    same = ordered[1:] == ordered[:-1]
    repeated = bool(np.count_nonzero(same))  # much quicker than any() of a few
    if unique and repeated:
        raise ValueError(
            f"index holds row {ordered[same.argmax()]} twice; each row may occur once in a batch "
            f"(unless the selector is made with replacement=True)."
        )
    return CheckedRows(array, repeated)


def device_rows(index: Tensor) -> Tensor:
    """Rows that stay on an accelerator: what can be checked of them without reading them."""
    real = index.is_floating_point() or index.is_complex() or index.dtype == torch.bool
    if index.ndim != 1 or real:
        _refuse_index(tuple(index.shape), index.dtype)
    return index.detach().to(torch.int64)


def _refuse_index(shape: tuple[int, ...], dtype: Any) -> NoReturn:
    """Most often a loop gives its first tensor, which is the index only of an IndexedDataset."""
    raise TypeError(
        f"index must hold the batch's row numbers [b], got {dtype} of shape {tuple(shape)}; wrap "
        "the dataset in d2ace.IndexedDataset, so that the loader yields (index, x, y)."
    )


def _refuse_output(name: str, value: Any) -> None:
    """Refuse what a model returned as a whole: the object or dictionary that holds its logits."""
    if isinstance(value, Mapping) or hasattr(value, "logits"):
        part = "output.logits" if hasattr(value, "logits") else "output['logits']"
        remedy = part if name == "logits" else f"the probabilities, or logits={part}"
        raise TypeError(
            f"{name} must be a tensor or array [b, q], got {type(value).__name__}; pass {remedy}."
        )


def given_predictions(*unnamed: Any, logits: Any, probs: Any) -> tuple[Tensor, bool]:
    """The one of ``logits`` and ``probs`` that was given, detached, and whether it is logits."""
    if unnamed:
        raise TypeError(
            "observe cannot tell logits from probabilities by their position; name them: "
            "observe(index, logits=...) or observe(index, probs=...)."
        )
    if (logits is None) == (probs is None):
        given = "neither" if logits is None else "both"
        raise ValueError(f"observe needs exactly one of logits and probs, got {given}.")
    name, value = ("probs", probs) if logits is None else ("logits", logits)
    if not isinstance(value, Tensor):
        _refuse_output(name, value)
        array = as_array(name, value)
        if array.dtype.kind != "f":
            refuse_dtype(f"{name} must be floating point", array.dtype)
        value = array_tensor(array)
    if value.layout != torch.strided:
        raise TypeError(f"{name} must be dense, got layout {value.layout}.")
    if not value.is_floating_point():
        raise TypeError(f"{name} must be floating point, got dtype {value.dtype}.")
    value = value.detach()
    return value.float() if value.dtype.itemsize == 1 else value, probs is None  # 8-bit floats


def refuse_shape(values: Tensor, shape: tuple[int, int], name: str) -> None:
    """Refuse predictions that do not have one row per index and one column per label."""
    if values.shape != shape:
        raise ValueError(
            f"{name} must have shape [{shape[0]}, {shape[1]}] (one row per index, one column per "
            f"label), got {tuple(values.shape)}."
        )
