"""Cached feature maps: equal to fresh ones, keyed by content, safe against interruption."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_makers import Backbone, jpeg, make_csv, picture, put
from torch import nn
from torch.utils.data import DataLoader

import d2ace
from d2ace._util.errors import RunError, UserError
from d2ace._util.torchvision import torchvision
from d2ace.data import DataError, DataWarning
from d2ace.data.images import (
    FeatureDataset,
    ImageDataset,
    cache_features,
    evaluation_transform,
    image_dataset,
    load_images,
    train_transform,
)

v2 = torchvision().transforms.v2
N = 40


@pytest.fixture
def root(tmp_path: Path) -> Path:
    text = "image,one,two\n" + "".join(f"{k}.jpg,{k % 2},1\n" for k in range(N))
    return make_csv(tmp_path / "set", text, [f"{k}.jpg" for k in range(N)])


def images(root: Path, size: int = 16) -> ImageDataset:
    return image_dataset(load_images("csv", root), None, evaluation_transform(size))


def fresh(dataset: ImageDataset) -> torch.Tensor:
    with torch.inference_mode():
        return Backbone().eval()(torch.stack([dataset[k][0] for k in range(len(dataset))]))


def folders(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.is_dir() and len(path.name) > 10)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_image_is_reported_in_one_sentence(
    root: Path, tmp_path: Path, workers: int
) -> None:
    os.truncate(root / "7.jpg", 300)
    with pytest.raises(DataError, match=r"^\S*7\.jpg: [^\n]*$"):
        cache_features(Backbone(), images(root), tmp_path / "cache", workers=workers)


def test_maps_are_those_of_the_backbone_in_half_precision(root: Path, tmp_path: Path) -> None:
    dataset, backbone = images(root), Backbone()
    backbone.layers[1].eval()  # a part that is frozen stays so, and the rest goes on training
    seen: list[tuple[int, int]] = []
    features = cache_features(
        backbone, dataset, tmp_path / "cache", batch_size=16, progress=lambda *at: seen.append(at)
    )
    expected = fresh(dataset)
    assert (features.maps.dtype, features.maps.shape) == (np.float16, (N, 6, 4, 4))
    assert isinstance(features.maps, np.memmap)
    assert (torch.tensor(features.maps) == expected.half()).all()
    assert np.allclose(features.pooled, expected.mean((2, 3)), atol=1e-6)
    assert features.pooled.dtype == np.float32
    index = [7, 0, 39, 7]
    assert (features.batch(index) == expected[index].half().float()).all()
    assert (features.batch(torch.tensor(index)) == features.batch(np.array(index))).all()
    assert seen == [(0, N), (16, N), (32, N), (N, N)]
    assert [part.training for part in backbone.layers] == [True, False, True]


def test_the_second_time_nothing_is_computed(root: Path, tmp_path: Path) -> None:
    first = cache_features(Backbone(), images(root), tmp_path / "cache")
    again = Backbone()
    second = cache_features(again, images(root), tmp_path / "cache", batch_size=7)
    assert again.seen == 0
    assert first.folder == second.folder


def test_a_change_of_weights_transform_images_or_rows_is_another_key(
    root: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cache_features(Backbone(), images(root), cache)
    changed = Backbone()
    with torch.no_grad():
        changed.layers[1].running_mean[0] += 1e-3  # a buffer counts as much as a weight
    cache_features(changed, images(root), cache)
    cache_features(nn.Sequential(Backbone(), nn.Identity()), images(root), cache)
    cache_features(Backbone(), images(root, size=20), cache)
    cache_features(
        Backbone(), image_dataset(images(root).data, [1, 0], evaluation_transform(16)), cache
    )
    assert len(folders(cache)) == 5
    put(root / "3.jpg", jpeg(picture(99)))
    features = cache_features(Backbone(), images(root), cache)
    assert len(folders(cache)) == 6
    assert (torch.tensor(features.maps) == fresh(images(root)).half()).all()


def test_files_that_only_moved_are_not_computed_again(root: Path, tmp_path: Path) -> None:
    cache_features(Backbone(), images(root), tmp_path / "cache")
    moved = root.rename(tmp_path / "elsewhere")
    os.utime(moved / "3.jpg", (1, 1))
    backbone = Backbone()
    cache_features(backbone, images(moved), tmp_path / "cache")
    assert backbone.seen == 0


def build(root: Path, cache: Path, die_after: int | None = None) -> None:
    cache_features(Backbone(die_after=die_after), images(root), cache, batch_size=1)


def started(*arguments: object) -> BaseProcess:
    """`build` in a process of its own."""
    process = multiprocessing.get_context("fork").Process(target=build, args=arguments)
    process.start()
    return process


def test_a_killed_build_goes_on_and_is_never_taken_for_complete(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    process = started(root, cache, 21)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (partial,) = folders(cache)
    assert partial.endswith(".partial")
    backbone = Backbone()
    features = cache_features(backbone, images(root), cache, batch_size=5)
    assert backbone.seen == N - 16  # the first 16 batches of one image had been noted
    assert np.allclose(features.maps, fresh(images(root)), atol=2e-3)
    assert folders(cache) == [features.folder.name]


@pytest.mark.parametrize("damage", ["progress", "short", "note"])
def test_an_unusable_partial_build_starts_over(root: Path, tmp_path: Path, damage: str) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(KeyboardInterrupt):
        cache_features(Backbone(), images(root), cache, batch_size=1, progress=interrupt_at(20))
    partial = cache / folders(cache)[0]
    if damage == "progress":
        (partial / "progress.json").unlink()
    elif damage == "note":
        put(partial / "progress.json", "{")
    else:
        os.truncate(partial / "maps.npy", 200)
    backbone = Backbone()
    features = cache_features(backbone, images(root), cache)
    assert backbone.seen == N
    assert (torch.tensor(features.maps) == fresh(images(root)).half()).all()


def interrupt_at(limit: int):  # type: ignore[no-untyped-def]
    def progress(done: int, total: int) -> None:
        if done >= limit:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("file", ["maps.npy", "pooled.npy", "about.json"])
def test_a_damaged_cache_is_built_again(root: Path, tmp_path: Path, file: str) -> None:
    features = cache_features(Backbone(), images(root), tmp_path / "cache")
    path = features.folder / file
    os.truncate(path, path.stat().st_size // 2)
    with pytest.warns(DataWarning, match=f"{features.folder}: .* damaged, and are computed again"):
        again = cache_features(Backbone(), images(root), tmp_path / "cache")
    assert (torch.tensor(again.maps) == fresh(images(root)).half()).all()


@pytest.mark.parametrize("file", ["maps.npy", "pooled.npy", "about.json"])
def test_no_flipped_byte_is_ever_used(root: Path, tmp_path: Path, file: str) -> None:
    cache, expected = tmp_path / "cache", fresh(images(root))
    path = cache_features(Backbone(), images(root), cache).folder / file
    good = path.read_bytes()
    for at in np.linspace(0, len(good) - 1, 9).astype(int).tolist():
        path.write_bytes(good[:at] + bytes([good[at] ^ 64]) + good[at + 1 :])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            again = cache_features(Backbone(), images(root), cache)
        assert (torch.tensor(again.maps) == expected.half()).all()
        assert np.allclose(again.pooled, expected.mean((2, 3)), atol=1e-6)
        assert path.read_bytes() == good or not said  # padding of a header holds nothing


def test_damage_to_a_partial_build_is_not_built_upon(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(KeyboardInterrupt):
        cache_features(Backbone(), images(root), cache, batch_size=1, progress=interrupt_at(20))
    maps = cache / folders(cache)[0] / "maps.npy"
    content = bytearray(maps.read_bytes())
    content[200] ^= 64  # in the first row, which had been noted
    maps.write_bytes(content)
    backbone = Backbone()
    features = cache_features(backbone, images(root), cache)
    assert backbone.seen == N
    assert (torch.tensor(features.maps) == fresh(images(root)).half()).all()


@pytest.mark.parametrize("where", ["complete", "partial"])
@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_strangers_file_among_the_maps_is_left_alone(
    root: Path, tmp_path: Path, where: str, kind: str
) -> None:
    cache = tmp_path / "cache"
    if where == "complete":
        place = cache_features(Backbone(), images(root), cache).folder
        os.truncate(place / "maps.npy", 200)
    else:
        with pytest.raises(KeyboardInterrupt):
            cache_features(Backbone(), images(root), cache, batch_size=1, progress=interrupt_at(20))
        place = cache / folders(cache)[0]
        (place / "progress.json").write_text("{")
    theirs = place / "notes.txt" if kind == "file" else tmp_path / "theirs" / "maps.npy"
    if kind == "folder":
        theirs = place / "theirs" / "maps.npy"
    put(theirs, "mine")
    if kind == "link":
        place.rename(tmp_path / "moved")
        place.symlink_to(theirs.parent)
    before = sorted(path.name for path in place.iterdir())
    with pytest.raises(RunError, match=rf"{place}: .*d2ace did not write; move it away"):
        cache_features(Backbone(), images(root), cache)
    assert theirs.read_text() == "mine"
    assert sorted(path.name for path in place.iterdir()) == before


def test_damaged_notes_about_the_images_are_made_again(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    features = cache_features(Backbone(), images(root), cache)
    (note,) = (cache / "digests").iterdir()
    good = note.read_bytes()
    for content in (b"", good[:30], b"\xff" * len(good), good[:5] + b"0f"[good[5:6] == b"0" :][:1]
                    + good[6:], b"0" * 64):  # fmt: skip
        note.write_bytes(content)
        backbone = Backbone()
        assert cache_features(backbone, images(root), cache).folder == features.folder
        assert backbone.seen == 0
        assert note.read_bytes() == good
    assert sorted(path.name for path in (cache / "digests").iterdir()) == [note.name]


def test_two_processes_that_want_the_same_maps_do_not_disturb_each_other(
    root: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    both = [started(root, cache) for _ in range(2)]
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    backbone = Backbone()
    features = cache_features(backbone, images(root), cache)
    assert backbone.seen == 0
    assert np.allclose(features.maps, fresh(images(root)), atol=2e-3)


def test_maps_feed_a_loader_with_a_selector(root: Path, tmp_path: Path) -> None:
    dataset = images(root)
    features = cache_features(Backbone(), dataset, tmp_path / "cache")
    rows = np.arange(30)[::-1].copy()
    maps = FeatureDataset(features, dataset.labels, rows)
    selector = d2ace.Random(dataset.labels[rows], batch_size=8, epochs=1)
    loader = DataLoader(
        d2ace.IndexedDataset(maps),
        batch_sampler=selector,
        num_workers=1,
        multiprocessing_context="spawn",
    )
    seen = []
    for index, x, y in loader:
        assert (x == features.batch(rows[index])).all()
        assert (y.numpy() == dataset.labels[rows[index]].toarray()).all()
        seen += index.tolist()
    assert sorted(seen) == list(range(30))


class Loud(nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images * 1e6


class Flat(nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean((2, 3))


class Scale(nn.Module):
    """A setting that neither its repr nor its weights tell."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.factor * images


