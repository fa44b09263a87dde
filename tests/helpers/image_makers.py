"""Small image datasets in the layouts that are read, and a small backbone."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn


def picture(seed: int = 0, size: tuple[int, int] = (24, 16), mode: str = "RGB") -> Image.Image:
    """Smooth colours, so that JPEG keeps them nearly as they are."""
    width, height = size
    across, down = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    base = np.random.default_rng(seed).integers(0, 120, 3)
    pixels = base + 100 * across[..., None] + np.array([0, 20, 30]) * down[..., None]
    return Image.fromarray(pixels.astype(np.uint8)).convert(mode)


def jpeg(image: Image.Image, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=95, **options)
    return stream.getvalue()


def put(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


COLOURS = ("red", "green", "blue")


def make_photos(root: Path, count: int, tested: int) -> Path:
    """Images whose colours are their labels, with labels.csv; the last ones are to test on."""
    rng = np.random.default_rng(0)
    lines = ["image,split," + ",".join(COLOURS)]
    for number in range(count):
        labels = rng.integers(0, 2, 3)
        pixels = 40 + 150 * labels + rng.integers(0, 40, (20, 28, 3))
        put(root / f"{number:02d}.jpg", jpeg(Image.fromarray(pixels.astype(np.uint8))))
        split = "train" if number < count - tested else "test"
        lines.append(f"{number:02d}.jpg,{split}," + ",".join(map(str, labels)))
    put(root / "labels.csv", "\n".join(lines) + "\n")
    return root


def annotation(objects: Iterable[tuple[str, int]]) -> str:
    """VOC's XML for objects given as (class, difficult)."""
    found = "".join(
        f"<object><name>{name}</name><difficult>{difficult}</difficult>"
        "<part><name>head</name></part><bndbox><xmin>1</xmin></bndbox></object>"
        for name, difficult in objects
    )
    return f"<annotation><filename>x.jpg</filename>{found}</annotation>"


def make_voc(
    root: Path, trainval: dict[str, Sequence[tuple[str, int]]], test: Sequence[str] = ("000900",)
) -> Path:
    """A development kit; the objects of the test images are a cat each."""
    base = root / "VOCdevkit" / "VOC2007"
    everything = trainval | {name: [("cat", 0)] for name in test}
    for seed, (name, objects) in enumerate(everything.items()):
        put(base / "Annotations" / f"{name}.xml", annotation(objects))
        put(base / "JPEGImages" / f"{name}.jpg", jpeg(picture(seed)))
    put(base / "ImageSets" / "Main" / "trainval.txt", "\n".join(trainval) + "\n")
    put(base / "ImageSets" / "Main" / "test.txt", "\n".join(test) + "\n")
    return base


def coco_json(**changes: Any) -> dict[str, Any]:
    """Three images: a dog and a crowd of cats, a cat twice, nothing; ids in no order."""
    return {
        "categories": [{"id": 18, "name": "dog"}, {"id": 3, "name": "cat"}],
        "images": [
            {"id": 7, "file_name": "b.jpg"},
            {"id": 5, "file_name": "a.jpg"},
            {"id": 9, "file_name": "c d.jpg"},
        ],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 18, "iscrowd": 0, "segmentation": [[1, 2]]},
            {"id": 2, "image_id": 7, "category_id": 3, "iscrowd": 1, "segmentation": {"size": []}},
            {"id": 3, "image_id": 5, "category_id": 3},
            {"id": 4, "image_id": 5, "category_id": 3},
        ],
    } | changes


def make_coco(
    root: Path, content: Any, folder: str = "train2014", split: str = "train2014"
) -> Path:
    text = content if isinstance(content, str) else json.dumps(content)
    put(root / "annotations" / f"instances_{split}.json", text)
    for seed, name in enumerate(("a.jpg", "b.jpg", "c d.jpg")):
        put(root / folder / name, jpeg(picture(seed)))
    return root


def make_csv(root: Path, text: str, images: Iterable[str] = ("a.jpg", "b.jpg", "c.jpg")) -> Path:
    put(root / "labels.csv", text)
    for seed, name in enumerate(images):
        put(root / name, jpeg(picture(seed)))
    return root


class Backbone(nn.Module):
    """A convolution with BatchNorm; counts images, and can kill its own process after some."""

    def __init__(self, channels: int = 6, die_after: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(
            nn.Conv2d(3, channels, 3, stride=4, padding=1), nn.BatchNorm2d(channels), nn.ReLU()
        )
        self._seen, self._die_after = 0, die_after

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self._seen += len(images)
        if self._die_after is not None and self._seen > self._die_after:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layers(images)

    @property
    def seen(self) -> int:
        """Images so far; no setting, which would be part of the key of cached features."""
        return self._seen


def first_lines_until(process: Any, start: str) -> None:
    """Read what a command says on its error output up to a line that begins so."""
    for line in process.stderr:
        if line.startswith(start):
            return
    raise AssertionError(f"the command ended before it said {start!r}")
