"""Table of what the seed alone changes: the same folds and settings, run with several seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from d2ace.evaluation import METRICS
from d2ace.report.intervals import plus
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.method_names import BASELINE
from d2ace.report.registry import register_table
from d2ace.report.run_values import Array, paired, test_score
from d2ace.report.topics import ComparisonTopic
from d2ace.report.wording import metric_title

from .table import Cell, ReportTable, Value, figure, signed, word


def seeds(name: str, comparison: MethodComparison, metric: str) -> ReportTable | None:
    """Mean of every method for each seed, and how far runs of one fold lie apart.

    None where no dataset was run with several seeds.
    """
    methods = comparison.methods
    rows: list[list[Cell]] = []
    foot: list[list[Cell]] = []
    data: list[dict[str, Value]] = []
    for dataset in comparison.datasets:
        scores = {method: _by_seed(comparison, metric, dataset, method) for method in methods}
        every = sorted({seed for own in scores.values() for seed in own})
        if len(every) < 2:
            continue
        apart = {method: _deviation(list(own.values())) for method, own in scores.items()}
        for seed in every:
            row = [word(dataset), word(str(seed))]
            for method in methods:
                own = scores[method].get(seed, {})
                mean = float(np.mean(list(own.values()))) if own else None
                gain = _gain(comparison, metric, dataset, method, seed)
                note = "" if gain is None else signed(plus(gain))
                row.append(figure(mean, note=note))
                data.append(
                    {
                        "dataset": dataset,
                        "seed": seed,
                        "method": method,
                        "folds": len(own),
                        "mean": mean,
                        "better_than_random": gain,
                        "sd_by_seed": apart[method],
                    }
                )
            rows.append(row)
        foot.append([word(dataset), word("sd"), *[figure(apart[method]) for method in methods]])
    if not rows:
        return None
    return ReportTable(
        name=name,
        title=f"{METRICS[metric].title} by seed, {comparison.heading}",
        caption=(
            f"{metric_title(metric)}: mean over the folds of each seed; below it the difference to "
            f"{BASELINE} with the same seed, positive is better. “sd” is the standard "
            "deviation between runs of the same fold that differ in the seed alone."
        ),
        columns=["Dataset", "Seed", *methods],
        rows=rows,
        foot=foot,
        data=data,
    )


def _by_seed(
    comparison: MethodComparison, metric: str, dataset: str, method: str
) -> dict[int, dict[int, float]]:
    """Seed -> fold -> score, without undefined ones."""
    found: dict[int, dict[int, float]] = {}
    for run in comparison.runs(dataset, method):
        score = test_score(run, metric)
        if not math.isnan(score):
            found.setdefault(run.seed, {})[run.fold] = score
    return found


def _gain(
    comparison: MethodComparison, metric: str, dataset: str, method: str, seed: int
) -> float | None:
    """Mean difference to Random over the folds that both have with this seed."""
    runs, base = (
        [run for run in comparison.runs(dataset, one) if run.seed == seed]
        for one in (method, BASELINE)
    )
    differences = [pair.difference for pair in paired(metric, runs, base)]
    return float(np.mean(differences)) if differences and method != BASELINE else None


def _deviation(by_seed: list[dict[int, float]]) -> float | None:
    """Standard deviation within a fold, over the folds that all seeds have."""
    if len(by_seed) < 2:
        return None
    common = sorted(set.intersection(*(set(own) for own in by_seed)))
    if not common:
        return None
    table: Array = np.array([[own[fold] for fold in common] for own in by_seed])
    return float(np.sqrt(table.var(axis=0, ddof=1).mean()))


@register_table("scores", order=30)
def _seeds(topic: ComparisonTopic) -> Iterator[ReportTable | None]:
    for metric in topic.judged:
        yield seeds(topic.name("seeds", topic.heading, metric), topic.comparison, metric)
