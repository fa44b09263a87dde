"""Images in several processes: the same batches as one, and errors in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from image_makers import jpeg, make_photos, picture, put

import d2ace
from d2ace.data import DataError
from d2ace.training import RunResult

NOTING = '''
import os
from d2ace.selectors import D2ACE


class Noting(D2ACE):
    """Writes down the predictions it is told, a file for each process."""

    def observe(self, index, logits=None, probs=None):
        with open(os.path.join(os.path.dirname(__file__), f"{os.getpid()}.told"), "a") as file:
            print(*probs.flatten().tolist(), file=file)
        super().observe(index, logits=logits, probs=probs)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 images in a folder of their own, 20 of them to test on."""
    return make_photos(tmp_path_factory.mktemp("shared"), 60, 20)


def shared_run(
    root: Path, devices: int, selector: str = "d2ace", model: str = "ml_gcn", **changes: Any
) -> RunResult:
    settings: dict[str, Any] = {
        "model_options": {"backbone": "efficientnet_lite0", "h": 16, "freeze": "backbone"},
        "image_size": 32,
        "epochs": 3,
        "warmup": 1,
        "learning_rate": 3e-3,
        "min_positives": 2,
        "accelerator": "cpu",
        "threads": 1,
    }
    settings |= {"batch_size": 8 // devices, "root": str(root), "devices": devices} | changes
    return d2ace.train("csv", model, selector, **settings)


def test_two_processes_see_the_images_that_one_does(folder: Path) -> None:
    """Same batches, cropped and flipped alike, so with a frozen backbone the same losses."""
    two, one = (shared_run(folder, devices, workers=1) for devices in (2, 1))
    for ours, theirs in zip(two.history, one.history, strict=True):
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-4)
        assert ours["distinct_rows"] == theirs["distinct_rows"]
        assert ours["validation"] == pytest.approx(theirs["validation"], abs=1e-4)
    assert two.test == pytest.approx(one.test, abs=1e-4)


@pytest.mark.slow
def test_thresholds_of_hst_that_are_trained_late_do_not_stop_several_processes(
    folder: Path,
) -> None:
    """A parameter without a gradient would: these have a part in the loss from epoch 6 on."""
    options = {"backbone": "efficientnet_lite0", "h": 16, "freeze": "backbone"}
    result = shared_run(
        folder, 2, "random", "hst", epochs=7, model_options=options | {"preset": "reference"}
    )
    assert len(result.history) == 7


@pytest.mark.slow
def test_processes_with_statistics_of_their_own_tell_selectors_the_same(
    folder: Path, tmp_path: Path
) -> None:
    """BatchNorm counts the part of a batch that a process has; else their batches would differ."""
    put(tmp_path / "noting.py", NOTING)
    shared_run(
        folder,
        2,
        f"{tmp_path / 'noting.py'}:Noting",
        workers=0,
        epochs=2,
        model_options={"backbone": "efficientnet_lite0", "h": 16},
        selector_options={"predictions": "full_pass"},
    )
    first, second = (file.read_text() for file in tmp_path.glob("*.told"))
    assert first
    assert first == second


def test_a_broken_image_is_named_in_one_sentence_by_several_processes(
    folder: Path, tmp_path: Path
) -> None:
    for file in folder.iterdir():
        put(tmp_path / file.name, file.read_bytes())
    put(tmp_path / "07.jpg", jpeg(picture(1))[:150])
    with pytest.raises(DataError, match=r"07\.jpg: is a broken image") as error:
        shared_run(tmp_path, 2, workers=1)
    assert "\n" not in str(error.value)
