"""DIHCL as its authors meant it, whole-epoch draws, three further methods (rule 2a)."""

from __future__ import annotations

from typing import NamedTuple

import evidence
import numpy as np
from beside import head, markdown_row
from judging import FIRST, SCORE, better, main_study

from d2ace.benchmark.store import StoredRun
from d2ace.evaluation import METRICS
from d2ace.report.collect import Laboratory
from d2ace.report.intervals import Pair, PairedInterval, interval
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.method_names import BASELINE
from d2ace.report.run_values import Array, curve, test_to_train
from d2ace.report.tables import equivalence as equivalence_table
from d2ace.report.tables.table import signed
from d2ace.selectors.episodes import episode_of

ORIGINAL, BY_STEPS = "DIHCL (original)", "DIHCL (original, steps)"
METHODS = (
    *(ORIGINAL, BY_STEPS, "D2ACE (whole epochs)", "Hard-Imb (whole epochs)"),
    *("Online-Batch", "Ada-Boundary", "InfoBatch"),
)
AGAINST = {
    ORIGINAL: ("DIHCL", "DIHCL was misjudged", "it is not shown that DIHCL was misjudged"),
    BY_STEPS: ("DIHCL", "DIHCL was misjudged", "it is not shown that DIHCL was misjudged"),
    "D2ACE (whole epochs)": ("D2ACE", "whole epochs pay", "whole epochs are not shown to pay"),
    "Hard-Imb (whole epochs)": (
        "Hard-Imb",
        "whole epochs pay",
        "whole epochs are not shown to pay",
    ),
}
"""Method -> its other form in the first part; what is said if it is better, and if not."""
SHORTER = (ORIGINAL, BY_STEPS, "InfoBatch")
"""Methods that draw fewer rows in an epoch than there are."""
SHOWN = (SCORE, "mean_average_precision", "macro_f1", "macro_f1_tuned", "ranking_loss")


def lines(first: Laboratory, second: Laboratory) -> list[str]:
    """Gains over Random and equivalence; against the first part's forms; two claims again."""
    one = studied(second)
    if not one.cells:
        return ["No run yet."]
    tested = equivalence_table.found(one)
    gains = [
        [
            method,
            *(signed(str(interval(one.differences(metric, method)))) for metric in SHOWN),
            tested[method][1].verdict if method in tested else "–",
        ]
        for method in METHODS
        if method in one.methods
    ]
    titles = [METRICS[metric].title for metric in SHOWN]
    return [
        f"{one.spread()}: {', '.join(one.datasets)}.",
        "",
        *head(["better than Random by", *titles, "equivalent?"], words=1),
        *map(markdown_row, gains),
        "",
        *(f"- {sentence}" for sentence in [*_forms(first, one), *_claims(first, one)]),
        "",
        *_fewer_steps(one),
    ]


def studied(second: Laboratory) -> MethodComparison:
    """The methods of this step, on the datasets where one of them was run."""
    everything = next(
        each for each in second.comparisons if (each.study, each.model) == ("main", FIRST)
    )
    there = {dataset for dataset, method in everything.cells if method in METHODS}
    cells = {
        (dataset.partition(" [")[0], method): runs
        for (dataset, method), runs in everything.cells.items()
        if dataset in there and method in (*METHODS, BASELINE)
    }
    return MethodComparison(everything.study, everything.model, cells)


def gap_to_form(first: MethodComparison, one: MethodComparison, method: str) -> PairedInterval:
    """How much more a form gains over its Random than the other form did over its own."""
    other = AGAINST[method][0]
    found: list[list[Pair]] = []
    for dataset in one.datasets:
        before = {
            (pair.fold, pair.seed): pair.difference
            for pairs in first.differences(SCORE, other, datasets=[dataset])
            for pair in pairs
        }
        found += [
            [
                pair._replace(difference=pair.difference - before[pair.fold, pair.seed])
                for pair in pairs
                if (pair.fold, pair.seed) in before
            ]
            for pairs in one.differences(SCORE, method, datasets=[dataset])
        ]
    return interval(found)


