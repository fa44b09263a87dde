"""Gains by frequency of the label, and marks where a network was not trained to the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_runs import result, spec

from d2ace.benchmark.plan.specs import RunSpec
from d2ace.benchmark.store.database import Store
from d2ace.report import published, sections
from d2ace.report.collect import collect
from d2ace.report.headline import not_trained
from d2ace.report.intervals import Pair, interval
from d2ace.report.page import write_report
from d2ace.report.tables.label_frequency import label_frequency
from d2ace.report.tables.table import ReportTable

LABELS = ["f", "e", "d", "c", "b", "a"]
POSITIVES = [30, 90, 90, 10, 400, 20]  # head: b, e; middle: d, f; tail: a, c
GROUPS = {"all": "abdef", "head": "be", "middle": "df", "tail": "a"}  # c has no score
BASE: dict[str, list[float | None]] = {
    "auc": [0.5, 0.6, 0.7, None, 0.8, 0.9],
    "average_precision": [0.2, 0.3, 0.4, None, 0.5, 0.6],
    "f1": [0.1, 0.2, 0.3, 0.0, 0.4, 0.5],
    "f1_tuned": [0.5, 0.5, 0.5, 0.0, 0.5, 0.5],
}
GAIN = {"a": 0.03, "b": -0.01, "c": 9.0, "d": 0.002, "e": 0.02, "f": 0.001}


def run(selector: str, fold: int, **more: Any) -> RunSpec:
    methods = {"random": "Random", "d2ace": "D2ACE", "balance": "Balance"}
    own = {"selector": selector, "fold": fold, "data": "yeast", "model": "mlp", **more}
    return spec(methods[selector], **own)


def per_label(gain: float = 0.0, **changes: Any) -> dict[str, Any]:
    """Scores that are better by ``gain`` times `GAIN`; those at tuned thresholds are the same."""
    table: dict[str, Any] = {
        "label": LABELS,
        "train_positives": POSITIVES,
        "test_positives": [count // 10 if name != "c" else 0 for name, count in _counts()],
    }
    for name, values in BASE.items():
        share = 0.0 if name == "f1_tuned" else gain
        table[name] = [
            None if value is None else value + share * GAIN[label]
            for value, label in zip(values, LABELS, strict=True)
        ]
    return {**table, **changes}


def _counts() -> list[tuple[str, int]]:
    return list(zip(LABELS, POSITIVES, strict=True))


def add(store: Store, one: RunSpec, table: dict[str, Any] | None, **changes: Any) -> None:
    content = {**result(one), **changes}
    store.add(one, content if table is None else {**content, "per_label": table})


def tables(store: Store) -> dict[str, ReportTable]:
    page = sections.build(collect(store), published.load(None))
    every = [table for one in page.sections for group in one.groups for table in group.tables]
    return {table.name: table for table in every}


def test_differences_are_means_over_thirds_of_the_labels(store: Store) -> None:
    for fold in range(3):
        add(store, run("random", fold), per_label())
        add(store, run("d2ace", fold), per_label(1 + fold))
    (comparison,) = collect(store).comparisons
    table = label_frequency("frequency", comparison)
    assert table is not None
    data = {(row["labels"], row["score"]): row for row in table.data or []}
    assert len(data) == len(GROUPS) * len(BASE)
    for group, labels in GROUPS.items():
        mean = sum(GAIN[label] for label in labels) / len(labels)
        for score in ("auc", "average_precision", "f1"):
            pairs = [Pair(fold, 0, (1 + fold) * mean, 119 / 427) for fold in range(3)]
            expected, row = interval([pairs]), data[group, score]
            assert (row["method"], row["pairs"], row["datasets"]) == ("D2ACE", 3, 1)
            ends = [row["difference"], row["low"], row["high"]]
            assert ends == pytest.approx([expected.mean, expected.low, expected.high])
        assert data[group, "f1_tuned"]["difference"] == pytest.approx(0, abs=1e-12)
    printed = {row[1].text: [cell.text for cell in row[2:]] for row in table.rows}
    assert [printed[group][0] for group in GROUPS] == [
        *("20 to 400", "90 to 400", "30 to 90", "20 to 20")
    ]
    tail = next(row for row in table.rows if row[1].text == "tail")
    assert tail[3].text.startswith("+0.0600 [")
    assert tail[3].note == "within noise"
    assert "head is the most frequent third, tail the rarest" in table.caption


def test_the_table_stands_where_runs_have_scores_of_labels(store: Store, tmp_path: Path) -> None:
    for fold in range(2):
        add(store, run("random", fold), per_label())
        add(store, run("d2ace", fold), per_label(1))
        add(store, run("balance", fold), None)  # stored before
    shown = tables(store)["label-frequency-mlp"]
    assert {row[0].text for row in shown.rows} == {"D2ACE"}
    write_report(store, tmp_path / "out")
    assert (tmp_path / "out" / "tables" / "label-frequency-mlp.csv").is_file()
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "Better than Random on frequent and rare labels by, MLP" in page


@pytest.mark.parametrize("kind", ["without", "baseline", "labels", "rows"])
def test_runs_that_cannot_be_compared_by_label_have_no_such_table(store: Store, kind: str) -> None:
    """Without scores, without Random's, of other labels, and trained on other rows."""
    base = {
        "without": None,
        "baseline": None,
        "labels": per_label(label=[*LABELS[:5], "z"]),
        "rows": per_label(train_positives=[31, *POSITIVES[1:]]),
    }[kind]
    for fold in range(2):
        add(store, run("random", fold), base)
        add(store, run("d2ace", fold), None if kind == "without" else per_label(1))
    assert not any(name.startswith("label-frequency") for name in tables(store))


