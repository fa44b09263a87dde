"""Which method is better over several datasets: ranks, tests, effect sizes, intervals.

A table has a row per dataset and a column per method: a DataFrame, ``{dataset: {method: score}}``,
or an array (datasets and methods then go by their numbers). A missing cell is an error.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import special

from .inputs import Array
from .table import Table, as_table

Ties = Literal["min", "average"]


@dataclass(frozen=True)
class Comparison:
    """The reference method against another one over all datasets.

    ``verdict`` is "win" where the reference is better at the level of the test, "loss" where it is
    worse by the test of the other side, "tie" else. ``rank_biserial`` is the effect size of the
    signed ranks, from -1 (worse everywhere) to 1 (better everywhere). ``mean_difference`` is in the
    metric's units, positive where the reference is better. The last three count datasets.
    """

    p_value: float
    verdict: Literal["win", "tie", "loss"]
    rank_biserial: float
    mean_difference: float
    better: int
    equal: int
    worse: int


@dataclass(frozen=True)
class Friedman:
    """Statistic of the Friedman test and its p-value."""

    statistic: float
    p_value: float


@dataclass(frozen=True)
class Interval:
    """A mean and the bounds of its confidence interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Equivalence:
    """Whether a mean difference is smaller than a margin, and whether it is zero.

    ``low`` and ``high`` bound the interval of level 1 - 2 alpha, which lies within the margin
    exactly where both one-sided tests reject. ``p_equivalent`` is the larger p-value of these two,
    ``p_different`` that of the two-sided test of a mean of zero.
    """

    verdict: Literal["better", "equivalent", "worse", "undecided"]
    mean: float
    low: float
    high: float
    p_equivalent: float
    p_different: float


def ranks(
    table: Any, higher_is_better: bool = True, ties: Ties = "min"
) -> dict[Hashable, dict[Hashable, float]]:
    """Rank of every method on every dataset, 1 the best, as ``{dataset: {method: rank}}``.

    Equal scores share the lowest of their ranks, as in the paper, or with ``ties="average"`` the
    mean of them, as the Friedman test does.
    """
    checked = as_table(table)
    found = _ranked(checked, higher_is_better, ties)
    return {
        dataset: dict(zip(checked.methods, row, strict=True))
        for dataset, row in zip(checked.datasets, found.tolist(), strict=True)
    }


def average_ranks(
    table: Any, higher_is_better: bool = True, ties: Ties = "min"
) -> dict[Hashable, float]:
    """Mean over datasets of the `ranks` of every method; the best has the lowest."""
    checked = as_table(table)
    means = _ranked(checked, higher_is_better, ties).mean(axis=0)
    return dict(zip(checked.methods, means.tolist(), strict=True))


def wilcoxon(
    table: Any, reference: Hashable = "D2ACE", higher_is_better: bool = True, alpha: float = 0.05
) -> dict[Hashable, Comparison]:
    """Is ``reference`` better? The one-sided Wilcoxon signed-rank test against every other method.

    As in the paper: zero differences are dropped, the normal approximation with the correction of
    the variance for ties and without that for continuity. Without any difference p is 1.
    """
    checked = as_table(table)
    sign = 1 if higher_is_better else -1
    own = checked.column(reference)
    return {
        method: _signed_ranks(sign * (own - checked.column(method)), _share("alpha", alpha))
        for method in checked.methods
        if method != reference
    }


