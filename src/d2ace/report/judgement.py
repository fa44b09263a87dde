"""What the numbers allow one to say: ranks and tests over datasets, and the verdicts of these."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass

from d2ace import evaluation
from d2ace.evaluation import METRICS

from .collect import SHOWN
from .intervals import PairedInterval, interval
from .method_comparison import DIGITS, MethodComparison, Scores
from .method_names import BASELINE, CANDIDATE, base_of
from .verdicts import Outcome, Verdict

LEVEL = 0.05
FEWEST = 6
"""Datasets below which the signed-rank test is not worth quoting."""


@dataclass(frozen=True)
class SignedRankTests:
    """One method against every other, over datasets."""

    found: dict[str, evaluation.Comparison]
    holm: dict[str, float]
    """p-values corrected for the number of rivals: the methods that are no variant of it."""

    def significant(self, method: str) -> bool:
        """Whether the one method is shown to be better than this one."""
        return self.holm.get(method, 1.0) < LEVEL


@dataclass(frozen=True)
class Judgement:
    """One metric of a comparison, judged over the datasets that all its methods finished."""

    comparison: MethodComparison
    metric: str
    table: Scores
    """The scores that were judged, without a gap."""
    left_out: list[str]
    """Datasets and methods that have gaps."""
    average_ranks: dict[str, float]
    best: str
    """The method with the best average rank."""
    reference: str
    """The method that is tested against every other; empty if there is nothing to test."""
    all_tests: dict[str, SignedRankTests]
    """Method -> its tests against the others."""
    gains: dict[str, PairedInterval]
    """Method -> how much better than the baseline it is, where both ran."""
    against_baseline: dict[str, Verdict]
    friedman: float | None
    critical_difference: float | None
    untestable: str
    """Why there is no Friedman test, where there is none."""

    @property
    def gain(self) -> PairedInterval | None:
        """How much better than the baseline the best method is; None where it is the baseline."""
        return self.gains.get(self.best)

    @property
    def verdict(self) -> Verdict:
        """The best method beside the baseline."""
        return self.against_baseline[self.best]

    @property
    def tests(self) -> dict[str, evaluation.Comparison]:
        """The reference against every other method."""
        return self.tests_of(self.reference).found

    @property
    def holm(self) -> dict[str, float]:
        """Corrected p-values of the reference against its rivals."""
        return self.tests_of(self.reference).holm

    def tests_of(self, method: str) -> SignedRankTests:
        """A method against every other; none where there is no other."""
        return self.all_tests.get(method, SignedRankTests({}, {}))

    @property
    def datasets(self) -> int:
        """Number of datasets judged."""
        return len(self.table)

    @property
    def enough(self) -> bool:
        """Whether there are enough datasets for the signed-rank test to have any power."""
        return self.datasets >= FEWEST

    def reachable(self, rivals: int) -> bool:
        """Whether a win on every dataset would have been significant after the correction."""
        wins = {place: {"winner": float(place + 1), "loser": 0.0} for place in range(self.datasets)}
        smallest = evaluation.wilcoxon(wins, reference="winner")["loser"].p_value
        return smallest * rivals < LEVEL

    def outcome(self, method: str) -> Outcome:
        """The reference against a method."""
        if not self.enough:
            return Outcome.TOO_FEW_DATASETS
        if method not in self.holm:
            return Outcome.VARIANT
        better = self.tests_of(self.reference).significant(method)
        return Outcome.BETTER if better else Outcome.NOT_SIGNIFICANT


def judge_all(comparison: MethodComparison) -> dict[str, Judgement]:
    """Metric -> judgement, for those of the report's metrics that have scores."""
    scored = [metric for metric in SHOWN if any(comparison.means(metric).values())]
    return {metric: judge(comparison, metric) for metric in scored}


def comparable(judged: dict[str, Judgement]) -> dict[str, Judgement]:
    """Those metrics that have two methods to compare."""
    return {metric: one for metric, one in judged.items() if len(one.average_ranks) > 1}


def judge(comparison: MethodComparison, metric: str) -> Judgement:
    """Judge a metric; the reference is the candidate where it took part, else the best method."""
    whole, table = comparison.means(metric), comparison.block(metric)
    methods = list(next(iter(table.values()), {}))
    higher = METRICS[metric].higher_is_better
    ranks = {methods[0]: 1.0} if len(methods) == 1 else {}
    if len(methods) > 1:
        ranks = {str(name): rank for name, rank in evaluation.average_ranks(table, higher).items()}
    best = min(ranks, key=lambda method: (ranks[method], method), default="")
    tests = {method: _tests(table, method, higher) for method in ranks} if len(ranks) > 1 else {}
    gains = {}
    for method in ranks:
        differences = comparison.differences(metric, method, datasets=list(table))
        if differences and method != BASELINE:
            gains[method] = interval(differences)
    untestable = ""
    if len(methods) < 3:
        untestable = f"the Friedman test needs three methods and there are {len(methods)}"
    elif len(table) < 2:
        untestable = "the Friedman test needs several datasets and there is one"
    return Judgement(
        comparison=comparison,
        metric=metric,
        table=table,
        left_out=[name for name in whole if name not in table]
        + [name for name in comparison.methods if name not in methods],
        average_ranks=ranks,
        best=best,
        reference=CANDIDATE if CANDIDATE in ranks else best,
        all_tests=tests,
        gains=gains,
        against_baseline=_against_baseline(ranks, tests, gains, len(table) >= FEWEST),
        friedman=None if untestable else evaluation.friedman(table).p_value,
        critical_difference=None if untestable else _critical_difference(len(methods), len(table)),
        untestable=untestable,
    )


def _tests(table: Scores, reference: str, higher: bool) -> SignedRankTests:
    # In whole units of the last digit: differences of decimals are never quite equal.
    units = {
        dataset: {method: float(round(score * 10**DIGITS)) for method, score in row.items()}
        for dataset, row in table.items()
    }
    tested = evaluation.wilcoxon(units, reference=reference, higher_is_better=higher)
    found = {str(method): one for method, one in tested.items()}
    # A preset of the reference itself is shown, but does not count in the correction of p.
    rivals: dict[Hashable, float] = {
        method: one.p_value
        for method, one in found.items()
        if base_of(method) != base_of(reference)
    }
    corrected = {str(method): p for method, p in evaluation.holm(rivals).items()}
    return SignedRankTests(found, corrected)


def _against_baseline(
    ranks: dict[str, float],
    tests: dict[str, SignedRankTests],
    gains: dict[str, PairedInterval],
    enough: bool,
) -> dict[str, Verdict]:
    """Every method beside the baseline."""

    def verdict(method: str) -> Verdict:
        if len(ranks) == 1:
            return Verdict.ALONE
        if method == BASELINE:
            return Verdict.BASELINE
        if method not in gains:
            return Verdict.NO_BASELINE
        gain = gains[method]
        if gain.low is None:
            return Verdict.SINGLE_PAIR
        if gain.noise:
            return Verdict.NOISE
        better = gain.mean > 0
        winner, loser = (method, BASELINE) if better else (BASELINE, method)
        shown = enough and winner in tests and tests[winner].significant(loser)
        if better:
            return Verdict.BETTER if shown else Verdict.BETTER_NOT_SHOWN
        return Verdict.WORSE if shown else Verdict.WORSE_NOT_SHOWN

    return {method: verdict(method) for method in ranks}


_critical_difference = functools.cache(evaluation.critical_difference)  # slow quantiles