def steps(*more: Any, dtype: torch.dtype = torch.float32) -> Any:
    return v2.Compose([v2.Resize((16, 16)), v2.ToImage(), v2.ToDtype(dtype, scale=True), *more])


def test_settings_of_transforms_and_backbones_tell_maps_apart(root: Path, tmp_path: Path) -> None:
    data, cache = load_images("csv", root), tmp_path / "cache"
    centred = v2.Normalize([0.5] * 3, [0.5] * 3)
    for transform in (steps(), steps(centred), steps(dtype=torch.float64), steps()):
        dataset = image_dataset(data, None, transform)
        for module in (Scale(1.0), Scale(2.0)):
            features = cache_features(module, dataset, cache)
            expected = torch.stack([module(dataset[row][0]) for row in (0, 7)])
            assert (features.batch([0, 7]) == expected.half().float()).all()
    assert len(folders(cache)) == 6


@pytest.mark.parametrize("value", [-1.0, 2.0, 0.5, np.nan])
def test_labels_of_features_are_zeros_and_ones(root: Path, tmp_path: Path, value: float) -> None:
    features = cache_features(Backbone(), images(root), tmp_path / "cache")
    labels = np.ones((N, 2))
    labels[3, 1] = value
    for given in (labels, torch.tensor(labels)):
        with pytest.raises(DataError, match=rf"\[3, 1\] is {value}, but labels must be 0 or 1"):
            FeatureDataset(features, given)
    assert FeatureDataset(features, torch.ones(N, 2))[0][1].tolist() == [1, 1]


