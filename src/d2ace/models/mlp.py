"""MLP: the plain baseline, one hidden representation for all labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from d2ace._util import validation as inputs

from . import layers
from .base import ModelOutput, MultiLabelModel

_DEFAULTS = {"h": 512, "L": 3, "p": 0.2}


class MLP(MultiLabelModel):
    """L layers of h ReLU units with dropout p, then a linear map to q logits.

    A plain network to start from; it uses no relation between labels. The paper
    has no such model, so both presets are the same: depth, width and dropout of CLIF's encoder.

    Parameters
    ----------
    n_features, Y_train, preset
        As for every model, see :class:`~d2ace.models.MultiLabelModel`.
    h, L : int
        Width and number of hidden layers (512, 3).
    p : float
        Dropout after every hidden layer (0.2).
    """

    name: ClassVar[str] = "mlp"
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
        h: int | None = None,
        L: int | None = None,
        p: float | None = None,
    ) -> None:
        super().__init__(n_features, Y_train, preset, {"h": h, "L": L, "p": p})
        width = inputs.whole_number("h", self.hparams["h"], 1)
        depth = inputs.whole_number("L", self.hparams["L"], 1)
        dropout = inputs.real_number("p", self.hparams["p"], 0, 1)
        self.encoder = layers.FeedForward([self.n_features, *[width] * depth], dropout=dropout)
        self.classifier = nn.Linear(width, self.n_labels)

    def forward(self, x: Tensor) -> ModelOutput:
        """Logits of instances x [B, d]."""
        self.check_features(x)
        return ModelOutput(self.classifier(self.encoder(x)))
