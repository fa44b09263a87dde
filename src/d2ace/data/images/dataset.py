"""Images as a torch dataset: decoded and transformed in the loader's workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from d2ace._util.errors import RunError
from d2ace._util.random_state import borrowed_generator
from d2ace._util.torchvision import torchvision
from d2ace.data.container import DataError, UnknownDataError
from d2ace.data.stratify import row_numbers

from .container import ImageData, Rows
from .decode import decode

Transform = Callable[[Any], torch.Tensor]


@contextmanager
def said_plainly() -> Iterator[None]:
    """What a loader's worker died of, without the trace that the loader wraps it in."""
    try:
        yield
    except (DataError, RunError) as problem:
        trace, _, words = str(problem).rpartition(f"{type(problem).__name__}: ")
        if not trace:
            raise
        raise type(problem)(words.strip()) from None


class ImageDataset(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Item i is ``(image [3, H, W], labels [q])`` of row ``rows[i]``; made by `image_dataset`."""

    def __init__(
        self,
        data: ImageData,
        rows: Rows,
        transform: Transform | None,
        seed: int,
        epoch: torch.Tensor | None = None,
    ) -> None:
        self.data, self.rows, self.transform, self.seed = data, rows, transform, seed
        # Shared memory: workers that outlive an epoch see the next one too.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_() if epoch is None else epoch

    def __reduce__(self) -> tuple[Any, ...]:
        """For a spawned worker, which must import torchvision before it can load transforms."""
        head = _Torchvision() if "torchvision" in sys.modules else None
        return _restored, (head, self.data, self.rows, self.transform, self.seed, self._epoch)

    @property
    def labels(self) -> Any:
        """Labels of the rows, [n, q] CSR, 0/1."""
        return self.data.Y[self.rows]

    def set_epoch(self, epoch: int) -> None:
        """Draw the random parts of the transform for this epoch; call it before iterating."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int | tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Item ``index``; a pair ``(index, draw)`` is seen in another way for each ``draw``."""
        index, *draw = index if isinstance(index, tuple) else (index,)
        row = int(self.rows[index])
        image = read_image(self.data, row)
        return self._transformed(image, row, draw), self._label_vector(row)

    def _transformed(self, image: Any, row: int, draw: list[int]) -> torch.Tensor:
        if self.transform is None:
            return torch.from_numpy(np.array(image)).permute(2, 0, 1)
        key = np.random.SeedSequence([self.seed, int(self._epoch), row, *draw])
        with borrowed_generator() as generator:  # torchvision's transforms draw from no other
            generator.manual_seed(int(key.generate_state(1, np.uint64)[0] >> np.uint64(1)))
            return self.transform(image)

    def _label_vector(self, row: int) -> torch.Tensor:
        Y = self.data.Y
        vector = torch.zeros(Y.shape[1])
        vector[torch.from_numpy(Y.indices[Y.indptr[row] : Y.indptr[row + 1]]).long()] = 1.0
        return vector


def image_dataset(
    data: ImageData,
    rows: npt.ArrayLike | None = None,
    transform: Transform | None = None,
    *,
    seed: int = 0,
) -> ImageDataset:
    """A torch dataset of ``(image, labels)`` for these rows, numbers or a mask (default: all).

    ``transform`` takes a Pillow image (RGB, upright) and gives a tensor, see `train_transform` and
    `evaluation_transform`; without one the pixels come as they are, uint8 [3, H, W]. What it draws
    from torch's generator is a function of ``seed``, epoch (`ImageDataset.set_epoch`) and row:
    the number of workers does not change an image, and a run that is resumed sees the same ones.
    """
    chosen = np.arange(data.n) if rows is None else row_numbers(rows, data.n)
    if seed < 0:
        raise UnknownDataError(f"seed={seed} is negative; use 0 or more")
    return ImageDataset(data, chosen, transform, seed)


def read_image(data: ImageData, row: int) -> Any:
    """The image of a row as Pillow sees it, RGB and upright."""
    file = data.files[row]
    return decode(data.tree.read(file), data.tree.place(file))


def check_images(data: ImageData) -> Rows:
    """Rows whose image is missing, broken or oversized, found by decoding every image once.

    Leave them out before anything is numbered (``data.subset(np.delete(np.arange(data.n), bad))``):
    a selector counts on row i being the same image for the whole run.
    """

    def broken(row: int) -> bool:
        try:
            read_image(data, row)
        except DataError:
            return True
        return False

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:  # Pillow frees the interpreter
        found = np.fromiter(threads.map(broken, range(data.n)), dtype=bool, count=data.n)
    return np.flatnonzero(found)


class _Torchvision:
    """Pickles as the call that imports torchvision."""

    def __reduce__(self) -> tuple[Any, ...]:
        return torchvision, ()


def _restored(head: Any, *state: Any) -> ImageDataset:
    return ImageDataset(*state)
