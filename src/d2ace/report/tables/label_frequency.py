"""Table of the difference to Random on frequent and rare labels, thresholds tuned and not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from d2ace.benchmark.store import StoredRun
from d2ace.report.intervals import HOW, Pair
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.method_names import BASELINE
from d2ace.report.registry import register_table
from d2ace.report.run_values import Array, number, test_to_train
from d2ace.report.topics import ComparisonTopic

from .gains import over_datasets, rivals
from .table import Cell, ReportTable, Value, word

SCORES = {
    "auc": "AUC",
    "average_precision": "Average precision",
    "f1": "F1 at 0.5",
    "f1_tuned": "F1, tuned thresholds",
}
GROUPS = ("all", "head", "middle", "tail")
_SAME = ("label", "train_positives", "test_positives")


def label_frequency(name: str, comparison: MethodComparison) -> ReportTable | None:
    """Every method by group of labels, where the runs have scores of labels."""
    rows: list[list[Cell]] = []
    data: list[dict[str, Value]] = []
    datasets = comparison.datasets
    for method in rivals(comparison):
        both = [[comparison.runs(where, of) for of in (method, BASELINE)] for where in datasets]
        for group in GROUPS:
            row = [word(method), word(group), _positives(comparison, method, group)]
            for score in SCORES:
                every = [paired(score, group, *runs) for runs in both]
                cell, numbers = over_datasets([pairs for pairs in every if pairs], len(datasets))
                row.append(cell)
                if cell.value is not None:
                    data.append({"method": method, "labels": group, "score": score, **numbers})
            if any(cell.value is not None for cell in row[-len(SCORES) :]):
                rows.append(row)
    if not rows:
        return None
    return ReportTable(
        name=name,
        title=f"Better than {BASELINE} on frequent and rare labels by, {comparison.heading}",
        caption=(
            "Labels are ordered by their positives among the training rows: head is the most "
            "frequent third, tail the rarest, middle the third between. The mean over a group's "
            f"labels of the difference to {BASELINE}, positive is better, over these datasets, "
            "which count alike, with its 95 % interval over folds and seeds (paired). Labels with "
            "one class in the test rows do not count. A gain in F1 at 0.5 that is gone at "
            "thresholds tuned on the validation rows, and not there in AUC, is calibration. "
            f"{HOW}"
        ),
        columns=["Method", "Labels", "Training positives", *SCORES.values()],
        rows=rows,
        data=data,
    )


def paired(
    score: str, group: str, runs: Iterable[StoredRun], base: Iterable[StoredRun]
) -> list[Pair]:
    """Mean differences over a group's labels, of runs that trained and tested the same labels."""
    known = {(run.fold, run.seed): _per_label(run) for run in base}
    found = []
    for run in runs:
        own, other = _per_label(run), known.get((run.fold, run.seed))
        if not own or not other or any(own[name] != other[name] for name in _SAME):
            continue
        members = _members(own, group)
        if members.size:
            gained = _column(own, score)[members] - _column(other, score)[members]
            found.append(Pair(run.fold, run.seed, float(gained.mean()), test_to_train(run)))
    return found


def _per_label(run: StoredRun) -> dict[str, list[Any]]:
    """The scores of a run's labels, in columns; empty where they were not stored."""
    return (run.result or {}).get("per_label") or {}


def _members(table: dict[str, list[Any]], group: str) -> np.ndarray[Any, np.dtype[np.intp]]:
    """The group's labels that have both classes in the test rows; of equals the earlier first."""
    order = np.argsort(-_column(table, "train_positives"), kind="stable")
    parts = dict(zip(GROUPS, (order, *np.array_split(order, 3)), strict=True))
    return parts[group][~np.isnan(_column(table, "auc")[parts[group]])]


def _column(table: dict[str, list[Any]], name: str) -> Array:
    return np.array([number(value) for value in table[name]])


def _positives(comparison: MethodComparison, method: str, group: str) -> Cell:
    """The fewest and the most training positives of the group's labels, over all runs."""
    counts = [
        _column(table, "train_positives")[_members(table, group)]
        for dataset in comparison.datasets
        for run in comparison.runs(dataset, method)
        if (table := _per_label(run))
    ]
    every = np.concatenate(counts) if counts else np.empty(0)
    return word(f"{every.min():.0f} to {every.max():.0f}") if every.size else Cell("–")


@register_table("scores", order=30)
def _label_frequency(topic: ComparisonTopic) -> Iterator[ReportTable | None]:
    if BASELINE in topic.comparison.methods:
        yield label_frequency(topic.name("label-frequency", topic.heading), topic.comparison)
