"""The second part: what its runs say, and how they are kept.

`second/results.csv` has the runs of `grids/second-*.toml`, with the scores of labels beside it;
`static_controls.csv` has those of `static_controls.py`. To run more, and to add what a store has:

    d2ace bench reproduction/grids/second-handicaps.toml --db second.db \\
        --from reproduction/second/results.csv
    python reproduction/second.py --db second.db
    python reproduction/build.py
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path

import numpy as np
from beside import head, markdown_row
from trim.gains import Gains, interval, signed

from d2ace.benchmark import Store
from d2ace.evaluation import METRICS
from d2ace.report.collect import Laboratory, shown
from d2ace.report.intervals import PairedInterval
from d2ace.report.intervals import interval as over_folds
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.tables.label_frequency import GROUPS, SCORES, paired

HERE = Path(__file__).resolve().parent
PLACE = HERE / "second"
RANDOM, ADAPTIVE = "Random", "D2ACE"
STATIC = ("number of labels", "number of rare labels")
STUDIED = {"MLP": ("Balance", "Hard-Imb", "D2ACE"), "CLIF (reference)": ("Balance",)}
"""Model -> the methods whose gains are shown by frequency of the label."""
MATTERS = 0.002
CALIBRATION = 0.01
"""The least gain in Macro-F1 at 0.5 that is asked about."""

Row = dict[str, str]


def add(db: Path) -> None:
    """The runs of a store that the first part does not have, beside those that are here."""
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / "results.csv"
        with Store(db, create=False) as store:
            store.export(new)
        known = {_run(row) for row in _rows(HERE / "results.csv")}
        rows = _rows(new)
        with new.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(row for row in rows if _run(row) not in known)
        with Store(Path(folder) / "both.db") as store:
            store.import_(PLACE / "results.csv")
            store.import_(new)
            store.export(PLACE / "results.csv")


def _run(row: Row) -> tuple[str, str]:
    """What names a run; Random has the same key in both parts."""
    return row["key"], row["finished_at"]


def _rows(file: Path) -> list[Row]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


# Static controls -----------------------------------------------------------------------------


def static_rows() -> list[Row]:
    """Of the folds that all methods have."""
    rows = _rows(HERE / "static_controls.csv")
    methods = {row["method"] for row in rows}
    ran: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        ran.setdefault((row["dataset"], row["fold"]), set()).add(row["method"])
    return [row for row in rows if ran[row["dataset"], row["fold"]] == methods]


def static_gains(rows: list[Row], method: str, budget: str, score: str) -> Gains:
    """Dataset -> difference to Random of the same fold, mean over folds."""
    at = [row for row in rows if row["budget"] == budget]
    random = {
        (row["dataset"], row["fold"]): float(row[score]) for row in at if row["method"] == RANDOM
    }
    found: dict[str, list[float]] = {}
    for row in at:
        place = row["dataset"], row["fold"]
        if row["method"] == method and place in random:
            found.setdefault(row["dataset"], []).append(float(row[score]) - random[place])
    return {dataset: float(np.mean(values)) for dataset, values in found.items()}


def static() -> list[str]:
    """Macro-AUC against Random at every budget, on each dataset at the best epoch, verdicts."""
    rows = static_rows()
    methods = list(dict.fromkeys(row["method"] for row in rows if row["method"] != RANDOM))
    budgets = list(dict.fromkeys(row["budget"] for row in rows))
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    found = {
        (method, budget): static_gains(rows, method, budget, "macro_auc")
        for method in methods
        for budget in budgets
    }
    names = [budget if budget == "best" else f"{budget} epochs" for budget in budgets]
    lines = [
        markdown_row([method, *(interval(found[method, budget]) for budget in budgets)])
        for method in methods
    ]
    best = [row for row in rows if (row["budget"], row["method"]) == ("best", RANDOM)]
    each = [
        [
            f"Random: folds, best epoch, {METRICS['macro_auc'].title}",
            *(_of_random([row for row in best if row["dataset"] == name]) for name in datasets),
        ],
        *(
            [method, *(signed(found[method, "best"][name]) for name in datasets)]
            for method in methods
        ),
    ]
    return [
        *head(["Macro-AUC, difference to Random", *names], words=1),
        *lines,
        "",
        *head(["at the best epoch", *datasets], words=1),
        *map(markdown_row, each),
        "",
        *(f"- {sentence}" for sentence in static_verdicts(found, budgets)),
    ]


def _of_random(rows: list[Row]) -> str:
    epoch, auc = (np.mean([float(row[name]) for row in rows]) for name in ("epoch", "macro_auc"))
    return f"{len(rows)}, {epoch:.0f}, {auc:.4f}"


def static_verdicts(found: dict[tuple[str, str], Gains], budgets: list[str]) -> list[str]:
    """What the rules say."""
    mean = {where: float(np.mean(list(values.values()))) for where, values in found.items()}
    said = []
    for budget in budgets:
        after = "At the best epoch" if budget == "best" else f"After {budget} epochs"
        own = mean[ADAPTIVE, budget]
        if own < MATTERS:
            verdict = "does not gain, so that there is nothing to explain"
        elif max(mean[one, budget] for one in STATIC) >= own - MATTERS:
            verdict = "gains, and is only label-rich rows"
        else:
            verdict = "gains, and is more than label-rich rows"
        said.append(f"{after} D2ACE **{verdict}**: {signed(own)}.")
    for pressure in (2, 4, 10):
        constant, fading = found[f"D2ACE, pressure {pressure}", "best"], found[ADAPTIVE, "best"]
        gap = {dataset: constant[dataset] - fading[dataset] for dataset in constant}
        text = interval(gap)
        low = float(text.split("[")[1].split(",")[0].replace("−", "-"))
        pays = float(np.mean(list(gap.values()))) >= MATTERS and low > 0
        word = "pays" if pays else "is not shown to pay"
        said.append(f"A constant pressure of {pressure} **{word}** against the fading one: {text}.")
    return said


# Gains by metric and label frequency ----------------------------------------------------------


def labels(laboratory: Laboratory) -> list[str]:
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
        ]
    said = ", ".join(f"with {one.model} **{balance_verdict(one)}**" for one, _ in found)
    return [*lines, f"By the rule Balance's gain in Macro-F1 is {said}."]


def _of_step(one: MethodComparison) -> MethodComparison:
    """The methods studied here, on the datasets where one of them was run."""
    wanted = STUDIED[one.model]
    there = {dataset for dataset, method in one.cells if method in wanted}
    cells = {
        (dataset, method): runs
        for (dataset, method), runs in one.cells.items()
        if dataset in there and method in (*wanted, RANDOM)
    }
    return MethodComparison(one.study, one.model, cells)


def _gain(one: MethodComparison, method: str, metric: str) -> PairedInterval:
    return over_folds(one.differences(metric, method))


def _on_labels(one: MethodComparison, method: str, group: str, score: str) -> str:
    every = [
        paired(score, group, one.runs(dataset, method), one.runs(dataset, RANDOM))
        for dataset in one.datasets
    ]
    return _printed(over_folds([pairs for pairs in every if pairs]))


def _printed(gap: PairedInterval) -> str:
    return signed_text(str(gap))


def signed_text(text: str) -> str:
    return text.replace("-", "−")


def balance_verdict(one: MethodComparison) -> str:
    """Calibration, more, or undecided."""
    half, tuned, auc = (
        _gain(one, "Balance", metric) for metric in ("macro_f1", "macro_f1_tuned", "macro_auc")
    )
    if half.noise or half.mean < CALIBRATION:
        return "undecided"
    if 2 * tuned.mean < half.mean and (auc.noise or auc.mean < 0):
        return "calibration"
    if not tuned.noise and 2 * tuned.mean >= half.mean:
        return "more than calibration"
    return "undecided"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--db", type=Path, required=True, help="a store whose runs are added")
    add(parser.parse_args().db)


if __name__ == "__main__":
    main()
