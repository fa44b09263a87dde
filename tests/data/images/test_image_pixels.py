"""Pixels: every mode becomes RGB, upright; broken images are named or left out."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from image_makers import jpeg, make_csv, make_voc, picture, put
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader

import d2ace
from d2ace._util.torchvision import torchvision
from d2ace.data import DataError, DataWarning
from d2ace.data.images import (
    check_images,
    evaluation_transform,
    image_dataset,
    load_images,
    read_image,
    train_transform,
)
from d2ace.data.images.decode import decode


def stored(image: Image.Image, form: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def pixels(content: bytes) -> np.ndarray:
    image = decode(content, "x")
    assert image.mode == "RGB"
    return np.asarray(image).astype(int)


RGB = np.asarray(picture()).astype(int)
GREY = np.asarray(picture(mode="L")).astype(int)


def test_lossless_colours_come_through() -> None:
    for form in ("PNG", "BMP", "TIFF", "PPM"):
        assert (pixels(stored(picture(), form)) == RGB).all(), form
    assert (pixels(stored(picture(mode="RGBA"), "PNG")) == RGB).all()


def test_grey_scale_has_three_equal_channels() -> None:
    for mode in ("L", "LA"):
        got = pixels(stored(picture(mode=mode), "PNG"))
        assert (got == GREY[..., None]).all(), mode
    assert np.abs(pixels(jpeg(picture(mode="L"))) - GREY[..., None]).max() <= 3


def test_sixteen_bits_are_scaled_not_cut_off() -> None:
    deep = Image.fromarray((GREY * 257).astype(np.uint16))
    for form in ("PNG", "TIFF"):
        assert (pixels(stored(deep, form)) == GREY[..., None]).all(), form


def test_palettes_with_and_without_transparency() -> None:
    paletted = picture().quantize(64)
    expected = np.asarray(paletted.convert("RGB")).astype(int)
    assert (pixels(stored(paletted, "PNG")) == expected).all()
    assert (pixels(stored(paletted, "PNG", transparency=bytes(range(64)))) == expected).all()
    assert (pixels(stored(paletted, "GIF")) == expected).all()


def test_cmyk_jpeg() -> None:
    assert np.abs(pixels(jpeg(picture(mode="CMYK"))) - RGB).max() <= 6


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_honoured(orientation: int) -> None:
    turned = {
        1: RGB, 2: RGB[:, ::-1], 3: RGB[::-1, ::-1], 4: RGB[::-1],
        5: RGB.transpose(1, 0, 2), 6: np.rot90(RGB, -1), 7: np.rot90(RGB, 2).transpose(1, 0, 2),
        8: np.rot90(RGB),
    }  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    got = pixels(stored(picture(), "PNG", exif=exif))
    assert got.shape == turned[orientation].shape
    assert (got == turned[orientation]).all()


def test_damaged_exif_does_not_spoil_the_picture() -> None:
    content = jpeg(picture(), exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    with pytest.warns(UserWarning, match="Corrupt EXIF"):  # by Pillow
        assert pixels(content).shape == RGB.shape


def png_of_size(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = b""
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(b"\0")), (b"IEND", b"")):
        body += (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (jpeg(picture(size=(64, 64)))[:700], "broken image .*truncated"),
        (b"", "broken image"),
        (b"not an image at all", "broken image .no known format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no known format"),
        (png_of_size(9000, 9000), "has 9000 x 9000 pixels"),
        (png_of_size(60000, 60000), "far too large"),
        (stored(picture(mode="F"), "TIFF"), "fractions"),
    ],
)
def test_images_that_cannot_be_decoded_are_refused_with_their_path(
    content: bytes, message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        decode(content, "folder/a.jpg")
    assert str(caught.value).startswith("folder/a.jpg: ")


@pytest.fixture
def flawed(tmp_path: Path) -> Path:
    """Five images, of which the second is cut short, the third missing and the fifth text."""
    text = "image,one,two\n" + "".join(f"{name}.jpg,1,{k % 2}\n" for k, name in enumerate("abcde"))
    make_csv(tmp_path, text, [f"{name}.jpg" for name in "abde"])
    put(tmp_path / "b.jpg", (tmp_path / "b.jpg").read_bytes()[:500])
    put(tmp_path / "e.jpg", "hello")
    return tmp_path


def test_broken_images_are_left_out_on_request_with_a_count(flawed: Path) -> None:
    with pytest.raises(DataError, match=r"c\.jpg: no such image;"):
        load_images("csv", flawed)
    with pytest.warns(DataWarning, match=r"3 of 5 images .*b\.jpg, .*c\.jpg, .*e\.jpg$"):
        data = load_images("csv", flawed, on_broken="skip")
    assert data.files == ("a.jpg", "d.jpg")
    assert data.Y.toarray().tolist() == [[1, 0], [1, 1]]
    assert check_images(data).tolist() == []


def test_a_broken_image_stops_the_loader_with_its_path(flawed: Path) -> None:
    put(flawed / "c.jpg", jpeg(picture()))
    data = load_images("csv", flawed)
    assert check_images(data).tolist() == [1, 4]
    loader = DataLoader(image_dataset(data, [0, 1]), num_workers=1)
    with pytest.raises(DataError, match=r"b\.jpg: is a broken image"):
        list(loader)


def test_all_broken_is_an_error(flawed: Path) -> None:
    for name in "ad":
        put(flawed / f"{name}.jpg", "hello")
    with pytest.raises(DataError, match="all 5 images are missing or broken"):
        load_images("csv", flawed, on_broken="skip")


def test_items_are_the_rows_asked_for(tmp_path: Path) -> None:
    make_voc(tmp_path, {"000005": [("dog", 0)], "000007": [("cat", 0), ("cow", 0)]})
    data = load_images("voc2007", tmp_path)
    dataset = image_dataset(data, [2, 1])
    image, labels = dataset[1]
    assert len(dataset) == 2
    assert (image.dtype, image.shape, labels.dtype) == (torch.uint8, (3, 16, 24), torch.float32)
    assert (image.permute(1, 2, 0).numpy() == np.asarray(read_image(data, 1))).all()
    assert [data.label_names[j] for j in labels.nonzero().ravel()] == ["cat", "cow"]
    assert (dataset.labels != data.Y[[2, 1]]).nnz == 0
    index, first, _ = d2ace.IndexedDataset(dataset)[0]
    assert index == 0
    assert (first == dataset[0][0]).all()
    assert len(image_dataset(data, data.splits == 1)) == 1
    for rows, message in (
        ([3], "go from 3 to 3, but there are 3 rows"),
        ([-1], "go from -1"),
        ([0.5], "row numbers"),
        ([True, False], "mask of 3 rows"),
    ):
        with pytest.raises(DataError, match=message):
            image_dataset(data, rows)  # type: ignore[arg-type]


def loaded(dataset: object, workers: int, start: str | None = None) -> torch.Tensor:
    loader = DataLoader(dataset, batch_size=2, num_workers=workers, multiprocessing_context=start)  # type: ignore[arg-type,var-annotated]
    return torch.cat([images for images, _ in loader])


def test_augmentation_depends_on_seed_epoch_and_row_alone(tmp_path: Path) -> None:
    make_voc(tmp_path, {f"00000{k}": [("dog", 0)] for k in range(5)})
    data = load_images("voc2007", tmp_path)
    dataset = image_dataset(data, None, train_transform(32), seed=1)
    first = loaded(dataset, 0)
    assert (loaded(dataset, 2, "fork") == first).all()
    assert (dataset[3][0] == first[3]).all()
    assert (image_dataset(data, [3], train_transform(32), seed=1)[0][0] == first[3]).all()
    assert not (image_dataset(data, None, train_transform(32), seed=2)[3][0] == first[3]).all()
    before = torch.random.get_rng_state()
    dataset[0]
    assert (torch.random.get_rng_state() == before).all()


def test_workers_that_stay_see_the_next_epoch(tmp_path: Path) -> None:
    make_voc(tmp_path, {f"00000{k}": [("dog", 0)] for k in range(5)})
    dataset = image_dataset(load_images("voc2007", tmp_path), None, train_transform(32))
    loader = DataLoader(dataset, batch_size=6, num_workers=1, persistent_workers=True)
    seen = []
    for epoch in (1, 2, 1):
        dataset.set_epoch(epoch)
        seen.append(next(iter(loader))[0])
    assert (seen[0] == seen[2]).all()
    assert not (seen[0] == seen[1]).all()


def test_spawned_workers_read_archives_and_load_torchvision_transforms(data_root: Path) -> None:
    archive = data_root / "images" / "voc2007_sample" / "voc2007_sample.zip"
    if not archive.is_file():
        pytest.skip(f"no {archive}")
    data = load_images("voc2007", archive)
    v2 = torchvision().transforms.v2
    to_float = v2.ToDtype(torch.float32, scale=True)
    mine = v2.Compose([v2.Resize([8, 8]), v2.ToImage(), to_float, v2.ToPureTensor()])
    dataset = ConcatDataset(
        [image_dataset(data, range(4), transform) for transform in (mine, evaluation_transform(8))]
    )
    assert (loaded(dataset, 1, "spawn") == loaded(dataset, 0)).all()


def test_forked_workers_do_not_share_the_position_in_an_archive(data_root: Path) -> None:
    archive = data_root / "images" / "corel5k" / "corel5k.zip"
    if not archive.is_file():
        pytest.skip(f"no {archive}")
    dataset = image_dataset(load_images("corel5k-images", archive), range(400))
    dataset[0]  # the archive is open in this process before the workers start
    assert (loaded(dataset, 2, "fork") == loaded(dataset, 0)).all()
