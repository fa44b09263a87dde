"""What the guide to images says in passing."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_makers import Backbone, make_photos, put
from PIL import Image
from torch.utils.data import DataLoader

from d2ace.data import DataError
from d2ace.data.images import (
    cache_features,
    evaluation_transform,
    image_dataset,
    load_images,
    read_image,
)


def small(picture: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(picture.resize((3, 2)))).float().permute(2, 0, 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_any_function_from_a_picture_to_a_tensor_is_a_transform(
    tmp_path: Path, workers: int
) -> None:
    data = load_images("csv", make_photos(tmp_path, 6, 2))
    dataset = image_dataset(data, None, small)
    images = torch.cat([x for x, _ in DataLoader(dataset, batch_size=4, num_workers=workers)])
    assert images.shape == (6, 3, 2, 3)
    assert torch.equal(images[5], small(read_image(data, 5)))


def test_no_pixel_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    root = make_photos(tmp_path, 6, 2)
    for number in range(6):
        put(root / f"{number:02d}.jpg", "no picture at all")
    data = load_images("csv", root)
    dataset = image_dataset(data, None, small)
    assert (data.n, len(dataset), data.Y.shape) == (6, 6, (6, 3))
    with pytest.raises(DataError, match=r"03\.jpg"):
        dataset[3]


def build(pictures: Any, cache: Path, note: Path) -> None:
    backbone = Backbone()
    cache_features(backbone, pictures, cache, batch_size=8)
    note.write_text(str(backbone.seen))


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="needs to fork processes"
)
def test_two_processes_compute_the_same_maps_once(tmp_path: Path) -> None:
    data = load_images("csv", make_photos(tmp_path / "photos", 30, 6))
    pictures = image_dataset(data, None, evaluation_transform(16))
    pictures[0]  # what that imports, both have then
    notes = [tmp_path / "one", tmp_path / "two"]
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=build, args=(pictures, tmp_path / "cache", n)) for n in notes]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert sum(int(note.read_text()) for note in notes) == 30
