"""Gains by metric and by frequency of the label; is Balance's gain calibration? (rule 5)"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from beside import head, markdown_row

from d2ace.evaluation import METRICS
from d2ace.report.collect import Laboratory, shown
from d2ace.report.intervals import Pair, PairedInterval, interval
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.method_names import BASELINE
from d2ace.report.run_values import test_score, test_to_train
from d2ace.report.tables.label_frequency import GROUPS, SCORES, paired
from d2ace.report.tables.table import signed

WEIGHING = "Balance"
STUDIED = {"MLP": (WEIGHING, "Hard-Imb", "D2ACE"), "CLIF (reference)": (WEIGHING,)}
"""Model -> the methods whose gains are shown by frequency of the label."""
CALIBRATION = 0.01
"""The least gain in Macro-F1 at 0.5 that is asked about."""


def lines(laboratory: Laboratory) -> list[str]:
    """Gains over Random by metric, then by frequency of the label; what Balance's gain is."""
    found = [
        (studied, [method for method in STUDIED[one.model] if method in studied.methods])
        for one in laboratory.comparisons
        if one.study == "main" and one.model in STUDIED
        for studied in [_of_step(one)]
    ]
    lines = []
    for one, methods in found:
        metrics = shown(one.every_run)
        by_metric = [
            [method, *(_printed(_gain(one, method, metric)) for metric in metrics)]
            for method in methods
        ]
        by_label = [
            [method, group, *(_on_labels(one, method, group, score) for score in SCORES)]
            for method in methods
            for group in GROUPS
        ]
        places = ", ".join(name.partition(" [")[0] for name in one.datasets)
        lines += [
            f"**{one.model}**, {one.spread()}: {places}.",
            "",
            *head(["better than Random by", *(METRICS[each].title for each in metrics)], words=1),
            *map(markdown_row, by_metric),
            "",
            *head(["better than Random by", "labels", *SCORES.values()], words=2),
            *map(markdown_row, by_label),
            "",
            *_balance_by_dataset(one),
            "",
        ]
    said = ", ".join(f"with {one.model} **{balance_verdict(one)}**" for one, _ in found)
    return [*lines, f"By the rule Balance's gain in Macro-F1 is {said}."]


def _balance_by_dataset(one: MethodComparison) -> list[str]:
    """Where Balance's gain in Macro-F1 comes from, and what of it tuned thresholds leave."""
    wanted: dict[str, Callable[[str], Sequence[Pair]]] = {
        "Macro-F1 at 0.5": lambda at: _pairs(one, at, "macro_f1"),
        "Macro-F1, tuned thresholds": lambda at: _pairs(one, at, "macro_f1_tuned"),
        "what tuning takes away": lambda at: _less(
            _pairs(one, at, "macro_f1"), _pairs(one, at, "macro_f1_tuned")
        ),
        "at 0.5, Random at tuned thresholds": lambda at: _at_half_and_tuned(one, at),
        "tail, F1 at 0.5": lambda at: _pairs_on_labels(one, WEIGHING, at, "tail", "f1"),
        "tail, AUC": lambda at: _pairs_on_labels(one, WEIGHING, at, "tail", "auc"),
    }
    names = [name.partition(" [")[0] for name in one.datasets]
    lines = head([f"{WEIGHING} better than Random by", *names, "all"], words=1)
    for name, pairs in wanted.items():
        every = [pairs(dataset) for dataset in one.datasets]
        gaps = [*(interval([alone]) for alone in every), interval(every)]
        lines.append(markdown_row([name, *map(_printed, gaps)]))
    return lines


def _pairs(one: MethodComparison, dataset: str, metric: str) -> Sequence[Pair]:
    return next(iter(one.differences(metric, WEIGHING, datasets=[dataset])), [])


def _at_half_and_tuned(one: MethodComparison, dataset: str) -> list[Pair]:
    """Balance's Macro-F1 at 0.5 less Random's at tuned thresholds: who needs Balance for it?"""
    random = {(run.fold, run.seed): run for run in one.runs(dataset, BASELINE)}
    found = []
    for run in one.runs(dataset, WEIGHING):
        tuned = test_score(random[run.fold, run.seed], "macro_f1_tuned")
        gap = test_score(run, "macro_f1") - tuned
        found.append(Pair(run.fold, run.seed, gap, test_to_train(run)))
    return [pair for pair in found if not math.isnan(pair.difference)]


def _less(whole: Sequence[Pair], part: Sequence[Pair]) -> list[Pair]:
    """The difference of two differences, run by run."""
    parts = {(pair.fold, pair.seed): pair.difference for pair in part}
    return [
        pair._replace(difference=pair.difference - parts[pair.fold, pair.seed]) for pair in whole
    ]


def _pairs_on_labels(
    one: MethodComparison, method: str, dataset: str, group: str, score: str
) -> Sequence[Pair]:
    return paired(score, group, one.runs(dataset, method), one.runs(dataset, BASELINE))


def _of_step(one: MethodComparison) -> MethodComparison:
    """The methods studied here, on the datasets where one of them was run."""
    wanted = STUDIED[one.model]
    there = {dataset for dataset, method in one.cells if method in wanted}
    cells = {
        (dataset, method): runs
        for (dataset, method), runs in one.cells.items()
        if dataset in there and method in (*wanted, BASELINE)
    }
    return MethodComparison(one.study, one.model, cells)


def _gain(one: MethodComparison, method: str, metric: str) -> PairedInterval:
    return interval(one.differences(metric, method))


def _on_labels(one: MethodComparison, method: str, group: str, score: str) -> str:
    every = [_pairs_on_labels(one, method, dataset, group, score) for dataset in one.datasets]
    return _printed(interval([pairs for pairs in every if pairs]))


def _printed(gap: PairedInterval) -> str:
    return signed(str(gap))


def balance_verdict(one: MethodComparison) -> str:
    """Calibration, more, or undecided."""
    half, tuned, auc = (
        _gain(one, WEIGHING, metric) for metric in ("macro_f1", "macro_f1_tuned", "macro_auc")
    )
    if half.noise or half.mean < CALIBRATION:
        return "undecided"
    if 2 * tuned.mean < half.mean and (auc.noise or auc.mean < 0):
        return "calibration"
    if not tuned.noise and 2 * tuned.mean >= half.mean:
        return "more than calibration"
    return "undecided"
