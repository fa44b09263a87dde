"""Images as the rows of a run: read, augmented and handed over in batches."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from d2ace.data.images import CachedFeatures, ImageDataset, said_plainly
from d2ace.models import ImageModel, MultiLabelModel
from d2ace.selectors import BatchPart
from d2ace.training.problem import Drawn, Rows

__all__ = ["FeatureRows", "ImageRows"]


class _Placed(Rows):
    """Rows that are read when they are asked for, and only then put on the device."""

    def __init__(self) -> None:
        self._device, self._dtype = torch.device("cpu"), torch.float32

    def to(self, device: torch.device, dtype: torch.dtype) -> Rows:
        """Give rows on ``device`` and of ``dtype`` from now on."""
        self._device, self._dtype = device, dtype
        return self


class ImageRows(_Placed):
    """Rows that are image files; ``workers`` processes read and transform them.

    ``trained`` has the transform that draws at random, ``plain`` the one for evaluation.
    """

    at_once: ClassVar[int] = 64

    def __init__(self, trained: ImageDataset, plain: ImageDataset, workers: int) -> None:
        super().__init__()
        self._trained, self._plain, self._workers = trained, plain, workers

    def __len__(self) -> int:
        return len(self._plain)

    @property
    def shape(self) -> tuple[int, int]:
        """Images, and channels of one."""
        return len(self), 3

    def batches(
        self, parts: Iterable[BatchPart], epoch: int, first: int, *, ahead: bool
    ) -> Iterator[Drawn]:
        """Every part with its images; workers read some batches ahead.

        How an image is cropped and flipped is a function of seed, epoch and place in the epoch, so
        that neither workers nor processes nor an interruption change it, and an image that is
        drawn twice is seen in two ways.
        """
        waiting: deque[BatchPart] = deque()
        self._trained.set_epoch(epoch)

        def drawn() -> Iterator[list[tuple[int, int]]]:
            for number, part in enumerate(parts, start=first):
                waiting.append(part)
                start = number * (1 << 20)
                yield [(row, start + at) for at, row in zip(part.places, part.rows, strict=True)]

        workers = self._workers if ahead else 0
        for x in self._loaded(self._trained, workers, batch_sampler=drawn()):
            yield waiting.popleft(), x

    def chunks(self) -> Iterator[Tensor]:
        """All images in their order, as evaluation sees them."""
        return self._loaded(self._plain, self._workers, batch_size=self.at_once)

    def space(self, model: MultiLabelModel) -> npt.NDArray[np.float32]:
        """Global averages of the backbone's feature maps [n, C], in one pass."""
        return pooled(model, self.chunks())

    def _loaded(self, dataset: ImageDataset, workers: int, **how: Any) -> Iterator[Tensor]:
        pinned = self._device.type == "cuda"
        # A process of several was spawned, and so would be its workers, which then import torch
        # anew for every pass.
        context = "fork" if workers and sys.platform == "linux" else None
        loader = DataLoader(
            dataset,
            num_workers=workers,
            pin_memory=pinned,
            multiprocessing_context=context,
            worker_init_fn=_apart,
            generator=torch.Generator(),  # workers draw nothing of their own, see `ImageDataset`
            **how,
        )
        with said_plainly():
            for x, _ in loader:
                yield x.to(self._device, self._dtype, non_blocking=True)


def _apart(worker: int) -> None:
    """Leave the process group: a signal to all of it is for the run, which saves and ends us."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()


class FeatureRows(_Placed):
    """Rows that are stored feature maps of a frozen backbone."""

    at_once: ClassVar[int] = 128

    def __init__(self, features: CachedFeatures, rows: npt.NDArray[np.int64]) -> None:
        super().__init__()
        self._features, self._rows = features, rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def shape(self) -> tuple[int, int]:
        """Images, and channels of their maps."""
        return len(self), int(self._features.maps.shape[1])

    def take(self, rows: list[int] | slice) -> Tensor:
        """Maps [b, C, H, W] on the device."""
        return self._features.batch(self._rows[rows]).to(self._device, self._dtype)

    def space(self, model: MultiLabelModel) -> npt.NDArray[np.float32]:
        """Global averages of the maps [n, C]."""
        return self._features.pooled[self._rows]


@torch.no_grad()
def pooled(model: MultiLabelModel, chunks: Iterable[Tensor]) -> npt.NDArray[np.float32]:
    """Global averages of the feature maps that a model's backbone gives [n, C]."""
    assert isinstance(model, ImageModel)  # noqa: S101 - only those are given images
    model.eval()
    pieces = [model.feature_map(x).float().mean((2, 3)).cpu() for x in chunks]
    model.train()
    return torch.cat(pieces).numpy()
