"""Scores of every label with a run, and whether its network was still improving."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from smallrun import small_run

from d2ace._util.errors import RunError
from d2ace.data import MultiLabelData, make_multilabel, prepare
from d2ace.evaluation import label_auc, label_average_precision, label_f1
from d2ace.training import LABEL_SCORES, RunResult, load_run, still_improving
from d2ace.training.config import RunConfig
from d2ace.training.split import make_problem
from d2ace.training.verified import save_json

COLUMNS = ["label", "train_positives", "test_positives", *LABEL_SCORES]


@pytest.fixture(scope="module")
def folder(table: MultiLabelData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    small_run(table, out=out, epochs=3)
    return out


def test_a_run_keeps_the_scores_of_every_label(table: MultiLabelData, folder: Path) -> None:
    result, run = RunResult.read(folder / "result.json"), load_run(folder)
    problem = make_problem(RunConfig.from_dict(result.config), table)
    kept, rows = prepare(table).data, problem.test.rows
    truth, scores = kept.Y[rows], run.predict_proba(kept.X[rows])
    found = result.per_label
    assert found is not None
    assert list(found) == COLUMNS
    assert found["label"] == list(kept.label_names)
    assert found["train_positives"] == kept.Y[problem.train.rows].sum(0).tolist()
    assert found["test_positives"] == truth.sum(0).tolist()
    expected = {
        "auc": label_auc(truth, scores),
        "average_precision": label_average_precision(truth, scores),
        "f1": label_f1(truth, scores),
        "f1_tuned": label_f1(truth, scores, run.thresholds),
    }
    means = ("macro_auc", "mean_average_precision", "macro_f1", "macro_f1_tuned")
    for (name, values), mean in zip(expected.items(), means, strict=True):
        assert found[name] == pytest.approx(values.tolist(), abs=1e-6), name
        assert result.test[mean] == pytest.approx(np.mean(found[name]), abs=1e-6)


def test_a_label_with_one_class_in_the_test_rows_has_no_score() -> None:
    data = make_multilabel(80, 6, 10, imbalance=3.0, seed=5)
    result = small_run(data, min_positives=0, epochs=1, warmup=0)
    found = result.per_label
    assert found is not None
    lacking = [place for place, count in enumerate(found["test_positives"]) if not count]
    assert lacking
    assert [place for place, value in enumerate(found["auc"]) if math.isnan(value)] == lacking
    plain = json.loads(result.to_json())["per_label"]
    for place in lacking:
        assert plain["auc"][place] is plain["average_precision"][place] is None
        assert plain["f1"][place] == plain["f1_tuned"][place] == 0  # as they count in Macro-F1
    assert result.undefined["test"] == len(lacking)
    again = RunResult.from_dict(json.loads(result.to_json()))
    np.testing.assert_equal(again.per_label, found)


def test_a_thousand_labels_take_less_than_100_kb() -> None:
    data = make_multilabel(150, 4, 983, seed=0)
    result = small_run(data, selector="random", min_positives=0, epochs=1, warmup=0)
    assert result.per_label is not None
    assert len(result.per_label["auc"]) == 983
    assert len(json.dumps(result.per_label)) < 100_000


def test_a_result_of_before_stays_readable(folder: Path, tmp_path: Path) -> None:
    content = RunResult.read(folder / "result.json").to_dict()
    del content["per_label"]
    save_json(tmp_path / "result.json", content)
    assert RunResult.read(tmp_path / "result.json").per_label is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"auc": [0.5]}, "per_label has 1 values as 'auc' for 5 labels"),
        ({"auc": [0.5, 0.5, "?", 0.5, 0.5]}, "per_label has str in 'auc'"),
        ({"train_positives": [1, 2, 3, 4, 5.5]}, "per_label has float in 'train_positives'"),
        ({"test_positives": [1, 2, 3, 4, True]}, "per_label has bool in 'test_positives'"),
        ({"label": None}, "per_label has NoneType as 'label'"),
        ({"recall": [1] * 5}, "per_label has 'recall', which this version of d2ace does not know"),
    ],
)
def test_scores_that_are_no_such_table_are_refused(
    folder: Path, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    content = RunResult.read(folder / "result.json").to_dict()
    content["per_label"] |= change
    save_json(tmp_path / "result.json", content)
    with pytest.raises(RunError, match=rf"result\.json cannot be read .*{said}.*left alone"):
        RunResult.read(tmp_path / "result.json")


@pytest.mark.parametrize(
    ("best", "epochs", "improving"),
    [
        *((95, 100, False), (96, 100, True), (100, 100, True)),
        *((38, 40, False), (39, 40, True), (19, 20, False), (20, 20, True)),
        *((9, 10, False), (10, 10, True), (1, 1, True), (285, 300, False), (286, 300, True)),
    ],
)
def test_the_last_twentieth_of_the_epochs_is_still_improving(
    folder: Path, best: int, epochs: int, improving: bool
) -> None:
    assert still_improving(best, epochs) == improving
    result = RunResult.read(folder / "result.json")
    result = replace(result, best_epoch=best, config={**result.config, "epochs": epochs})
    assert result.still_improving == improving
    assert json.loads(result.to_json())["still_improving"] == improving
    assert repr(result).endswith(
        f"best epoch {best}, still improving)" if improving else f"best epoch {best})"
    )
