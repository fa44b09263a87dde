"""Real photographs through readers, transforms, models and all selectors, to falling losses."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_makers import first_lines_until

import d2ace
from d2ace.data.images import ImageData, load_images
from d2ace.selectors import SELECTORS
from d2ace.training import RunResult

LITE0 = {"backbone": "efficientnet_lite0", "weights": "pretrained"}
HEADS = {"ml_gcn": {"h": 64}, "hst": {"h": 16}}
QUICK: dict[str, Any] = {
    "image_size": 64,
    "epochs": 4,
    "warmup": 1,
    "batch_size": 16,
    "learning_rate": 3e-3,
    "epoch_loss": True,
    "threads": 1,
    "workers": 0,
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D2ACE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def corel(data_root: Path) -> ImageData:
    """Every fortieth image of Corel5k: 113 to train on and 12 to test on."""
    archive = data_root / "images" / "corel5k" / "corel5k.zip"
    if not archive.is_file():
        pytest.skip(f"no {archive}")
    data = load_images("corel5k-images", archive)
    return data.subset(np.arange(0, data.n, 40))


def falls(result: RunResult) -> bool:
    """The loss of all training images in evaluation mode.

    Balance trains ML-GCN on a loss of its own; HST brings in terms of its loss one by one.
    """
    own = result.config["selector"] == "balance" and result.config["model"] == "ml_gcn"
    loss = "train_loss" if own else "epoch_loss"
    return bool(result.history[-1][loss] < result.history[0][loss])


@pytest.mark.parametrize("model", HEADS)
@pytest.mark.parametrize("selector", sorted(SELECTORS))
def test_both_models_and_all_selectors_learn_corel5k(
    corel: ImageData, model: str, selector: str
) -> None:
    result = d2ace.train(
        corel,
        model,
        selector,
        model_options=LITE0 | HEADS[model] | {"freeze": "backbone"},
        cache_features=True,
        min_positives=5,
        **QUICK,
    )
    assert result.dataset["test"] == 12
    assert falls(result)


CASES: list[Any] = [("ml_gcn", "coco", "d2ace"), ("hst", "yolo", "d2ace")]
# The other selectors have seen photographs in the test above.
CASES += [
    pytest.param("ml_gcn", "coco", selector, marks=pytest.mark.slow)
    for selector in sorted(SELECTORS)
    if selector != "d2ace"
]
CASES += [pytest.param("hst", "coco", "random", marks=pytest.mark.slow)]


@pytest.mark.parametrize(("model", "kind", "selector"), CASES)
def test_coco128_is_learnt_end_to_end(
    data_root: Path, model: str, kind: str, selector: str
) -> None:
    if not (data_root / "coco128").is_dir():
        pytest.skip(f"no {data_root / 'coco128'}")
    data = load_images(kind, data_root / "coco128", "train2017").subset(np.arange(0, 128, 2))
    settings = QUICK | {"image_size": 48, "folds": 4, "min_positives": 5}
    options = LITE0 | HEADS[model] | {"freeze": "early"}
    result = d2ace.train(data, model, selector, model_options=options, **settings)
    assert falls(result)


@pytest.mark.parametrize("model", HEADS)
def test_the_samples_of_voc_are_learnt_end_to_end(data_root: Path, model: str) -> None:
    archive = data_root / "images" / "voc2007_sample" / "voc2007_sample.zip"
    if not archive.is_file():
        pytest.skip(f"no {archive}")
    options = LITE0 | HEADS[model] | {"freeze": "early"}
    settings = QUICK | {"folds": 2, "validation": 0.4, "min_positives": 2, "batch_size": 4}
    result = d2ace.train(load_images("voc2007", archive), model, model_options=options, **settings)
    assert result.dataset["train"] + result.dataset["validation"] == 7
    assert falls(result)


@pytest.mark.slow  # a minute; killed runs on made images are in every run of the tests
def test_a_run_on_coco128_that_is_killed_ends_as_if_it_had_not_been(
    data_root: Path, tmp_path: Path
) -> None:
    """Killed twice while workers read ahead; the weights are the same to the last bit."""
    if not (data_root / "coco128").is_dir():
        pytest.skip(f"no {data_root / 'coco128'}")
    images = tmp_path / "images"
    shutil.copytree(data_root / "coco128" / "val2017", images / "train2017")
    shutil.copytree(data_root / "coco128" / "labels" / "val2017", images / "labels" / "train2017")
    shutil.copy(data_root / "coco128" / "classes.txt", images)
    words = [
        *("train", "--data", "yolo", "--root", str(images), "--folds", "4"),
        *("--model", "ml_gcn", "--backbone", "efficientnet_lite0", "--image-size", "32"),
        *("--model-option", "h=16", "--min-positives", "10", "--learning-rate", "0.001"),
        *("--epochs", "5", "--warmup", "1", "--workers", "2", "--threads", "1"),
        *("--checkpoint-every", "1"),
    ]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    start = [sys.executable, "-m", "d2ace", *words, "--out"]
    subprocess.run([*start, str(whole)], check=True, capture_output=True)
    for epoch in (2, 4):
        process = subprocess.Popen([*start, str(killed)], stderr=subprocess.PIPE, text=True)
        first_lines_until(process, f"epoch {epoch}/")
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        process.stderr.close()  # type: ignore[union-attr]
    subprocess.run([*start, str(killed)], check=True, capture_output=True)
    one, two = (RunResult.read(folder / "result.json") for folder in (whole, killed))
    assert one.test == two.test
    assert [entry["train_loss"] for entry in one.history] == [
        entry["train_loss"] for entry in two.history
    ]
    first, second = (
        torch.load(folder / "best.pt", weights_only=True)["weights"] for folder in (whole, killed)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