def holm(p_values: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """p-values adjusted for their number by Holm's step-down procedure, under the same names."""
    given = np.asarray(list(p_values.values()), dtype=np.float64)
    for name, value in p_values.items():
        if not 0 <= value <= 1:
            raise ValueError(f"the p-value of {name!r} must be in [0, 1], got {value}.")
    order = np.argsort(given, kind="stable")
    steps = given[order] * np.arange(given.size, 0, -1)
    adjusted = np.empty_like(given)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return dict(zip(p_values, adjusted.tolist(), strict=True))


def friedman(table: Any) -> Friedman:
    """Do the methods differ at all? The Friedman test over datasets, corrected for ties.

    Whether higher or lower scores are better makes no difference. If all methods are equal on
    every dataset the statistic is 0 and p is 1.
    """
    checked = as_table(table)
    n, k = checked.values.shape
    rank = _ranked(checked, True, "average")
    spread = ((rank - (k + 1) / 2) ** 2).sum()  # n k (k² - 1) / 12 without ties
    if spread == 0:
        return Friedman(0.0, 1.0)
    between = ((rank.mean(axis=0) - (k + 1) / 2) ** 2).sum()
    statistic = float(n * n * (k - 1) * between / spread)
    return Friedman(statistic, float(special.chdtrc(k - 1, statistic)))


def critical_difference(n_methods: int, n_datasets: int, alpha: float = 0.05) -> float:
    """How far average ranks must be apart to differ significantly (Nemenyi test).

    q_α √(k (k + 1) / (6 N)) for k methods on N datasets, q_α the quantile of the studentised range
    over √2.
    """
    if n_methods < 2 or n_datasets < 1:
        raise ValueError(
            f"a critical difference needs at least two methods and one dataset, "
            f"got {n_methods} and {n_datasets}."
        )
    from scipy.stats import studentized_range  # most of a second, which no training run needs

    level = 1 - _share("alpha", alpha)
    quantile = float(studentized_range.ppf(level, n_methods, np.inf)) / math.sqrt(2)
    return quantile * math.sqrt(n_methods * (n_methods + 1) / (6 * n_datasets))


def similar_methods(
    average_ranks: Mapping[Hashable, float], difference: float
) -> list[tuple[Hashable, ...]]:
    """Groups of methods whose average ranks are within ``difference``, best first.

    The bars of a critical-difference diagram: each group is as large as can be, none lies within
    another, a method alone is no group.
    """
    ordered = sorted(average_ranks.items(), key=lambda item: item[1])
    names, values = [name for name, _ in ordered], np.array([rank for _, rank in ordered])
    groups: list[tuple[Hashable, ...]] = []
    reached = 0
    for begin, rank in enumerate(values):
        end = int(np.searchsorted(values, rank + difference, side="right"))
        if end > reached and end - begin > 1:
            groups.append(tuple(names[begin:end]))
            reached = end
    return groups


def confidence_interval(
    differences: Iterable[float], level: float = 0.95, test_to_train: float = 0.0
) -> Interval:
    """Student's t interval of the mean of paired differences, e.g. over folds or seeds.

    Folds share training rows, so that their differences are not independent and the plain interval
    is too narrow. Given ``test_to_train``, the rows tested over the rows trained on in a fold (1/4
    of five folds), k differences have the variance s² (1/k + test_to_train) of Nadeau and Bengio
    (2003).
    """
    values = _differences("a confidence interval", differences)
    if not 0 <= test_to_train < math.inf:
        raise ValueError(f"test_to_train must be a ratio from 0 up, got {test_to_train}.")
    variance = float(values.var(ddof=1)) * (1 / values.size + test_to_train)
    return student_interval(float(values.mean()), variance, values.size - 1, level)


def student_interval(mean: float, variance: float, freedom: float, level: float = 0.95) -> Interval:
    """Student's t interval of a mean with this variance and these degrees of freedom."""
    half = math.sqrt(variance) * float(special.stdtrit(freedom, (1 + _share("level", level)) / 2))
    return Interval(mean, mean - half, mean + half)


def equivalence(differences: Iterable[float], margin: float, alpha: float = 0.05) -> Equivalence:
    """Is the mean of paired differences, one per dataset, within ±``margin``?

    Two one-sided t tests (Schuirmann, 1987), each at level ``alpha``, against a mean of -margin or
    less and of margin or more. If both reject, the verdict is "equivalent", also where the mean is
    surely not zero. Otherwise it is "better" or "worse" where the two-sided t test of a mean of
    zero rejects at ``alpha``, and "undecided" where that does not reject either.
    Differences are positive where the method is better.
    """
    values = _differences("a test of equivalence", differences)
    if not 0 < margin < math.inf:
        raise ValueError(f"margin must be a positive number in the metric's units, got {margin}.")
    mean, freedom = float(values.mean()), values.size - 1
    variance = float(values.var(ddof=1)) / values.size
    interval = student_interval(mean, variance, freedom, 1 - 2 * _share("alpha", alpha, 0.5))
    p_equivalent = max(
        _upper_tail(mean + margin, variance, freedom), _upper_tail(margin - mean, variance, freedom)
    )
    p_different = min(1.0, 2 * _upper_tail(abs(mean), variance, freedom))
    verdict: Literal["better", "equivalent", "worse", "undecided"] = "undecided"
    if p_equivalent < alpha:
        verdict = "equivalent"
    elif p_different < alpha:
        verdict = "better" if mean > 0 else "worse"
    return Equivalence(verdict, mean, interval.low, interval.high, p_equivalent, p_different)


def _differences(what: str, given: Iterable[float]) -> Array:
    """At least two finite numbers."""
    values = np.asarray(list(given), dtype=np.float64)
    if values.ndim != 1 or values.size < 2:
        raise ValueError(f"{what} needs at least two differences, got {values.size}.")
    if not np.isfinite(values).all():
        where = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"difference {where} is {values[where]}; all must be finite.")
    return values


