"""The paper's preprocessing (models.md, section 5) with torchvision's v2 transforms."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import torch

from d2ace._util.errors import UserError
from d2ace._util.torchvision import torchvision

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation that torchvision's backbones expect."""
EFFICIENTNET_LITE = ((127 / 255,) * 3, (128 / 255,) * 3)
"""Mean and standard deviation of EfficientNet-Lite."""

RESIZED = 512
CROPPED = (512, 448, 384, 320, 256)
FINAL = 448


@dataclass(frozen=True)
class Preprocessing:
    """A Pillow image made into a normalised float tensor [3, H, W].

    A value, not a torchvision object: it can be compared, described, and sent to a spawned worker.
    """

    training: bool
    image_size: tuple[int, int] = (FINAL, FINAL)
    mean: tuple[float, ...] = IMAGENET[0]
    std: tuple[float, ...] = IMAGENET[1]

    def __call__(self, image: Any) -> torch.Tensor:
        """The image, transformed; draws from torch's generator when ``training``."""
        return _composed(self)(image)

    @property
    def random(self) -> bool:
        """Whether one image gives different tensors."""
        return self.training

    def describe(self) -> dict[str, Any]:
        """Everything that decides the result, as JSON holds it."""
        return {"preprocessing": 1} | asdict(self)


def train_transform(
    image_size: int | tuple[int, int] = FINAL,
    *,
    mean: tuple[float, ...] = IMAGENET[0],
    std: tuple[float, ...] = IMAGENET[1],
) -> Preprocessing:
    """Resize to 512 x 512, crop a side of 512, 448, 384, 320 or 256, resize to 448 x 448, flip.

    Resizing is bicubic and does not keep the aspect ratio; half of the images are flipped.
    Another ``image_size`` (a side, or height and width) scales all these sizes with it.
    """
    return Preprocessing(True, *_checked(image_size, mean, std))


def evaluation_transform(
    image_size: int | tuple[int, int] = FINAL,
    *,
    mean: tuple[float, ...] = IMAGENET[0],
    std: tuple[float, ...] = IMAGENET[1],
) -> Preprocessing:
    """Resize to ``image_size`` (bicubic, aspect ratio not kept) and nothing else."""
    return Preprocessing(False, *_checked(image_size, mean, std))


def _checked(
    image_size: int | tuple[int, int], mean: tuple[float, ...], std: tuple[float, ...]
) -> tuple[tuple[int, int], tuple[float, ...], tuple[float, ...]]:
    size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
    if len(size) != 2 or not all(isinstance(side, int) and 8 <= side <= 8192 for side in size):
        raise UserError(
            f"image_size={image_size!r} must be a side, or height and width, of 8 to 8192"
        )
    if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
        raise UserError(f"mean={mean!r} and std={std!r} must be three numbers each, std positive")
    return (size[0], size[1]), tuple(map(float, mean)), tuple(map(float, std))


@lru_cache(maxsize=16)
def _composed(wanted: Preprocessing) -> Any:
    v2 = torchvision().transforms.v2
    cubic = v2.InterpolationMode.BICUBIC
    steps: list[Any] = []
    if wanted.training:
        steps = [
            v2.Resize(_scaled(wanted.image_size, RESIZED), interpolation=cubic),
            v2.RandomChoice([v2.RandomCrop(_scaled(wanted.image_size, side)) for side in CROPPED]),
            v2.Resize(wanted.image_size, interpolation=cubic),
            v2.RandomHorizontalFlip(0.5),
        ]
    else:
        steps = [v2.Resize(wanted.image_size, interpolation=cubic)]
    steps += [
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(list(wanted.mean), list(wanted.std)),
        v2.ToPureTensor(),
    ]
    return v2.Compose(steps)


def _scaled(image_size: tuple[int, int], side: int) -> list[int]:
    return [max(1, round(length * side / FINAL)) for length in image_size]
