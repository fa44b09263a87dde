"""How sure a mean difference between two methods is, from runs paired by dataset, fold and seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from d2ace.evaluation import student_interval

HOW = (
    "Intervals are over folds, with seeds averaged and the variance enlarged because folds share "
    "training rows (Nadeau and Bengio), or over the seeds of a single fold; over several datasets "
    "of which one has a single pair of runs, between datasets."
)
"""For captions."""


class Pair(NamedTuple):
    """Two runs of one fold and seed: the difference of their scores, positive is better."""

    fold: int
    seed: int
    difference: float
    test_to_train: float
    """Rows tested over rows trained on."""


@dataclass(frozen=True)
class PairedInterval:
    """A mean and its 95 % interval, which one value does not have."""

    mean: float
    low: float | None
    high: float | None
    count: int
    between_datasets: bool = False
    """Whether it is the spread between datasets, because one of them has a single pair of runs."""
    p_value: float | None = None
    """Of Student's test that the mean is zero, two-sided."""

    @property
    def noise(self) -> bool:
        """Whether no difference at all is among what is plausible."""
        return self.low is None or self.high is None or self.low <= 0 <= self.high

    def __str__(self) -> str:
        return f"{self.mean_text} {self.range_text}".strip()

    @property
    def mean_text(self) -> str:
        """The mean as printed; a dash for nothing."""
        return plus(self.mean) if self.count else "–"

    @property
    def range_text(self) -> str:
        """The interval as printed; empty where there is none."""
        if self.low is None or self.high is None:
            return ""
        return f"[{plus(self.low)}, {plus(self.high)}]"


def plus(difference: float) -> str:
    """A difference with its sign; one that is printed as zero has a plus."""
    return f"{round(difference, 4) + 0.0:+.4f}"


class _Spread(NamedTuple):
    """A mean on one dataset, the variance of that mean, and its degrees of freedom."""

    mean: float
    variance: float
    freedom: float


def interval(datasets: Iterable[Sequence[Pair]]) -> PairedInterval:
    """The mean over datasets of paired differences, and its 95 % interval over folds and seeds.

    It holds for these datasets, which count equally. If one of them has a single pair of runs, the
    interval uses the spread between datasets instead.
    """
    there = [pairs for pairs in datasets if pairs]
    count = sum(map(len, there))
    if not there:
        return PairedInterval(float("nan"), None, None, 0)
    spreads = [_on_one(pairs) for pairs in there]
    joined = _joined(spreads)
    whole = joined or _plain([spread.mean for spread in spreads])
    if np.isnan(whole.variance):
        return PairedInterval(whole.mean, None, None, count)
    found = student_interval(whole.mean, whole.variance, whole.freedom)
    return PairedInterval(
        found.mean, found.low, found.high, count, joined is None, _two_sided(whole)
    )


def over_folds(values: Iterable[tuple[int, float]]) -> float:
    """The mean of values by fold, seeds averaged within a fold first; NaN of nothing.

    Otherwise a fold with more seeds would count more than in the interval beside it.
    """
    found = list(values)
    folds: dict[int, list[float]] = {}
    for fold, value in found:
        folds.setdefault(fold, []).append(value)
    if not folds:
        return float("nan")
    if len({len(own) for own in folds.values()}) == 1:  # the plain mean, to the last bit
        return float(np.mean([value for _, value in found]))
    return float(np.mean([np.mean(own) for own in folds.values()]))


def _on_one(pairs: Sequence[Pair]) -> _Spread:
    """Between folds, or between seeds where there is one fold."""
    folds: dict[int, list[float]] = {}
    for pair in pairs:
        folds.setdefault(pair.fold, []).append(pair.difference)
    if len(folds) == 1:
        return _plain([pair.difference for pair in pairs])
    means = np.array([np.mean(differences) for differences in folds.values()])
    shared = float(np.mean([pair.test_to_train for pair in pairs]))
    variance = float(means.var(ddof=1)) * (1 / means.size + shared)
    return _Spread(float(means.mean()), variance, means.size - 1)


def _plain(values: Sequence[float]) -> _Spread:
    """Of independent values; NaN where a single one has no spread."""
    if len(values) == 1:
        return _Spread(float(values[0]), float("nan"), 0)
    return _Spread(
        float(np.mean(values)), float(np.var(values, ddof=1)) / len(values), len(values) - 1
    )


def _two_sided(whole: _Spread) -> float:
    """The p-value of a mean this far from zero; without any spread it is sure."""
    if not whole.variance:
        return float(whole.mean == 0)
    p = 2 * float(special.stdtr(whole.freedom, -abs(whole.mean) / np.sqrt(whole.variance)))
    return 1.0 if np.isnan(p) else p  # of numbers too large to be squared


def _joined(spreads: Sequence[_Spread]) -> _Spread | None:
    """The mean of means, its degrees of freedom by Welch and Satterthwaite; None without spread."""
    parts = np.array([spread.variance for spread in spreads]) / len(spreads) ** 2
    if np.isnan(parts).any():
        return None
    total = float(parts.sum())
    freedoms = np.array([spread.freedom for spread in spreads], dtype=float)
    below = float((parts**2 / freedoms).sum())
    freedom = total**2 / below if below else float(freedoms.sum())
    return _Spread(float(np.mean([spread.mean for spread in spreads])), total, freedom)
