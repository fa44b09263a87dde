"""Intervals of paired differences: what counts as independent, and what does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from d2ace.report.intervals import Pair, PairedInterval, interval

RATIO = 0.25


def pairs(differences: list[list[float]], ratio: float = RATIO) -> list[Pair]:
    """By fold, then by seed."""
    return [
        Pair(fold, seed, value, ratio)
        for fold, own in enumerate(differences)
        for seed, value in enumerate(own)
    ]


gains = st.lists(st.floats(-0.1, 0.1).map(lambda x: round(x, 4)), min_size=2, max_size=6)


@given(gains)
def test_folds_by_nadeau_and_bengio(values: list[float]) -> None:
    found = interval([pairs([[value] for value in values])])
    error = np.std(values, ddof=1) * np.sqrt(1 / len(values) + RATIO)
    half = error * stats.t.ppf(0.975, len(values) - 1)
    assert found.mean == pytest.approx(np.mean(values))
    assert (found.low, found.high) == pytest.approx((found.mean - half, found.mean + half))
    assert found.count == len(values)


@given(gains)
def test_a_second_seed_with_the_same_scores_is_no_more_evidence(values: list[float]) -> None:
    once = interval([pairs([[value] for value in values])])
    twice = interval([pairs([[value, value] for value in values])])
    assert (twice.low, twice.high) == pytest.approx((once.low, once.high))
    assert twice.count == 2 * once.count


@given(gains)
def test_seeds_of_one_fold_are_independent(values: list[float]) -> None:
    found = interval([pairs([values])])
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    assert (found.low, found.high) == pytest.approx((found.mean - half, found.mean + half))


def test_datasets_count_alike_and_their_errors_add_up() -> None:
    one, other = [0.01, 0.02, 0.03], [0.10, 0.12, 0.14]
    found = interval([pairs([[v] for v in one]), pairs([[v, v] for v in other])])
    assert found.mean == pytest.approx(0.07)
    parts = [np.var(values, ddof=1) * (1 / 3 + RATIO) / 4 for values in (one, other)]
    freedom = sum(parts) ** 2 / sum(part**2 / 2 for part in parts)  # Welch and Satterthwaite
    half = stats.t.ppf(0.975, freedom) * np.sqrt(sum(parts))
    assert (found.low, found.high) == pytest.approx((0.07 - half, 0.07 + half))
    assert found.count == 9


def test_single_runs_on_several_datasets_have_the_spread_between_datasets() -> None:
    values = [0.01, 0.03, 0.02]
    found = interval([pairs([[value]]) for value in values])
    half = stats.t.ppf(0.975, 2) * stats.sem(values)
    assert (found.low, found.high) == pytest.approx((0.02 - half, 0.02 + half))


def test_one_pair_has_no_interval_and_none_has_no_mean() -> None:
    assert str(interval([pairs([[0.01]])])) == "+0.0100"
    assert interval([pairs([[0.01]])]).noise
    assert str(interval([])) == str(interval([[]])) == "–"


def test_equal_differences_are_certain() -> None:
    found = interval([pairs([[0.02], [0.02]]), pairs([[0.04], [0.04]])])
    assert (found.low, found.high) == pytest.approx((0.03, 0.03))
    assert not found.noise


def test_a_difference_that_is_printed_as_zero_is_not_negative() -> None:
    assert str(PairedInterval(-0.00001, -0.1, -0.00004, 5)) == "+0.0000 [-0.1000, +0.0000]"