def _upper_tail(distance: float, variance: float, freedom: float) -> float:
    """The p-value of Student's test that a mean lies this far above a bound; sure if all agree."""
    if variance == 0:
        return 0.0 if distance > 0 else 0.5 if distance == 0 else 1.0
    return float(special.stdtr(freedom, -distance / math.sqrt(variance)))


def _ranked(table: Table, higher_is_better: bool, ties: Ties) -> Array:
    if ties not in ("min", "average"):
        raise ValueError(f"ties must be 'min' or 'average', got {ties!r}.")
    values = -table.values if higher_is_better else table.values
    lowest, middle = _rank_from_one(values)
    return lowest if ties == "min" else middle


def _rank_from_one(values: Array) -> tuple[Array, Array]:
    """Ranks within each row, the smallest value first: the lowest and the mean of tied ranks."""
    here, other = values[:, :, None], values[:, None, :]
    lower = np.count_nonzero(other < here, axis=2)
    level = np.count_nonzero(other <= here, axis=2)
    return lower + 1.0, (lower + 1 + level) / 2


def _signed_ranks(difference: Array, alpha: float) -> Comparison:
    """The test on differences that are positive where the reference is better."""
    nonzero = difference[difference != 0]
    n = nonzero.size
    better = int(np.count_nonzero(nonzero > 0))
    p_value = p_worse = 1.0
    effect = 0.0
    if n:
        rank = _rank_from_one(np.abs(nonzero)[None])[1][0]
        total = n * (n + 1) / 2
        positive = float(rank[nonzero > 0].sum())
        _, tied = np.unique(rank, return_counts=True)
        variance = n * (n + 1) * (2 * n + 1) / 24 - float((tied**3 - tied).sum()) / 48
        z = (positive - total / 2) / math.sqrt(variance)
        p_value, p_worse = float(special.ndtr(-z)), float(special.ndtr(z))
        effect = 2 * positive / total - 1
    verdict: Literal["win", "tie", "loss"] = "tie"
    if min(p_value, p_worse) < alpha:
        verdict = "win" if p_value < alpha else "loss"
    mean = float(difference.mean())
    return Comparison(p_value, verdict, effect, mean, better, difference.size - n, n - better)


def _share(name: str, value: float, below: float = 1) -> float:
    if not 0 < value < below:
        raise ValueError(f"{name} must be between 0 and {below}, got {value}.")
    return value
