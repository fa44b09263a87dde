"""What the image models share: a backbone, frozen parts, label vectors, label counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from d2ace._util import validation as inputs
from d2ace._util.errors import UserError

from .backbones import freeze, make_backbone
from .base import MultiLabelModel, trainable

BACKBONE = {"backbone": "resnet101", "weights": "pretrained", "freeze": "none"}
"""What the paper's image models start from."""
VECTOR_WIDTH, VECTOR_STD = 300, 0.38
"""Of the label vectors that stand in for GloVe's: the same width and scale."""


class ImageModel(MultiLabelModel):
    """Base of the models that look at images through a backbone.

    Parameters
    ----------
    n_features : int
        Channels of the input x [B, n_features, H, W]: 3 for images, C for feature maps that were
        computed before (``backbone="identity"``).
    Y_train, preset, given
        As for every model, see :class:`~d2ace.models.MultiLabelModel`. Among the hyperparameters
        are ``backbone``, ``weights`` (see :func:`~d2ace.models.backbones.make_backbone`) and
        ``freeze`` (see :func:`~d2ace.models.backbones.freeze`).
    """

    input: ClassVar[str] = "image"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": BACKBONE, "reference": BACKBONE}

    def __init__(
        self,
        n_features: int,
        Y_train: inputs.Labels,
        preset: str = "paper",
        given: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(n_features, Y_train, preset, given)
        chosen = self.hparams
        self.backbone, self.channels = make_backbone(
            chosen["backbone"], self.n_features, chosen["weights"]
        )
        self._frozen = freeze(self.backbone, chosen["freeze"])
        if isinstance(chosen["backbone"], nn.Module):
            chosen["backbone"] = type(chosen["backbone"]).__name__

    def feature_map(self, x: Tensor) -> Tensor:
        """Feature maps [B, C, h, w] of images x (or of stored half-precision maps)."""
        self.check_features(x)
        x = x.to(next(self.parameters()).dtype)
        # An image alone may have a map of one pixel, which has no statistics of its own.
        with _running_statistics(self.backbone) if len(x) == 1 else nullcontext():
            return self.backbone(x)

    def train(self, mode: bool = True) -> ImageModel:
        """As for any module, but frozen parts stay in evaluation mode."""
        super().train(mode)
        for module in self._frozen:
            module.eval()
        return self

    def check_features(self, x: Tensor) -> None:
        """Refuse what is not a batch of images with as many channels as the model was made for."""
        if x.ndim != 4 or x.shape[1] != self.n_features:
            raise ValueError(
                f"{type(self).__name__} was made for images [batch, {self.n_features}, height, "
                f"width], got shape {list(x.shape)}."
            )

    @classmethod
    def restoring(cls, hparams: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """No file is read for weights and label vectors that ``state`` holds."""
        vectors = {"label_vectors": state["Z"]} if "Z" in state else {}
        return {**hparams, "weights": "none", **vectors}

    def head_and_backbone(self, lr: float, factor: float) -> list[dict[str, Any]]:
        """Parameter groups: the heads with learning rate lr, the backbone with lr·factor."""
        backbone = trainable(self.backbone.parameters())
        known = {id(parameter) for parameter in backbone}
        heads = [p for p in trainable(self.parameters()) if id(p) not in known]
        groups = [{"params": heads, "lr": lr}, {"params": backbone, "lr": lr * factor}]
        return [group for group in groups if group["params"]]


def make_label_vectors(source: Any, n_labels: int) -> tuple[Tensor, str]:
    """Label vectors Z [q, width], and where they are from.

    ``source`` is an array with a row per label, in the order of the labels, or ``"random"``:
    numbers from N(0, 0.38²), 300 per label, the same in every run. These keep the layer sizes and
    the scale of GloVe's, and give each label a code of its own.
    """
    if isinstance(source, str | Path):
        if source != "random":  # only who knows the labels' names can put a file in their order
            raise UserError(
                f"label_vectors is {str(source)!r}, but a model takes 'random' or an array "
                "[labels, width]; read a file with d2ace.data.images.label_vectors(names, path).Z."
            )
        numbers = np.random.default_rng(0).normal(0.0, VECTOR_STD, (n_labels, VECTOR_WIDTH))
        return torch.tensor(numbers, dtype=torch.get_default_dtype()), "random"
    if isinstance(source, Tensor):
        source = source.detach().cpu().numpy()
    array = inputs.as_array("label_vectors", source)
    if array.dtype.kind not in "biuf" or array.ndim != 2 or array.shape[1] < 1:
        raise UserError(
            f"label_vectors must be a matrix of numbers [labels, width], got shape "
            f"{list(array.shape)} of {array.dtype}."
        )
    if len(array) != n_labels:
        raise UserError(
            f"label_vectors has {len(array)} rows, but there are {n_labels} labels; give one row "
            "per label, in their order."
        )
    if not np.isfinite(array).all():
        raise UserError("label_vectors holds NaN or infinite values.")
    return torch.tensor(array, dtype=torch.get_default_dtype()), f"array {list(array.shape)}"


def label_counts(Y_train: inputs.Labels) -> np.ndarray[Any, Any]:
    """C = YᵀY [q, q] in float64: how often labels occur together, and alone on the diagonal."""
    labels = inputs.label_matrix(Y_train).astype(np.float64)
    return np.ascontiguousarray((labels.T @ labels).toarray())


@contextmanager
def _running_statistics(module: nn.Module) -> Iterator[None]:
    """Inside, batch normalisation neither needs nor learns the statistics of a batch."""
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm) and part.training]
    for part in norms:
        part.training = False
    try:
        yield
    finally:
        for part in norms:
            part.training = True
