"""Neighbours kept on disk, found again by the content of the features they were made from."""

from __future__ import annotations

import contextlib
import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from d2ace._util.atomic import write_whole

__all__ = ["NeighborFiles"]

_FORMAT = 1  # raise it when a search finds other rows than before


class NeighborFiles:
    """One file of a folder, named after everything that decides what is in it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of(cls, folder: Path, features: Any, *wanted: Any) -> NeighborFiles:
        """The file of a search for ``wanted`` in ``features``."""
        digest = hashlib.sha256(repr((_FORMAT, features.shape, features.dtype, *wanted)).encode())
        if isinstance(features, Tensor):
            for part in features.split(1 << 14):
                digest.update(part.detach().cpu().contiguous().numpy().data)
        else:
            for array in (features.indptr, features.indices, features.data):
                digest.update(np.ascontiguousarray(array).data)
        return cls(folder / f"{digest.hexdigest()}.npz")

    def read(self, shape: tuple[int, int]) -> tuple[Tensor, float] | None:
        """Index and recall; None if they are not there, or damaged: then they are made anew."""
        with contextlib.suppress(Exception):  # what a damaged archive raises is anybody's guess
            # numpy checks the archive's CRC, but leaves a file open that it cannot read
            with self._path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                index, recall = kept["index"], float(kept["recall"])
            rows_exist = index.size == 0 or (index.min() >= 0 and index.max() < shape[0])
            known = index.shape == shape and index.dtype == np.int64 and 0.0 <= recall <= 1.0
            if known and rows_exist:
                return torch.from_numpy(index), recall
        return None

    def write(self, index: Tensor, recall: float) -> None:
        """Keep them. A folder that cannot be written costs time, not the result."""
        content = io.BytesIO()
        np.savez(content, index=index.numpy(), recall=np.float64(recall))
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, content.getbuffer())
