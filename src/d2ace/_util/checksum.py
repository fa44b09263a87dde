"""Checksums of states and labels, by which damage and other labels are noticed."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .exchange import is_spread, spread_checksum

if TYPE_CHECKING:
    import zipfile

__all__ = ["checksum", "damaged_part", "form", "labels_checksum"]

_IS_FOLDER = 0x10  # of a part's attributes


def labels_checksum(labels: sp.csr_array) -> int:
    """Of which rows have which labels, whatever the matrix counts them in."""
    pointer, columns = (np.asarray(a, dtype="<i8").data for a in (labels.indptr, labels.indices))
    return zlib.crc32(columns, zlib.crc32(pointer))


def checksum(state: Any) -> int:
    """Of all values in a state, tensors included, on whichever device."""
    if isinstance(state, dict):
        kept = sorted(state.keys() - {"checksum", "device"})
        parts = [(key, checksum(state[key])) for key in kept]
        return zlib.crc32(repr(parts).encode())
    if isinstance(state, (list, tuple)):
        return zlib.crc32(repr([checksum(item) for item in state]).encode())
    if is_spread(state):
        return spread_checksum(state, zlib.crc32(form(state).encode()))
    if isinstance(state, Tensor) and state.device.type != "meta":
        content = state.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        return zlib.crc32(content.data, zlib.crc32(form(state).encode()))
    return zlib.crc32(repr(state).encode())


def form(value: Any) -> str:
    """What a value is, in a word: the shape and dtype of a tensor."""
    if isinstance(value, Tensor):
        return f"{tuple(value.shape)} {value.dtype}"
    return "nothing" if value is None else type(value).__name__


def damaged_part(archive: zipfile.ZipFile) -> str | None:
    """The first damaged part of a file that `torch.save` wrote, or None.

    `torch.load` compares no checksums, and leaves the memory of a part that one wrong bit calls a
    folder as it happens to be.
    """
    folders = [part.filename for part in archive.infolist() if part.external_attr & _IS_FOLDER]
    return folders[0] if folders else archive.testzip()
