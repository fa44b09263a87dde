"""Is it only rows with many labels? What the runs of `static_controls.py` say (rule 3)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from beside import head, markdown_row
from second import Row, rows_of
from static_controls import BEST, SCORES
from trim.gains import Gains, interval, signed, spread

from d2ace.evaluation import METRICS, Metric
from d2ace.report.method_names import BASELINE, CANDIDATE

HERE = Path(__file__).resolve().parent
STATIC = ("number of labels", "number of rare labels")
MATTERS = 0.002
NAMES = {"map": "mean_average_precision"}
"""Scores of `static_controls.csv` that METRICS name otherwise."""


def complete_rows() -> list[Row]:
    """Of the folds that all methods have."""
    rows = rows_of(HERE / "static_controls.csv")
    methods = {row["method"] for row in rows}
    ran: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        ran.setdefault((row["dataset"], row["fold"]), set()).add(row["method"])
    return [row for row in rows if ran[row["dataset"], row["fold"]] == methods]


def gains(rows: list[Row], method: str, budget: str, score: str) -> Gains:
    """Dataset -> how much better than Random of the same fold, mean over folds."""
    sign = 1 if _metric(score).higher_is_better else -1
    at = [row for row in rows if row["budget"] == budget]
    random = {
        (row["dataset"], row["fold"]): float(row[score]) for row in at if row["method"] == BASELINE
    }
    found: dict[str, list[float]] = {}
    for row in at:
        place = row["dataset"], row["fold"]
        if row["method"] == method and place in random:
            found.setdefault(row["dataset"], []).append(sign * (float(row[score]) - random[place]))
    return {dataset: float(np.mean(values)) for dataset, values in found.items()}


def lines() -> list[str]:
    """Macro-AUC against Random at every budget, on each dataset early and at its best, verdicts."""
    rows = complete_rows()
    return [
        *_over_datasets(rows, "macro_auc"),
        "",
        *_by_dataset(rows, "10"),
        "",
        *_by_dataset(rows, BEST),
        "",
        *(f"- {sentence}" for sentence in verdicts(_found(rows, "macro_auc"))),
    ]


def other_scores() -> list[str]:
    """The other scores against Random, at every budget."""
    rows = complete_rows()
    tables = [_over_datasets(rows, score) for score in SCORES[1:]]
    return [line for table in tables for line in (*table, "")]


def _found(rows: list[Row], score: str) -> dict[tuple[str, str], Gains]:
    """Method and budget -> dataset -> difference to Random."""
    return {
        (method, budget): gains(rows, method, budget, score)
        for method in _named(rows, "method")
        for budget in _named(rows, "budget")
        if method != BASELINE
    }


def _metric(score: str) -> Metric:
    return METRICS[NAMES.get(score, score)]


def _named(rows: list[Row], column: str) -> list[str]:
    """What stands in a column, in its order."""
    return list(dict.fromkeys(row[column] for row in rows))


def _over_datasets(rows: list[Row], score: str) -> list[str]:
    found, budgets = _found(rows, score), _named(rows, "budget")
    names = [budget if budget == BEST else f"{budget} epochs" for budget in budgets]
    return [
        *head([f"{_metric(score).title}, better than Random by", *names], words=1),
        *(
            markdown_row([method, *(interval(found[method, budget]) for budget in budgets)])
            for method in dict.fromkeys(method for method, _ in found)
        ),
    ]


def _by_dataset(rows: list[Row], budget: str) -> list[str]:
    """Random's score, and the differences to it in Macro-AUC."""
    datasets = _named(rows, "dataset")
    found = _found(rows, "macro_auc")
    plain = [row for row in rows if (row["budget"], row["method"]) == (budget, BASELINE)]
    return [
        *head([_when(budget), *datasets], words=1),
        markdown_row(
            [
                f"Random: folds, epoch, {METRICS['macro_auc'].title}",
                *(_of_random([row for row in plain if row["dataset"] == at]) for at in datasets),
            ]
        ),
        *(
            markdown_row([method, *(signed(gains[dataset]) for dataset in datasets)])
            for (method, at), gains in found.items()
            if at == budget
        ),
    ]


def _when(budget: str) -> str:
    return "At the best epoch" if budget == BEST else f"After {budget} epochs"


def _of_random(rows: list[Row]) -> str:
    epoch, auc = (np.mean([float(row[name]) for row in rows]) for name in ("epoch", "macro_auc"))
    return f"{len(rows)}, {epoch:.0f}, {auc:.4f}"


def verdicts(found: dict[tuple[str, str], Gains]) -> list[str]:
    """What the rules say."""
    mean = {where: float(np.mean(list(values.values()))) for where, values in found.items()}
    said = []
    for budget in dict.fromkeys(budget for _, budget in found):
        own = mean[CANDIDATE, budget]
        if own < MATTERS:
            verdict = "does not gain, so that there is nothing to explain"
        elif max(mean[one, budget] for one in STATIC) >= own - MATTERS:
            verdict = "gains, and is only label-rich rows"
        else:
            verdict = "gains, and is more than label-rich rows"
        said.append(f"{_when(budget)} D2ACE **{verdict}**: {signed(own)}.")
    for pressure in (2, 4, 10):
        constant, fading = found[f"D2ACE, pressure {pressure}", BEST], found[CANDIDATE, BEST]
        gap = {dataset: constant[dataset] - fading[dataset] for dataset in constant}
        got = spread(gap)
        pays = got.mean >= MATTERS and got.low > 0
        word = "pays" if pays else "is not shown to pay"
        said.append(
            f"A constant pressure of {pressure} **{word}** against the fading one: {interval(gap)}."
        )
    return said
