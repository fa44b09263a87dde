"""Feature maps of a frozen backbone, computed once and read from the disk from then on."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

from d2ace._util.callbacks import Progress
from d2ace._util.errors import RunError, UserError
from d2ace._util.locks import locked
from d2ace.data.container import DataWarning
from d2ace.data.stratify import checked_labels, row_numbers

from .content import content_key
from .dataset import ImageDataset, said_plainly
from .mapfiles import MAPS, POOLED, Partial, clear, undamaged

_BATCHES_BETWEEN_NOTES = 16


class CachedFeatures:
    """Feature maps of n images: ``maps`` [n, C, H, W] float16 on the disk, ``pooled`` [n, C].

    Row i belongs to item i of the dataset they were made of.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._maps: npt.NDArray[np.float16] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the file for itself."""
        return CachedFeatures, (self.folder,)

    @property
    def maps(self) -> npt.NDArray[np.float16]:
        """The maps, memory-mapped: only what is used is read."""
        if self._maps is None:
            self._maps = np.load(self.folder / MAPS, mmap_mode="r", allow_pickle=False)
        return self._maps

    @property
    def pooled(self) -> npt.NDArray[np.float32]:
        """Mean of each map over its positions, before rounding to float16; for neighbours."""
        return np.load(self.folder / POOLED, allow_pickle=False)

    def __len__(self) -> int:
        return len(self.maps)

    def batch(self, index: Sequence[int] | npt.NDArray[Any] | torch.Tensor) -> torch.Tensor:
        """The maps of these rows, [B, C, H, W] float32."""
        rows = np.asarray(index, dtype=np.int64).reshape(-1)
        return torch.from_numpy(self.maps[rows]).float()


class FeatureDataset(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Item i is ``(feature map [C, H, W], labels [q])`` of row ``rows[i]`` of the features.

    ``rows`` are numbers, or a mask of all rows; without them all are there.
    """

    def __init__(
        self, features: CachedFeatures, labels: Any, rows: npt.ArrayLike | None = None
    ) -> None:
        self.features, self.labels = features, checked_labels(labels)
        if self.labels.shape[0] != len(features):
            raise UserError(
                f"labels has {self.labels.shape[0]} rows, and the cache {len(features)}; "
                "give the labels of the rows that were cached"
            )
        n = len(features)
        self.rows = np.arange(n) if rows is None else row_numbers(rows, n)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """A whole batch in one read."""
        rows = self.rows[indices]
        labels = torch.from_numpy(self.labels[rows].toarray().astype(np.float32))
        return list(zip(self.features.batch(rows), labels, strict=True))


def cache_features(
    module: nn.Module,
    dataset: ImageDataset,
    folder: str | os.PathLike[str],
    *,
    batch_size: int = 32,
    workers: int = 0,
    progress: Progress | None = None,
) -> CachedFeatures:
    """The feature maps that ``module`` gives for ``dataset``, out of ``folder`` if they are there.

    ``module`` maps [B, 3, H, W] to [B, C, H', W']; it is run in evaluation mode, on the device that
    its parameters are on, and left as it was. The key covers its structure and weights, the
    transform and the bytes of the images (read again when a file's size or time of change differs);
    it does not see a change in the code of ``forward`` alone. What was interrupted is not taken for
    complete, and resumes where it stopped; if two processes need the same maps, one computes them.
    Maps that are there are read once, to compare their checksums; damaged ones are computed again,
    with a warning.
    ``progress`` is called with the images done and the images in all.
    """
    if batch_size < 1 or workers < 0:
        raise UserError(f"batch_size={batch_size} and workers={workers} must be at least 1 and 0")
    if not len(dataset):
        raise UserError("there are no images to cache features of")
    home = Path(folder)
    try:
        home.mkdir(parents=True, exist_ok=True)
        key = content_key(module, dataset, home)
        place = home / key[:32]
        if not undamaged(place, key):
            with locked(home / f"{key[:32]}.lock"):
                if not undamaged(place, key):  # another process may have been faster
                    _build(module, dataset, place, key, batch_size, workers, progress)
        return CachedFeatures(place)
    except OSError as error:
        raise RunError(
            f"{home}: cached features cannot be read or written ({error.strerror or error}); make "
            "room, or choose another folder"
        ) from error


def _build(
    module: nn.Module,
    dataset: ImageDataset,
    place: Path,
    key: str,
    batch_size: int,
    workers: int,
    progress: Progress | None,
) -> None:
    if os.path.lexists(place):
        clear(place)
        warnings.warn(
            f"{place}: the feature maps stored there are damaged, and are computed again",
            DataWarning,
            stacklevel=3,
        )
    files = Partial(place.with_name(f"{place.name}.partial"), key, len(dataset))
    done = files.done
    if progress is not None:
        progress(done, files.n)
    rest = Subset(dataset, range(done, files.n))
    loader = DataLoader(
        rest, batch_size=batch_size, num_workers=workers, generator=torch.Generator()
    )  # whose seeds would come from the caller's generator
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    with said_plainly(), _evaluating(module), torch.inference_mode():
        for number, (images, _) in enumerate(loader, start=1):
            maps = module(images.to(device))
            if not isinstance(maps, torch.Tensor) or maps.ndim != 4 or len(maps) != len(images):
                got = tuple(maps.shape) if isinstance(maps, torch.Tensor) else type(maps).__name__
                raise UserError(
                    f"the backbone gives {got} for {len(images)} images; it must give feature maps "
                    "[B, C, H, W]"
                )
            files.write(maps.float().cpu(), dataset)
            if number % _BATCHES_BETWEEN_NOTES == 0:
                files.note()
            if progress is not None:
                progress(files.done, files.n)
    files.finish(place)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, and every part as it was afterwards."""
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training
