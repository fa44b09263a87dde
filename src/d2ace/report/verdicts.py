"""What the numbers allow one to say: ranks and tests over datasets."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from d2ace import evaluation
from d2ace.evaluation import METRICS
from d2ace.report.method_names import base_of

from .method_comparison import DIGITS, MethodComparison, Scores
from .method_names import CANDIDATE

LEVEL = 0.05
FEWEST = 6
"""Datasets below which the signed-rank test is not worth quoting."""


@dataclass(frozen=True)
class Verdicts:
    """One metric of a comparison, judged over the datasets that all its methods finished."""

    metric: str
    table: Scores
    """The scores that were judged, without a gap."""
    left_out: list[str]
    """Datasets and methods that have gaps."""
    average_ranks: dict[str, float]
    reference: str
    """The method that is tested against every other; empty if there is nothing to test."""
    tests: dict[str, evaluation.Comparison]
    holm: dict[str, float]
    """p-values corrected for the number of rivals: the methods that are no variant of it."""
    friedman: float | None
    critical_difference: float | None
    untestable: str
    """Why there is no Friedman test, where there is none."""

    @property
    def datasets(self) -> int:
        """Number of datasets judged."""
        return len(self.table)

    @property
    def best(self) -> str:
        """The method with the best average rank."""
        ranks = self.average_ranks
        return min(ranks, key=lambda method: (ranks[method], method), default="")

    @property
    def enough(self) -> bool:
        """Whether there are enough datasets for the signed-rank test to have any power."""
        return self.datasets >= FEWEST

    @property
    def reachable(self) -> bool:
        """Whether a win on every dataset would have been significant after the correction."""
        wins = {place: {"winner": float(place + 1), "loser": 0.0} for place in range(self.datasets)}
        smallest = evaluation.wilcoxon(wins, reference="winner")["loser"].p_value
        return smallest * len(self.holm) < LEVEL

    def verdict(self, method: str) -> str:
        """The reference against a method, in a word or two."""
        if not self.enough:
            return "too few datasets"
        if method not in self.holm:
            return "a variant, not counted"
        return "better" if self.holm[method] < LEVEL else "not significant"


def judge(comparison: MethodComparison, metric: str, reference: str | None = None) -> Verdicts:
    """Judge a metric; ``reference`` is D2ACE where it took part, else the best method."""
    whole, table = comparison.means(metric), comparison.block(metric)
    methods = list(next(iter(table.values()), {}))
    higher = METRICS[metric].higher_is_better
    ranks = {methods[0]: 1.0} if len(methods) == 1 else {}
    if len(methods) > 1:
        ranks = {str(name): rank for name, rank in evaluation.average_ranks(table, higher).items()}
    if reference is None:
        best = min(ranks, key=lambda method: (ranks[method], method), default="")
        reference = CANDIDATE if CANDIDATE in ranks else best
    tests: dict[str, evaluation.Comparison] = {}
    if len(methods) > 1 and reference in ranks:
        # In whole units of the last digit: differences of decimals are never quite equal.
        units = {
            dataset: {method: float(round(score * 10**DIGITS)) for method, score in row.items()}
            for dataset, row in table.items()
        }
        found = evaluation.wilcoxon(units, reference=reference, higher_is_better=higher)
        tests = {str(method): one for method, one in found.items()}
    # A preset of the reference itself is shown but no rival that the others' p must pay for.
    adjusted = evaluation.holm(
        {
            method: one.p_value
            for method, one in tests.items()
            if base_of(method) != base_of(reference)
        }
    )
    untestable = ""
    if len(methods) < 3:
        untestable = f"the Friedman test needs three methods and there are {len(methods)}"
    elif len(table) < 2:
        untestable = "the Friedman test needs several datasets and there is one"
    return Verdicts(
        metric=metric,
        table=table,
        left_out=[name for name in whole if name not in table]
        + [name for name in comparison.methods if name not in methods],
        average_ranks=ranks,
        reference=reference,
        tests=tests,
        holm={str(method): p for method, p in adjusted.items()},
        friedman=None if untestable else evaluation.friedman(table).p_value,
        critical_difference=None if untestable else _critical_difference(len(methods), len(table)),
        untestable=untestable,
    )


_critical_difference = functools.cache(evaluation.critical_difference)  # slow quantiles
