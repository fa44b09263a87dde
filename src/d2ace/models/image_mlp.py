"""ImageMLP: the plain baseline for images, pooled features and one hidden layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from d2ace._util import validation as inputs

from . import layers
from .base import ModelOutput
from .image import BACKBONE, ImageModel

_DEFAULTS = {**BACKBONE, "h": 512, "L": 1, "p": 0.2}


class ImageMLP(ImageModel):
    """Global average pool of the backbone's map, L layers of h ReLU units, q logits.

    What most people would try first. The paper has no such model, so both presets are the same.

    Parameters
    ----------
    n_features, Y_train, preset
        As for every image model, see :class:`~d2ace.models.image.ImageModel`.
    backbone, weights, freeze
        The backbone, its weights, and what of it is not trained ("resnet101", "pretrained",
        "none").
    h, L : int
        Width and number of hidden layers (512, 1).
    p : float
        Dropout after every hidden layer (0.2).
    """

    name: ClassVar[str] = "image_mlp"
    title: ClassVar[str] = "MLP"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": _DEFAULTS,
        "reference": _DEFAULTS,
    }

    def __init__(
        self,
        n_features: int,
        Y_train: inputs.Labels,
        *,
        preset: str = "paper",
        backbone: str | nn.Module | None = None,
        weights: str | None = None,
        freeze: str | Sequence[str] | None = None,
        h: int | None = None,
        L: int | None = None,
        p: float | None = None,
    ) -> None:
        given = {"backbone": backbone, "weights": weights, "freeze": freeze, "h": h, "L": L, "p": p}
        super().__init__(n_features, Y_train, preset, given)
        width = inputs.whole_number("h", self.hparams["h"], 1)
        depth = inputs.whole_number("L", self.hparams["L"], 1)
        dropout = inputs.real_number("p", self.hparams["p"], 0, 1)
        self.encoder = layers.FeedForward([self.channels, *[width] * depth], dropout=dropout)
        self.classifier = nn.Linear(width, self.n_labels)

    def forward(self, x: Tensor) -> ModelOutput:
        """Logits of images x [B, 3, H, W]."""
        return ModelOutput(self.classifier(self.encoder(self.feature_map(x).mean((2, 3)))))
