"""The network of the demo: it finds digits wherever they stand on a square picture."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from d2ace._util import validation as inputs

from .base import ModelOutput, MultiLabelModel

__all__ = ["DigitNetwork"]

_CHANNELS = (16, 32, 64)


class DigitNetwork(MultiLabelModel):
    """Three convolutions, then the maximum of each channel over the picture, then q logits.

    The maximum makes the place of a digit irrelevant, so a few thousand pictures suffice where a
    plain MLP would have to see each digit in each place. Both presets are the same.

    Parameters
    ----------
    n_features : int
        Pixels of a square picture, row by row.
    Y_train, preset
        As for every model, see :class:`~d2ace.models.MultiLabelModel`.
    """

    title = "CNN"

    def __init__(self, n_features: int, Y_train: inputs.Labels, *, preset: str = "paper") -> None:
        super().__init__(n_features, Y_train, preset)
        self.side = math.isqrt(self.n_features)
        if self.side**2 != self.n_features or self.side < 5:
            raise ValueError(
                f"{type(self).__name__} needs square pictures of at least 5 x 5 pixels, got "
                f"{self.n_features} features; take another model."
            )
        first, second, third = _CHANNELS
        self.encoder = nn.Sequential(
            nn.Conv2d(1, first, 5, stride=2),
            *_after(first),
            nn.Conv2d(first, second, 3, padding=1),
            *_after(second),
            nn.Conv2d(second, third, 3, padding=1),
            *_after(third),
        )
        self.classifier = nn.Linear(third, self.n_labels)

    def forward(self, x: Tensor) -> ModelOutput:
        """Logits of pictures x [B, d]."""
        self.check_features(x)
        maps: Any = self.encoder(x.view(-1, 1, self.side, self.side))
        return ModelOutput(self.classifier(maps.amax(dim=(2, 3))))


def _after(channels: int) -> tuple[nn.Module, nn.Module]:
    return nn.BatchNorm2d(channels), nn.ReLU()
