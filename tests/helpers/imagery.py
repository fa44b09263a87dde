"""Small image problems, a small backbone, and image models that are made in no time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from d2ace.models import MODELS, ImageModel, make_model

IMAGE_NAMES = [name for name, model in MODELS.items() if model.input == "image"]
SMALL = {"image_mlp": {"h": 32}, "ml_gcn": {"h": 32}, "hst": {"h": 16, "K": 3}}


class TinyNet(nn.Sequential):
    """Three stages of convolution with stride 2: [B, 3, H, W] -> [B, width, H/8, W/8]."""

    def __init__(self, width: int = 16) -> None:
        sizes = [3, width // 4, width // 2, width]
        super().__init__(
            *(
                nn.Sequential(
                    nn.Conv2d(fan_in, out, 3, 2, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()
                )
                for fan_in, out in pairwise(sizes)
            )
        )


def images(n: int = 12, q: int = 5, size: int = 24, share: float = 0.3) -> tuple[Tensor, Tensor]:
    """Random images [n, 3, size, size] and labels [n, q]."""
    return torch.randn(n, 3, size, size), (torch.rand(n, q) < share).float()


def small(name: str, Y: Tensor, **hparams: Any) -> ImageModel:
    """An image model with a small head on a small backbone."""
    return make_model(name, 3, Y, **{"backbone": TinyNet(), **SMALL[name], **hparams})


def head(name: str, Y: Tensor, channels: int = 8, **hparams: Any) -> ImageModel:
    """A small head alone, for feature maps [B, channels, h, w]."""
    return make_model(name, channels, Y, **{"backbone": "identity", **SMALL[name], **hparams})
