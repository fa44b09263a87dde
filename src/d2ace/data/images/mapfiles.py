"""The files of stored feature maps: written in order, verified before use."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from d2ace._util.atomic import put_in_place, remove_leftovers, write_whole
from d2ace._util.errors import RunError

from .dataset import ImageDataset

ABOUT, MAPS, POOLED, PROGRESS = "about.json", "maps.npy", "pooled.npy", "progress.json"
_OURS = {ABOUT, MAPS, POOLED, PROGRESS}
_UNUSABLE = (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError)
"""What damaged files raise."""
_AT_ONCE = 1 << 24  # bytes

Sums = list[int]
"""Checksums (CRC-32) of the rows of the maps, and of their means, from the first to the last."""


def undamaged(place: Path, key: str) -> bool:
    """Whether all that belongs to the key is there, byte for byte as it was written."""
    try:
        about = json.loads((place / ABOUT).read_text(encoding="utf-8"))
        maps, pooled = (
            np.load(place / name, mmap_mode="r", allow_pickle=False) for name in (MAPS, POOLED)
        )
        said = {"key": key, "shape": list(maps.shape), "sums": about["sums"]}
        kinds = [maps.dtype, pooled.dtype]
        if about != said or pooled.shape != maps.shape[:2] or kinds != [np.float16, np.float32]:
            return False
        return sums([maps, pooled], len(maps)) == about["sums"]
    except _UNUSABLE:
        return False


def sums(arrays: list[npt.NDArray[Any]], rows: int) -> Sums:
    """The checksums of the first rows of the maps and of their means."""
    found = []
    for array in arrays:
        at_once, value = max(1, _AT_ONCE // max(1, array[:1].nbytes)), 0
        for start in range(0, rows, at_once):
            value = _sum(array[start : min(start + at_once, rows)], value)
        found.append(value)
    return found


def _sum(rows: npt.NDArray[Any], before: int) -> int:
    return zlib.crc32(np.ascontiguousarray(rows).data, before)


def clear(folder: Path) -> None:
    """Remove a folder of maps; one that holds anything else is left as it is, and refused."""
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise _refused(folder, "what is there")
    remove_leftovers(folder)
    for path in sorted(folder.iterdir()):
        if path.name not in _OURS or path.is_symlink() or not path.is_file():
            raise _refused(folder, f"{path.name} in it")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def _refused(folder: Path, what: str) -> RunError:
    return RunError(
        f"{folder}: {what} is something d2ace did not write; move it away, or choose another folder"
    )


class Partial:
    """The files of a build in progress: the arrays, and how many of their rows are complete."""

    def __init__(self, folder: Path, key: str, n: int) -> None:
        self.folder, self.key, self.n, self.done = folder, key, n, 0
        self.maps: Any = None
        self.pooled: Any = None
        self.sums: Sums = [0, 0]
        try:
            note = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
            for name in (MAPS, POOLED):  # a file cut short would be filled up when opened to write
                np.lib.format.open_memmap(folder / name, mode="r")
            maps, pooled = (
                np.lib.format.open_memmap(folder / name, mode="r+") for name in (MAPS, POOLED)
            )
            mine = note["key"] == key and len(maps) == len(pooled) == n
            if mine and 0 < note["done"] <= n:
                self.sums, self.done = sums([maps, pooled], note["done"]), note["done"]
            if self.done and self.sums == note["sums"]:
                self.maps, self.pooled = maps, pooled
            del maps, pooled  # Windows removes no open file
        except _UNUSABLE:
            pass
        if self.maps is None:  # nothing usable: from the start
            self.sums, self.done = [0, 0], 0
            clear(folder)

    def write(self, maps: torch.Tensor, dataset: ImageDataset) -> None:
        """The next rows."""
        half = maps.half()
        wrong = torch.flatten(~torch.isfinite(half), 1).any(1)
        if wrong.any():
            row = int(dataset.rows[self.done + int(wrong.int().argmax())])
            raise RunError(
                f"{dataset.data.place(row)}: its feature map holds numbers that are not finite in "
                "float16; this backbone cannot be cached"
            )
        if self.maps is None:
            self._create(tuple(maps.shape[1:]))
        if tuple(self.maps.shape[1:]) != tuple(maps.shape[1:]):
            raise RunError(
                f"the backbone gives maps {tuple(maps.shape[1:])} after {self.maps.shape[1:]}; all "
                "images must be transformed to one size"
            )
        stop = self.done + len(maps)
        rows = [half.numpy(), maps.mean((2, 3)).numpy()]
        self.maps[self.done : stop], self.pooled[self.done : stop] = rows
        self.sums = [_sum(new, before) for new, before in zip(rows, self.sums, strict=True)]
        self.done = stop

    def note(self) -> None:
        """Everything so far is on the disk, and only then is it said to be."""
        self.maps.flush()
        self.pooled.flush()
        note = {"key": self.key, "done": self.done, "sums": self.sums}
        _write_json(self.folder / PROGRESS, note)

    def finish(self, place: Path) -> None:
        """The folder gets its name when all that belongs in it is there."""
        self.note()
        about = {"key": self.key, "shape": list(self.maps.shape), "sums": self.sums}
        _write_json(self.folder / ABOUT, about)
        self.maps = self.pooled = None  # Windows moves no folder with an open file in it
        put_in_place(self.folder, place)
        (place / PROGRESS).unlink()

    def _create(self, shape: tuple[int, ...]) -> None:
        clear(self.folder)
        self.folder.mkdir()
        for name, dtype, cell in ((MAPS, np.float16, shape), (POOLED, np.float32, shape[:1])):
            path, full = self.folder / name, (self.n, *cell)
            array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=full)
            setattr(self, "maps" if name == MAPS else "pooled", array)
            if hasattr(os, "posix_fallocate"):
                # A disk that is full later would kill the process when the map is written to.
                with path.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_whole(path, json.dumps(content).encode())