def test_rows_of_features_may_be_a_mask(root: Path, tmp_path: Path) -> None:
    features = cache_features(Backbone(), images(root), tmp_path / "cache")
    labels = np.arange(2 * N).reshape(N, 2) % 2
    mask = np.arange(N) % 8 == 3
    chosen = FeatureDataset(features, labels, mask)
    assert len(chosen) == 5
    assert (chosen[1][0] == features.batch([11])[0]).all()
    with pytest.raises(DataError, match="mask of 40 rows"):
        FeatureDataset(features, labels, mask[:-1])


def test_features_that_cannot_be_cached_are_refused(root: Path, tmp_path: Path) -> None:
    cache, data = tmp_path / "cache", load_images("csv", root)
    for module, dataset, kind, message in (
        (Backbone(), image_dataset(data, None, train_transform(16)), UserError, "draws at random"),
        (Backbone(), image_dataset(data), UserError, "does not say what it does"),
        (Backbone(), image_dataset(data, None, lambda x: x), UserError, "does not say"),
        (Backbone(), image_dataset(data, None, Scale(2)), UserError, "does not say"),
        (Backbone(), image_dataset(data, None, steps(v2.Lambda(abs))), UserError, "does not say"),
        (
            Backbone(),
            image_dataset(data, None, steps(v2.RandomHorizontalFlip())),
            UserError,
            "draw",
        ),
        (Backbone(), image_dataset(data, None, v2.RandomApply([steps()])), UserError, "draw"),
        (Backbone(), image_dataset(data, [], evaluation_transform(16)), UserError, "no images"),
        (Flat(), images(root), UserError, r"gives \(32, 3\) for 32 images"),
        (Loud(), images(root), RunError, r"0\.jpg: its feature map .* not finite in float16"),
    ):
        with pytest.raises(kind, match=message):
            cache_features(module, dataset, cache)
    put(tmp_path / "file", "")
    with pytest.raises(RunError, match="cannot be read or written"):
        cache_features(Backbone(), images(root), tmp_path / "file")
    features = cache_features(Backbone(), images(root), cache)
    with pytest.raises(UserError, match="labels has 3 rows, and the cache 40"):
        FeatureDataset(features, np.ones((3, 2)))
