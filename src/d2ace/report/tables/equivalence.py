"""Table of equivalence to Random: whether a method differs from it by less than what matters."""

from __future__ import annotations

from collections.abc import Iterator

from d2ace import evaluation
from d2ace.evaluation import METRICS
from d2ace.report.intervals import over_folds, plus
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.method_names import BASELINE
from d2ace.report.registry import register_table
from d2ace.report.topics import ComparisonTopic

from .table import Cell, ReportTable, Value, figure, p_text, signed, word

METRIC, MARGIN = "macro_auc", 0.002
"""A smaller difference in this metric is no reason to change the sampler."""
FEWEST = 2
"""Datasets that a spread between datasets needs."""


def found(comparison: MethodComparison) -> dict[str, tuple[int, evaluation.Equivalence]]:
    """Method -> number of datasets and the test over them; without those that have too few."""
    tested = {}
    for method in comparison.methods:
        if method == BASELINE:
            continue
        means = [
            over_folds((pair.fold, pair.difference) for pair in pairs)
            for pairs in comparison.differences(METRIC, method)
        ]
        if len(means) >= FEWEST:
            tested[method] = len(means), evaluation.equivalence(means, MARGIN)
    return tested


def equivalence(name: str, comparison: MethodComparison) -> ReportTable | None:
    """Every method that was run beside Random on several datasets, with its verdict."""
    rows: list[list[Cell]] = []
    data: list[dict[str, Value]] = []
    for method, (datasets, one) in found(comparison).items():
        spread = signed(f"[{plus(one.low)}, {plus(one.high)}]")
        rows.append(
            [
                word(method),
                Cell(signed(plus(one.mean)), one.mean, spread=spread),
                figure(datasets, "d"),
                Cell(p_text(one.p_equivalent), one.p_equivalent),
                Cell(p_text(one.p_different), one.p_different),
                word(one.verdict),
            ]
        )
        data.append(
            {
                "metric": METRIC,
                "method": method,
                "difference": one.mean,
                "low": one.low,
                "high": one.high,
                "margin": MARGIN,
                "datasets": datasets,
                "p_equivalent": one.p_equivalent,
                "p_different": one.p_different,
                "verdict": one.verdict,
            }
        )
    if not rows:
        return None
    title = METRICS[METRIC].title
    return ReportTable(
        name=name,
        title=f"Equivalent to {BASELINE} in {title}, {comparison.heading}",
        caption=(
            f"Mean over datasets of the difference to {BASELINE}, with its 90 % interval by the "
            f"spread between datasets. Equivalent: two one-sided t tests at 5 % show that the mean "
            f"lies within ±{MARGIN:g}. Otherwise better or worse where the two-sided t test at "
            "5 % shows that it is not zero, else undecided. Not corrected for the number of "
            "methods; with few datasets most is undecided."
        ),
        columns=["Method", "Difference", "Datasets", "p equivalent", "p different", "Verdict"],
        rows=rows,
        data=data,
    )


@register_table("ranks", order=20)
def _equivalence(topic: ComparisonTopic) -> Iterator[ReportTable | None]:
    yield equivalence(topic.name("equivalence", topic.heading), topic.comparison)
