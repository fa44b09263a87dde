"""A transform of one's own is any function from a picture to a tensor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from image_makers import make_photos, put
from PIL import Image
from torch.utils.data import DataLoader

from d2ace.data import DataError
from d2ace.data.images import image_dataset, load_images, read_image


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
