"""A finished run on images as a model to use on image files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from d2ace._util.errors import RunError, UserError
from d2ace.data.images import IMAGE_SUFFIXES, ImageData, Tree, image_dataset
from d2ace.training.config import RunConfig
from d2ace.training.predicting import SavedRun, rebuilt

from .problem import backbone_of, transforms, without_backbone
from .rows import ImageRows

__all__ = ["SavedImageRun", "find_images"]


class SavedImageRun(SavedRun):
    """What ``load_run`` gives for a run on images."""

    def _restore(self, config: RunConfig, saved: dict[str, Any]) -> None:
        _, self.transform = transforms(config)
        if not config.cache_features:
            self.model = rebuilt(config.model, config.model_options, 3, saved)
            return
        try:
            backbone, channels = backbone_of(config)
        except UserError as problem:
            raise RunError(
                f"The run stored features of a backbone that is needed again: {problem}"
            ) from problem
        options = without_backbone(config.model_options)
        self.model = rebuilt(config.model, options, channels, saved)
        self.model.backbone = backbone.eval().to(self._dtype)
        self.model.n_features = 3

    def predict_proba(self, X: Any) -> npt.NDArray[np.floating]:
        """Probabilities [n, q] of images: ``ImageData``, paths of files, or transformed pixels.

        Files are read and transformed as for evaluation; a tensor [n, 3, H, W] is taken as it is.
        """
        batches = (x.to(self._dtype) for x in self._batches(X))
        with self.model.unchanging():
            pieces = [self.model.predict_proba(x).numpy() for x in batches]
        return np.concatenate(pieces or [np.empty((0, len(self.label_names)), np.float32)])

    def _batches(self, X: Any) -> Iterator[Tensor]:
        if isinstance(X, Tensor):
            yield from X.split(ImageRows.at_once)
            return
        data = X if isinstance(X, ImageData) else _listed(X)
        loader = DataLoader(
            image_dataset(data, None, self.transform),
            ImageRows.at_once,
            generator=torch.Generator(),  # or it draws a seed from the caller's
        )
        yield from (x for x, _ in loader)


def find_images(place: str | Path) -> ImageData:
    """The images in a folder or ``.zip`` and all folders in it, or the one image file."""
    path = Path(place)
    if not path.exists():
        raise UserError(f"There is no {path}; name a folder or .zip with images, or an image.")
    if path.is_file() and path.suffix.lower() != ".zip":
        return _unlabelled(Tree(path.parent), [path.name])
    tree = Tree(path)
    files = sorted(_below(tree, ""))
    if not files:
        raise UserError(f"{path} holds no images; name a folder or .zip with images, or an image.")
    return _unlabelled(tree, files)


def _below(tree: Tree, folder: str) -> Iterator[str]:
    """Names of all image files in a folder and the folders in it."""
    prefix = f"{folder}/" if folder else ""
    for name in tree.names(folder):
        if name.lower().endswith(IMAGE_SUFFIXES):
            yield prefix + name
    for inner in tree.folders(folder):
        yield from _below(tree, prefix + inner)


def _listed(paths: Any) -> ImageData:
    """Files without labels as a dataset."""
    if isinstance(paths, str | Path):
        paths = [paths]
    try:
        files = [Path(path).resolve() for path in paths]
    except TypeError:
        raise UserError(
            f"Images to predict are ImageData, paths of files, or a tensor [n, 3, H, W] of "
            f"transformed pixels, not {type(paths).__name__} of something else."
        ) from None
    for file in files:
        if not file.is_file():
            raise UserError(f"There is no image {file}.")
    root = Path(files[0].anchor) if files else Path()
    return _unlabelled(Tree(root), [file.relative_to(root).as_posix() for file in files])


def _unlabelled(tree: Tree, files: Sequence[str]) -> ImageData:
    return ImageData(
        name="images",
        tree=tree,
        files=tuple(files),
        Y=sp.csr_matrix((len(files), 1), dtype=np.uint8),
        label_names=("",),
        split_names=("all",),
        splits=np.zeros(len(files), dtype=np.int8),
    )
