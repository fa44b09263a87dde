"""Rows of a matrix, taken from and put to where they belong.

On the host numpy copies a row as one item of so many bytes, which takes half as long as torch's
index_select and index_copy_ or less.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["put_rows", "take_rows"]


def put_rows(matrix: Tensor, index: Tensor, values: Tensor) -> None:
    """``matrix[index] = values``, for distinct rows."""
    if matrix.device.type == "cpu" and values.numel():
        # as items, bytes are copied whatever they stand for
        _items(matrix)[index.numpy()] = _items(values.to(matrix.dtype).contiguous())
    else:
        matrix.index_copy_(0, index, values)


def take_rows(matrix: Tensor, index: Tensor, out: Tensor) -> Tensor:
    """``matrix[index]``, written to ``out``."""
    if matrix.device.type == "cpu" and out.numel():
        _items(matrix).take(index.numpy(), out=_items(out), mode="clip")  # rows are checked ones
    else:
        torch.index_select(matrix, 0, index, out=out)
    return out


def _items(matrix: Tensor) -> np.ndarray[Any, Any]:
    """Each row of [n, q] as one item: [n]."""
    array = matrix.numpy()
    return array.view(np.dtype((np.void, array.shape[1] * array.itemsize)))[:, 0]
