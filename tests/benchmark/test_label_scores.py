"""Scores of labels in a store, in its export, and back."""

from __future__ import annotations

import csv
import gzip
import io
import random
from pathlib import Path
from typing import Any

import pytest
from made_runs import result, spec

from d2ace._util.errors import UserError
from d2ace.benchmark.plan.specs import RunSpec
from d2ace.benchmark.store.database import Store

SCORES: dict[str, list[Any]] = {
    "label": ["sun", 'sea, "sky"', "=1+1", "Bäume\nim Wald"],
    "train_positives": [120, 33, 21, 7],
    "test_positives": [30, 8, 5, 0],
    "auc": [0.9123457, 1.0, 0.5, None],
    "average_precision": [0.7, 1.0, 1.5e-05, None],
    "f1": [0.6666667, 0.0, 0.25, 0.0],
    "f1_tuned": [0.7, 0.0, 0.3333333, 0.0],
}


def with_scores(run: RunSpec, **changes: Any) -> dict[str, Any]:
    return {**result(run), "per_label": {**SCORES, **changes}}


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """Two runs with scores of labels, one of before and one that failed."""
    with Store(tmp_path / "from.db") as store:
        for seed in (0, 1):
            store.add(spec(seed=seed), with_scores(spec(seed=seed)))
        store.add(spec(seed=2), result(spec(seed=2)))
        store.fail(spec(seed=3), "it was killed")
        store.export(tmp_path / "results.csv")
    return tmp_path / "results.csv"


def test_scores_of_labels_are_exported_and_come_back(tmp_path: Path, exported: Path) -> None:
    with Store(tmp_path / "to.db") as store:
        assert store.import_(exported) == 4
        found = [run.result for run in store.runs()]
        assert [one.get("per_label") for one in found if one] == [SCORES, SCORES, None]
        store.export(tmp_path / "again" / "results.csv")
    for name in ("results.csv", "curves.csv.gz", "labels.csv.gz"):
        assert (tmp_path / "again" / name).read_bytes() == exported.with_name(name).read_bytes()
    text = gzip.decompress(exported.with_name("labels.csv.gz").read_bytes()).decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [(row["key"], row["label"]) for row in rows] == [
        (spec(seed=seed).key, label) for seed in (0, 1) for label in SCORES["label"]
    ]
    assert [row["auc"] for row in rows[:4]] == ["0.9123457", "1.0", "0.5", ""]


def test_where_no_run_has_them_an_export_is_as_before(tmp_path: Path, exported: Path) -> None:
    with Store(tmp_path / "plain.db") as store:
        store.add(spec(), result(spec()))
        store.export(tmp_path / "plain" / "results.csv")
        names = {path.name for path in (tmp_path / "plain").iterdir()}
        assert names == {"results.csv", "curves.csv.gz"}
        store.export(exported)  # over that of runs with scores
    assert not exported.with_name("labels.csv.gz").exists()


def test_the_table_of_runs_has_no_column_for_them(tmp_path: Path, exported: Path) -> None:
    with Store(tmp_path / "plain.db") as store:
        store.add(spec(), result(spec()))
        store.export(tmp_path / "plain" / "results.csv")
    heading = (tmp_path / "plain" / "results.csv").read_text(encoding="utf-8").splitlines()[0]
    assert exported.read_text(encoding="utf-8").splitlines()[0] == heading


def test_without_the_file_of_labels_the_runs_come_without(tmp_path: Path, exported: Path) -> None:
    exported.with_name("labels.csv.gz").unlink()
    with Store(tmp_path / "to.db") as store:
        assert store.import_(exported) == 4
        assert all("per_label" not in (run.result or {}) for run in store.runs())


@pytest.mark.parametrize("seed", range(10))
def test_flipped_bytes_are_reported(tmp_path: Path, exported: Path, seed: int) -> None:
    path = exported.with_name("labels.csv.gz")
    damaged = bytearray(path.read_bytes())
    draw = random.Random(seed)  # noqa: S311
    damaged[draw.randrange(10, len(damaged))] ^= 1 << draw.randrange(8)
    path.write_bytes(damaged)
    with Store(tmp_path / "to.db") as store:
        with pytest.raises(UserError, match=r"labels\.csv\.gz cannot be read as the scores"):
            store.import_(exported)
        assert store.runs(status=None) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"auc": [0.5]}, r"\[0\.5\] for auc of its labels"),
        ({"auc": ["?", 0.5, 0.5, 0.5]}, r"'\?' for auc of a label"),
        ({"train_positives": [1, 2, 3, None]}, "None for train_positives of a label"),
        ({"label": [1, 2, 3, 4]}, "1 for label of a label"),
        ({"recall": [1, 1, 1, 1]}, "for the scores of its labels"),
    ],
)
def test_scores_that_are_no_such_table_are_named(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    with Store(tmp_path / "runs.db") as store:
        with pytest.raises(UserError, match=rf"cannot be stored \(has .*{said}"):
            store.add(spec(), with_scores(spec(), **change))
        assert store.runs() == []
