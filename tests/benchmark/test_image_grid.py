"""Grids over images: run, stored, reported like any other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from image_makers import make_photos

from d2ace._util.errors import UserError
from d2ace.benchmark.plan.checks import check_unchanged
from d2ace.benchmark.plan.grid import load_grid
from d2ace.benchmark.plan.specs import RunSpec

GRID = """
datasets = [{ name = "csv", root = "photos", image_size = 32, cache_features = true }]
selectors = ["random", "d2ace"]
seeds = [0, 1]
epochs = 3
warmup = 1
batch_size = 8
min_positives = 2
learning_rate = 0.003

[[models]]
name = "image_mlp"
options = { backbone = "efficientnet_lite0", freeze = "backbone", h = 16 }

[[models]]
name = "ml_gcn"
options = { backbone = "efficientnet_lite0", freeze = "backbone", h = 16 }
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images and a grid file, and the grid run in it."""
    folder = tmp_path_factory.mktemp("grid")
    make_photos(folder / "photos", 48, 16)
    (folder / "images.toml").write_text(GRID)
    done = d2ace(folder, "bench", "images.toml", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    return folder


def d2ace(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "d2ace", *words],
        cwd=folder,
        env=os.environ | {"D2ACE_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_run_is_made_once(place: Path) -> None:
    again = d2ace(place, "bench", "images.toml", "--dry-run", "--json")
    assert again.returncode == 0, again.stderr
    told = json.loads(again.stdout)
    assert [run["status"] for run in told["runs"]] == ["finished"] * 8
    assert len(list((place / "cache" / "features").glob("*/maps.npy"))) == 1


def test_the_report_shows_them(place: Path) -> None:
    done = d2ace(place, "report", "runs.db", "-o", "report")
    assert done.returncode == 0, done.stderr
    page = (place / "report" / "index.html").read_text(encoding="utf-8")
    for words in ("photos", "mAP", "ML-GCN (frozen efficientnet_lite0, h=16)", "D2ACE"):
        assert words in page, words


def test_a_dataset_of_images_needs_a_model_for_images(place: Path) -> None:
    wrong = d2ace(place, "bench", "--datasets", "csv", "--models", "mlp", "--set", "root=photos")
    assert wrong.returncode == 2
    assert "csv is images, but mlp is a model for tables" in wrong.stderr


@pytest.mark.slow
def test_images_that_change_are_new_work(place: Path) -> None:
    """Moved, they are the same; with another label they are not."""
    moved = place / "moved"
    moved.mkdir()
    (place / "photos").rename(moved / "photos")
    (moved / "images.toml").write_text(GRID)

    def pending() -> int:
        told = d2ace(moved, "bench", "images.toml", "--db", "../runs.db", "--dry-run", "--json")
        assert told.returncode == 0, told.stderr
        return int(json.loads(told.stdout)["pending"])

    assert pending() == 0
    labels = moved / "photos" / "labels.csv"
    first, row, *rest = labels.read_text().splitlines()
    changed = row[:-1] + ("0" if row.endswith("1") else "1")
    labels.write_text("\n".join([first, changed, *rest]) + "\n")
    assert pending() == 8


def test_files_of_a_model_are_sought_beside_the_grid(tmp_path: Path) -> None:
    make_photos(tmp_path / "photos", 8, 2)
    file = tmp_path / "images.toml"
    file.write_text(GRID)
    options = {"freeze": "backbone", "label_vectors": "words.csv"}
    model = {"name": "ml_gcn", "options": options}

    def chosen() -> set[str]:
        specs = load_grid(file, {"models": [model]}).specs
        return {spec.config["model_options"]["label_vectors"] for spec in specs}

    assert chosen() == {"words.csv"}  # not there: told when a run begins, as it was given
    (tmp_path / "words.csv").write_text("sky,0.1,0.2\n")
    assert chosen() == {str((tmp_path / "words.csv").resolve())}


def test_weights_that_are_replaced_are_new_work(tmp_path: Path) -> None:
    """Moved, they are the same file."""
    make_photos(tmp_path / "photos", 8, 2)
    file = tmp_path / "images.toml"
    file.write_text(GRID)

    def described(weights: Path | str) -> dict[str, RunSpec]:
        options = {"freeze": "backbone", "weights": str(weights)}
        model = {"name": "image_mlp", "options": options}
        return {spec.key: spec for spec in load_grid(file, {"models": [model]}).specs}

    weights, moved = tmp_path / "own.pt", tmp_path / "moved" / "own.pt"
    weights.write_bytes(b"weights of today")
    before = described(weights)
    moved.parent.mkdir()
    moved.write_bytes(weights.read_bytes())
    assert described("own.pt").keys() == described(moved).keys() == before.keys()
    weights.write_bytes(b"other weights")
    assert described(weights).keys().isdisjoint(before)
    with pytest.raises(UserError, match="a file of weights has changed since this run was descri"):
        check_unchanged(next(iter(before.values())).config)
