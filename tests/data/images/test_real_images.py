"""Real images through readers and transforms, and labels against an independent source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from d2ace.data import MultiLabelData, load
from d2ace.data.images import (
    EFFICIENTNET_LITE,
    ImageData,
    check_images,
    evaluation_transform,
    image_dataset,
    load_images,
    read_image,
    train_transform,
)


@pytest.fixture(scope="module")
def corel(data_root: Path) -> ImageData:
    archive = data_root / "images" / "corel5k" / "corel5k.zip"
    if not archive.is_file():
        pytest.skip(f"no {archive}")
    return load_images("corel5k-images", archive)


@pytest.fixture(scope="module")
def coco128(data_root: Path) -> Path:
    if not (data_root / "coco128").is_dir():
        pytest.skip(f"no {data_root / 'coco128'}")
    return data_root / "coco128"


@pytest.fixture(scope="module")
def voc(data_root: Path) -> ImageData:
    archive = data_root / "images" / "voc2007_sample" / "voc2007_sample.zip"
    if not archive.is_file():
        pytest.skip(f"no {archive}")
    return load_images("voc2007", archive)


def test_corel5k_is_the_tabular_dataset_row_by_row(
    corel: ImageData, real: Callable[[str], MultiLabelData], data_root: Path
) -> None:
    tabular = real("corel5k")
    folder = data_root / "corel5k"
    names = [tuple(part.label_names) for part in (corel, tabular)]
    assert names[0] == names[1]
    for split, file, left_out in (
        ("train", "Corel5k-train-sparse.arff.gz", []),
        ("test", "Corel5k-test-sparse.arff", [298]),
    ):
        labels = load(folder / file, cache=False).Y
        kept = np.delete(np.arange(labels.shape[0]), left_out)
        assert (corel.Y[corel.rows(split)] != labels[kept]).nnz == 0


def test_corel5k_figures(corel: ImageData) -> None:
    train = corel.Y[corel.rows("train")]
    frequency = np.asarray(train.sum(0, dtype=np.int64)).ravel()
    assert (corel.n, corel.q, len(corel.rows("test"))) == (4999, 374, 499)
    assert dict(zip(corel.label_names, frequency, strict=True))["water"] == 1004
    assert corel.with_labels(frequency >= 50).q == 74
    assert (corel.Y.data == 1).all()
    assert check_images(corel.subset(np.arange(0, 4999, 50))).size == 0


def test_coco_and_yolo_labels_agree_on_the_same_images(coco128: Path) -> None:
    coco = load_images("coco", coco128, "train2017")
    yolo = load_images("yolo", coco128, "train2017")
    assert coco.label_names == yolo.label_names
    order = [coco.files.index(file) for file in yolo.files]
    assert sorted(order) == list(range(128))
    assert (coco.Y[order] != yolo.Y).nnz == 0
    empty = [Path(coco.files[row]).stem for row in np.flatnonzero(np.diff(coco.Y.indptr) == 0)]
    assert sorted(empty) == ["000000000250", "000000000508"]
    assert check_images(coco).size == 0


def test_voc_sample(voc: ImageData) -> None:
    frequency = dict(zip(voc.label_names, np.asarray(voc.Y.sum(0)).ravel(), strict=True))
    assert voc.cardinality == 1.5
    assert {name: count for name, count in frequency.items() if count > 1} == {
        "person": 4, "chair": 4, "car": 3, "horse": 2, "aeroplane": 2,
    }  # fmt: skip
    assert (voc.rows("trainval").size, voc.rows("test").size) == (7, 7)


def test_evaluation_only_resizes_and_normalises(voc: ImageData) -> None:
    transform = evaluation_transform(448)
    image = read_image(voc, 0)
    resized = np.asarray(image.resize((448, 448), 3)) / 255  # 3: bicubic
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    expected = torch.from_numpy((resized - mean) / std).permute(2, 0, 1).float()
    got = transform(image)
    assert (got.dtype, got.shape) == (torch.float32, (3, 448, 448))
    assert type(got) is torch.Tensor
    assert torch.allclose(got, expected, atol=1e-5)
    assert (transform(image) == got).all()


def test_training_crops_flips_and_keeps_the_size(voc: ImageData) -> None:
    dataset = image_dataset(voc, [0] * 12, train_transform(448))
    versions = []
    for epoch in range(6):
        dataset.set_epoch(epoch)
        versions.append(dataset[0][0])
    assert all(image.shape == (3, 448, 448) for image in versions)
    assert len({round(float(image.sum())) for image in versions}) >= 3  # a fifth is not cropped


def test_the_crops_are_those_of_the_paper() -> None:
    """An image whose two channels are the coordinates tells where each crop was taken."""
    from PIL import Image

    side = 512
    across, down = np.meshgrid(np.arange(side), np.arange(side))
    pixels = np.stack([across // 2, down // 2, across * 0], -1).astype(np.uint8)
    transform = train_transform(448, mean=(0, 0, 0), std=(1, 1, 1))
    torch.manual_seed(0)
    spans, flips = [], 0
    for _ in range(60):
        red, green, _ = transform(Image.fromarray(pixels)) * 255 * 2
        flips += bool(red[0, 0] > red[0, -1])
        spans.append((float(red.max() - red.min()), float(green.max() - green.min())))
        assert abs(spans[-1][0] - spans[-1][1]) < 8  # square
    sides = {min((256, 320, 384, 448, 512), key=lambda s: abs(s - span)) for span, _ in spans}
    assert all(min(abs(s - span) for s in sides) < 8 for span, _ in spans)
    assert sides == {256, 320, 384, 448, 512}
    assert 15 < flips < 45


def test_sizes_and_constants_of_another_backbone(corel: ImageData) -> None:
    mean, std = EFFICIENTNET_LITE
    for make in (train_transform, evaluation_transform):
        image = make((128, 192), mean=mean, std=std)(read_image(corel, 0))
        assert image.shape == (3, 128, 192)
    raw = torch.from_numpy(np.array(read_image(corel, 0))).permute(2, 0, 1)
    assert torch.allclose(
        image, (raw.float() - 127) / 128, atol=1e-6
    )  # the size that it has already


def test_real_batches_in_loader_workers(coco128: Path) -> None:
    data = load_images("coco", coco128, "train2017")
    dataset = image_dataset(data, None, evaluation_transform(64))
    loader = DataLoader(dataset, batch_size=32, num_workers=2)
    images, labels = zip(*loader, strict=True)
    assert torch.cat(images).shape == (128, 3, 64, 64)
    assert torch.isfinite(torch.cat(images)).all()
    assert (torch.cat(labels).numpy() == data.Y.toarray()).all()