def _fewer_steps(one: MethodComparison) -> list[str]:
    """Methods with shorter epochs: best validation scores beside Random's after as many steps."""
    rows = []
    for method in (each for each in SHORTER if each in one.methods):
        found = [gaps_at_steps(one, method, dataset) for dataset in one.datasets]
        taken = [f"{gap.steps:,.0f} of {gap.full:,.0f}" for gap in found]
        whole = [signed(str(interval([gap.whole]))) for gap in found]
        equal = [signed(str(interval([gap.equal]))) for gap in found]
        rows.append([method, "steps, and Random's", *taken])
        rows.append([method, "better than Random in 100 epochs", *whole])
        rows.append([method, "at equal steps", *equal])
    columns = [f"best validation {METRICS[SCORE].title}", "", *one.datasets]
    table = [*head(columns, words=2), *map(markdown_row, rows)]
    if ORIGINAL in one.methods:
        change = f"{100 * largest_change(one):.1f} %"
        table += [
            "",
            f"After its first two episodes the effective rows of {ORIGINAL} change by at most "
            f"{change} within an episode.",
        ]
    return table


class StepGap(NamedTuple):
    """Steps of a method and of Random, means over runs; its best validation score less Random's, in
    all and within the steps that it takes."""

    steps: float
    full: float
    whole: list[Pair]
    equal: list[Pair]


def gaps_at_steps(one: MethodComparison, method: str, dataset: str) -> StepGap:
    random = {(run.fold, run.seed): run for run in one.runs(dataset, BASELINE)}
    steps, whole, equal = [], [], []
    for run in one.runs(dataset, method):
        other = random[run.fold, run.seed]
        taken, others = _steps(run), _steps(other)
        own, theirs = (curve(each, "validation", SCORE) for each in (run, other))
        best, share = np.nanmax(own), test_to_train(run)
        within = np.nanmax(theirs[others <= taken[-1]])
        steps.append((taken[-1], others[-1]))
        whole.append(Pair(run.fold, run.seed, float(best - np.nanmax(theirs)), share))
        equal.append(Pair(run.fold, run.seed, float(best - within), share))
    return StepGap(*np.mean(steps, axis=0), whole, equal)


def largest_change(one: MethodComparison) -> float:
    """The largest relative change of the effective rows of DIHCL (original) within an episode."""
    changes = [
        float(np.ptp(rows) / rows.max())
        for dataset in one.datasets
        for run in one.runs(dataset, ORIGINAL)
        for rows in _by_episode(run)[2:]
    ]
    return max(changes)


def _by_episode(run: StoredRun) -> list[Array]:
    """The effective rows of each epoch, episode by episode; the first is the warm-up."""
    epochs, warmup = run.config["epochs"], run.config["warmup"]
    numbers = np.array([episode_of(epoch, warmup, epochs) for epoch in range(1, epochs + 1)])
    rows = curve(run, "effective_rows")
    return [rows[numbers == number] for number in np.unique(numbers)]


def _steps(run: StoredRun) -> Array:
    """Steps until the end of each epoch; no row is drawn twice in one."""
    return np.cumsum(np.ceil(curve(run, "distinct_rows") / run.config["batch_size"]))


def _forms(first: Laboratory, one: MethodComparison) -> list[str]:
    said = []
    for method, (other, yes, no) in AGAINST.items():
        if method in one.methods:
            gap = gap_to_form(main_study(first, FIRST), one, method)
            said.append(
                f"{method} against {other}: **{yes if better(gap) else no}**, {signed(str(gap))}."
            )
    return said


def _claims(first: Laboratory, one: MethodComparison) -> list[str]:
    """Verdicts on methods by hardness, with DIHCL of the first part and with its original form."""
    main = main_study(first, FIRST)
    old = {place: runs for place, runs in main.cells.items() if place[0] in one.datasets}
    new = old | {
        (dataset, evidence.BY_HARDNESS[0]): one.runs(dataset, ORIGINAL)
        for dataset in one.datasets
        if one.runs(dataset, ORIGINAL)
    }
    said = []
    for claim, look in (
        ("Methods by hardness converge fastest, by validation score", evidence.fastest_by_score),
        ("Methods by hardness overfit", evidence.overfit),
    ):
        verdicts = [look(MethodComparison(main.study, main.model, cells)) for cells in (old, new)]
        before, after = (verdict for verdict, _ in verdicts)
        said.append(
            f"{claim}: **{after}** with {ORIGINAL}, {before} with DIHCL of the first part, on "
            f"these datasets; with {ORIGINAL}: {verdicts[1][1]}."
        )
    return said
