"""Rows of a sparse label matrix, a batch at a time, where the batch is."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["LabelRows"]

KEPT = 1 << 26  # pairs (64 MiB) up to which a dense copy is kept: to look a row up is quickest


class LabelRows:
    """Rows of Y [n, q] as booleans.

    A large Y stays sparse on every device. Its rows are padded to the longest one, so that no
    size depends on a batch and nothing is read back from an accelerator.
    """

    def __init__(self, labels: Any) -> None:
        self._labels = labels
        self.n, self.q = labels.shape
        self._device: torch.device | None = None

    def at(self, index: Tensor) -> Tensor:
        """The rows ``index`` [b], on its device: [b, q]."""
        if self._device != index.device:
            self._move(index.device)
        if self._dense is not None:
            return self._dense.index_select(0, index)
        begin = self._pointer.index_select(0, index).unsqueeze(1)
        end = self._pointer.index_select(0, index + 1).unsqueeze(1)
        place = begin + self._offsets
        own = place < end
        columns = self._columns[torch.where(own, place, 0)]
        rows = torch.zeros(len(index), self.q + 1, dtype=torch.bool, device=index.device)
        rows.scatter_(1, torch.where(own, columns, self.q), True)  # the last column is padding
        return rows[:, : self.q]

    def _move(self, device: torch.device) -> None:
        self._device, self._dense = device, None
        labels = self._labels
        if self.n * self.q <= KEPT:
            self._dense = torch.from_numpy(labels.astype(np.bool_).toarray()).to(device)
            return
        pointer = torch.from_numpy(labels.indptr.astype(np.int64))
        width = int(pointer.diff().max())
        self._offsets = torch.arange(width, device=device)
        self._pointer = pointer.to(device)
        # one column more, so that there is something to point to in a matrix without ones
        self._columns = torch.from_numpy(np.append(labels.indices, 0).astype(np.int64)).to(device)