def test_two_labels_leave_no_tail(store: Store) -> None:
    few = {name: values[:2] for name, values in per_label().items()}
    more = {name: values[:2] for name, values in per_label(1).items()}
    for fold in range(2):
        add(store, run("random", fold), few)
        add(store, run("d2ace", fold), more)
    rows = tables(store)["label-frequency-mlp"].rows
    assert [row[1].text for row in rows] == ["all", "head", "middle"]


# Is the network trained? --------------------------------------------------------------------


@pytest.mark.parametrize(("late", "marked"), [(0, False), (1, False), (2, True), (4, True)])
def test_scores_of_networks_that_were_still_improving_are_marked(
    store: Store, late: int, marked: bool
) -> None:
    for fold in range(4):
        add(store, run("random", fold), None, best_epoch=95)
        add(store, run("d2ace", fold), None, best_epoch=96 if fold < late else 95)
    table = tables(store)["scores-mlp-macro-auc"]
    ((_, random, ours),) = table.rows
    assert (random.text, ours.text) == ("0.8123", "0.8123†" if marked else "0.8123")
    assert ("† half of the runs or more were still improving" in table.caption) == marked
    assert [row["still_improving"] for row in table.data or []] == [0, late]
    assert (r"0.8123$^\dagger$" in table.latex()) == marked


@pytest.mark.parametrize(
    ("late", "said"),
    [
        (0, []),
        (1, ["1 of 20 runs had the best epoch within the last 5 %, no more than by chance."]),
        (
            5,
            [
                "5 of 20 runs were still improving at the end (best epoch within the last 5 %): "
                "there, more epochs or a higher learning rate would probably gain more than "
                "selection."
            ],
        ),
    ],
)
def test_the_summary_counts_them(store: Store, late: int, said: list[str]) -> None:
    for seed in range(20):
        one = run("random", 0, seed=seed)
        add(store, one, None, best_epoch=100 if seed < late else 50)
        store.link([RunSpec("again", "Random", one.config)])  # counts once
    laboratory = collect(store)
    assert not_trained(laboratory) == said
    lead = sections.build(laboratory, published.load(None)).lead
    assert all(sentence in lead for sentence in said)


def test_a_run_whose_best_epoch_is_not_known_is_not_counted(store: Store) -> None:
    add(store, run("random", 0), None, best_epoch=None)
    assert not_trained(collect(store)) == []
