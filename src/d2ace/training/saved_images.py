"""A finished run on images as a model to use on image files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from torch import Tensor
from torch.utils.data import DataLoader

from d2ace.data.images import ImageData, image_dataset
from d2ace.data.images.tree import IMAGE_SUFFIXES, Tree
from d2ace.errors import UserError

from .config import RunConfig
from .image_problem import backbone_of, transforms, without_backbone
from .image_rows import ImageRows
from .saved import SavedRun, rebuilt

__all__ = ["SavedImageRun", "find_images"]


class SavedImageRun(SavedRun):
    """What ``load_run`` gives for a run on images."""

    def _restore(self, config: RunConfig, saved: dict[str, Any]) -> None:
        _, self.transform = transforms(config)
        if not config.cache_features:
            self.model = rebuilt(config.model, config.model_options, 3, saved)
            return
        backbone, channels = backbone_of(config)
        options = without_backbone(config.model_options)
        self.model = rebuilt(config.model, options, channels, saved)
        self.model.backbone = backbone.eval()
        self.model.n_features = 3

    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Probabilities [n, q] of images: ``ImageData``, paths of files, or transformed pixels.

        Files are read and transformed as for evaluation; a tensor [n, 3, H, W] is taken as it is.
        """
        pieces = [self.model.predict_proba(x).numpy() for x in self._batches(X)]
        return np.concatenate(pieces or [np.empty((0, len(self.label_names)), np.float32)])

    def _batches(self, X: Any) -> Iterator[Tensor]:
        if isinstance(X, Tensor):
            yield from X.split(ImageRows.at_once)
            return
        data = X if isinstance(X, ImageData) else _listed(X)
        loader = DataLoader(image_dataset(data, None, self.transform), ImageRows.at_once)
        yield from (x for x, _ in loader)


def find_images(place: str | Path) -> list[Path]:
    """The image files in a folder and all folders in it, or the one image file."""
    path = Path(place)
    if path.is_file():
        return [path]
    found = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in IMAGE_SUFFIXES]
    if not found:
        raise UserError(f"{path} holds no images; name a folder with images, or an image.")
    return found


def _listed(paths: Sequence[str | Path]) -> ImageData:
    """Files without labels as a dataset."""
    if isinstance(paths, str | Path):
        paths = [paths]
    files = [Path(path).resolve() for path in paths]
    for file in files:
        if not file.is_file():
            raise UserError(f"There is no image {file}.")
    root = Path(files[0].anchor) if files else Path()
    return ImageData(
        name="images",
        tree=Tree(root),
        files=tuple(file.relative_to(root).as_posix() for file in files),
        Y=sp.csr_matrix((len(files), 1), dtype=np.uint8),
        label_names=("",),
        split_names=("all",),
        splits=np.zeros(len(files), dtype=np.int8),
    )
