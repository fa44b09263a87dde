"""Epochs drawn as a whole: systematic sampling (``draw="epoch"``) and subsets (``draw="once"``)."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from d2ace.selectors import Selector, drawing, whole_epochs

WAYS = {"epoch": whole_epochs.systematic, "once": whole_epochs.once}
P = np.array([0.05, 0.1, 0.2, 0.3, 0.35])
SHAPES = {
    "flat": lambda n: np.ones(n),
    "linear": lambda n: np.arange(1.0, n + 1),
    "pressure 100": lambda n: 100.0 ** (-np.arange(n) / n),
    "steep": lambda n: 2.0 ** (-np.minimum(np.arange(n), 40)),
    "one giant": lambda n: np.where(np.arange(n) == n // 3, 1.0, 1e-20),
    "denormal": lambda n: np.where(np.arange(n) % 3 == 0, 1.0, 5e-324),
}


def distribution(shape: str, n: int) -> torch.Tensor:
    weights = SHAPES[shape](n)
    return torch.from_numpy(np.maximum(weights / weights.sum(), 5e-324))


def counts(batches: Iterator[list[int]], n: int) -> np.ndarray:
    return np.bincount([row for batch in batches for row in batch], minlength=n)


def exact_counts(expected: np.ndarray) -> dict[tuple[int, ...], float]:
    """The probability of every vector of counts: all orders, all places of the first point."""
    whole = np.floor(expected).astype(int)
    law: Counter[tuple[int, ...]] = Counter()
    orders = list(itertools.permutations(range(len(expected))))
    for order in orders:
        edges = np.cumsum((expected - whole)[list(order)])
        starts = np.unique(np.concatenate([[0.0, 1.0], -edges % 1.0]))  # between these, no change
        for low, high in itertools.pairwise(starts):
            more = np.diff(np.floor(edges + (low + high) / 2), prepend=0.0).astype(int)
            drawn = whole.copy()
            drawn[list(order)] += more
            law[tuple(drawn.tolist())] += (high - low) / len(orders)
    return law


def successive_subsets(p: np.ndarray, size: int) -> dict[tuple[int, ...], float]:
    """The probability of every subset drawn row by row without replacement."""
    law: Counter[tuple[int, ...]] = Counter()
    for rows in itertools.permutations(range(len(p)), size):
        left, chance = 1.0, 1.0
        for row in rows:
            chance *= p[row] / left
            left -= p[row]
        law[tuple(sorted(rows))] += chance
    return law


def assert_law(drawn: list[tuple[int, ...]], law: dict[tuple[int, ...], float]) -> None:
    found = Counter(drawn)
    likely = {case: chance for case, chance in law.items() if chance * len(drawn) > 1e-6}
    assert found.keys() <= likely.keys()
    table = np.array([[found[case], chance * len(drawn)] for case, chance in likely.items()])
    common = table[table[:, 1] >= 5.0]
    rare = table[table[:, 1] < 5.0].sum(axis=0, keepdims=True)
    table = np.concatenate([common, rare]) if rare[0, 1] >= 5.0 else common
    table[:, 1] *= table[:, 0].sum() / table[:, 1].sum()
    assert stats.chisquare(table[:, 0], table[:, 1]).pvalue > 1e-4


class TestSystematic:
    """``draw="epoch"``."""

    @pytest.mark.parametrize("m", [5, 4])
    def test_counts_follow_the_enumerated_law(self, m):
        law = exact_counts(m * P)
        for case, chance in [
            ("mean", sum(q * np.array(c) for c, q in law.items())),
            ("variance", sum(q * (np.array(c) - m * P) ** 2 for c, q in law.items())),
        ]:  # the oracle itself: expectation m P, variance f (1 - f) of the fractional part f
            part = m * P - np.floor(m * P)
            wanted = m * P if case == "mean" else part * (1 - part)
            assert chance == pytest.approx(wanted, abs=1e-12)
        sizes = [1] * m  # so many batches that any row fits
        drawn = [
            tuple(
                counts(whole_epochs.systematic(torch.from_numpy(P), sizes, (seed, 1)), 5).tolist()
            )
            for seed in range(6_000)
        ]
        assert_law(drawn, law)

    def test_mean_and_variance_of_counts_at_a_larger_size(self):
        n, batch, epochs = 300, 20, 1_500
        p, sizes = distribution("pressure 100", n), drawing.batch_sizes(n, batch)
        found = np.array(
            [counts(whole_epochs.systematic(p, sizes, (seed, 3)), n) for seed in range(epochs)]
        )
        expected = n * p.numpy()
        part = expected - np.floor(expected)
        assert ((found == np.floor(expected)) | (found == np.ceil(expected))).all()
        error = (found.mean(axis=0) - expected) / np.sqrt(part * (1 - part) / epochs)
        assert stats.chi2.sf((error**2).sum(), n) > 1e-4
        assert found.var(axis=0) == pytest.approx(part * (1 - part), abs=0.06)

    @given(
        n=st.integers(1, 40),
        batch=st.integers(1, 45),
        share=st.floats(0.01, 1.0),
        shape=st.sampled_from(list(SHAPES)),
        seed=st.integers(0, 2**31),
    )
    def test_copies_are_floor_or_ceiling_and_never_share_a_batch(
        self, n, batch, share, shape, seed
    ):
        p, m = distribution(shape, n), max(1, int(share * n))
        sizes = drawing.batch_sizes(m, batch)
        batches = list(whole_epochs.systematic(p, sizes, (seed, 2)))
        assert [len(rows) for rows in batches] == sizes
        assert all(len(set(rows)) == len(rows) for rows in batches)
        drawn, expected = counts(iter(batches), n), m * p.numpy()
        assert drawn.max() <= len(sizes)
        if p.max() <= 1.0 / sizes[0]:  # then all copies fit
            assert (drawn >= np.floor(expected + 1e-9)).all()
            assert (drawn <= np.ceil(expected - 1e-9)).all()

    @pytest.mark.parametrize(("n", "batch"), [(1, 1), (7, 3), (60, 7), (200, 128), (1000, 128)])
    def test_uniform_p_gives_permutations(self, n, batch):
        p, sizes = distribution("flat", n), drawing.batch_sizes(n, batch)
        orders = set()
        for seed in range(20):
            rows = [row for b in whole_epochs.systematic(p, sizes, (seed, 1)) for row in b]
            assert sorted(rows) == list(range(n))
            orders.add(tuple(rows))
        assert len(orders) == min(20, math.factorial(min(n, 10)))

    def test_uniform_p_puts_any_two_rows_together_as_often(self):
        sizes, epochs = drawing.batch_sizes(12, 5), 4_000  # batches of 5, 5 and 2
        p, together = distribution("flat", 12), np.zeros((12, 12))
        for seed in range(epochs):
            for batch in whole_epochs.systematic(p, sizes, (seed, 1)):
                together[np.ix_(batch, batch)] += 1
        pairs = together[np.triu_indices(12, 1)] / epochs
        chance = (10 + 10 + 1) / 66
        assert np.abs(pairs - chance).max() < 4.5 * math.sqrt(chance * (1 - chance) / epochs)

    @pytest.mark.parametrize(
        ("n", "batch"), [(200, 128), (129, 128), (300, 128), (9, 4), (1000, 128)]
    )
    def test_a_giant_row_is_in_every_batch_and_the_others_share_the_rest(self, n, batch):
        """Also where the last batch is short: a row has as many copies as there are batches."""
        p, sizes = distribution("one giant", n), drawing.batch_sizes(n, batch)
        seen = np.zeros(n)
        for seed in range(200):
            batches = list(whole_epochs.systematic(p, sizes, (seed, 1)))
            assert all(n // 3 in rows and len(set(rows)) == len(rows) for rows in batches)
            seen += counts(iter(batches), n)
        others = np.delete(seen, n // 3)
        assert others.sum() == 200 * (n - len(sizes))
        assert others.max() <= 200
        assert (others > 200 * (1 - len(sizes) / n) - 40).all()

    def test_few_batches_still_prefer_the_likely_rows(self):
        """Two batches, of which the last is short: a row may be in both, and likely rows are."""
        n, sizes = 200, drawing.batch_sizes(200, 128)
        p = distribution("pressure 100", n)
        drawn = sum(counts(whole_epochs.systematic(p, sizes, (seed, 1)), n) for seed in range(300))
        mean = drawn / 300
        assert mean[:10].min() > 1.9
        assert mean[-10:].max() < 0.3
        assert (np.diff(mean.reshape(20, 10).mean(axis=1)) < 0.02).all()

    def test_what_does_not_fit_goes_to_the_others_in_proportion(self):
        p = np.array([0.6, 0.2, 0.1, 0.1])
        # four draws in four batches: 2.4, .8, .4, .4 fit; in two batches of two 2, and .5 .25 .25
        # of the two draws left
        assert whole_epochs.expected_copies(p, [1, 1, 1, 1]) == pytest.approx([2.4, 0.8, 0.4, 0.4])
        assert whole_epochs.expected_copies(p, [2, 2]) == pytest.approx([2.0, 1.0, 0.5, 0.5])
        # of a batch of two rows the first is one, and .5 .25 .25 the other; of one row, P
        assert whole_epochs.expected_copies(p, [2, 1]) == pytest.approx([1.6, 0.7, 0.35, 0.35])
        assert whole_epochs.expected_copies(p, [4]) == pytest.approx([1.0, 1.0, 1.0, 1.0])


class TestOnce:
    """``draw="once"``."""

    @pytest.mark.parametrize("m", [1, 2, 4])
    def test_subsets_follow_the_law_of_successive_sampling(self, m):
        p, sizes = torch.from_numpy(P), drawing.batch_sizes(m, 2)
        drawn = [
            tuple(sorted(row for batch in whole_epochs.once(p, sizes, (seed, 1)) for row in batch))
            for seed in range(8_000)
        ]
        assert_law(drawn, successive_subsets(P, m))

    def test_the_order_within_the_subset_is_random(self):
        """Likely rows do not come first: the first of two is either with equal chance."""
        p = torch.tensor([0.98, 0.01, 0.01], dtype=torch.float64)
        first = Counter(next(whole_epochs.once(p, [1, 1], (seed, 1)))[0] for seed in range(4_000))
        assert abs(first[0] / 4_000 - 0.5) < 0.04

    def test_uniform_p_gives_permutations(self):
        p = distribution("flat", 60)
        for seed in range(20):
            rows = [
                row
                for b in whole_epochs.once(p, drawing.batch_sizes(60, 7), (seed, 1))
                for row in b
            ]
            assert sorted(rows) == list(range(60))

    def test_probabilities_too_small_to_divide_by_are_ranked_like_others(self):
        """1/5e-324 is infinite: without care the rows that stand first would be drawn always."""
        p = np.full(40, 5e-324)
        p[0] = 1.0
        drawn = sum(
            counts(whole_epochs.once(torch.from_numpy(p), [10], (seed, 1)), 40)
            for seed in range(1_000)
        )
        assert drawn[0] == 1_000
        assert stats.chisquare(drawn[1:]).pvalue > 1e-4


@given(
    n=st.integers(1, 40),
    batch=st.integers(1, 45),
    share=st.floats(0.01, 1.0),
    shape=st.sampled_from(list(SHAPES)),
    seed=st.integers(0, 2**31),
    draw=st.sampled_from(list(WAYS)),
)
def test_an_epoch_goes_on_at_any_batch(n, batch, share, shape, seed, draw):
    p, sizes = distribution(shape, n), drawing.batch_sizes(max(1, int(share * n)), batch)
    whole = list(WAYS[draw](p, sizes, (seed, 4)))
    assert [len(rows) for rows in whole] == sizes
    assert draw == "epoch" or len({row for rows in whole for row in rows}) == sum(sizes)
    for start in {0, len(sizes) // 2, len(sizes) - 1, len(sizes)}:
        assert list(WAYS[draw](p, sizes, (seed, 4), start)) == whole[start:]


class ByNumber(Selector):
    """Weighs rows by their number: cheap at any size."""

    name = "by_number"
    pressure = 4.0

    def instance_weights(self):
        return {"number": torch.arange(self.n, dtype=torch.float64)}


@pytest.mark.parametrize(
    "n",
    [
        2**18,
        pytest.param(2**24 + 1, marks=pytest.mark.slow),
        pytest.param(2**25, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(("draw", "share"), [("epoch", 1.0), ("once", 0.25)])
def test_no_limit_on_rows(n, draw, share):
    """P rises from 1 to 4 with the number of the row."""
    selector = ByNumber(
        np.zeros((n, 1), dtype=np.uint8), warmup=0, batch_size=128, draw=draw, rows_per_epoch=share
    )
    assert selector.rows_per_epoch == round(share * n)
    found = np.zeros(n, dtype=np.int32)
    for batch in selector:
        found[batch] += 1  # no row twice in a batch
    assert found.sum() == round(share * n)
    tenths = found[: n // 10 * 10].reshape(10, -1).mean(axis=1)
    edges = 4.0 ** (np.arange(11) / 10)
    density = 10 * np.diff(edges) / (edges[-1] - 1)
    if draw == "epoch":
        assert tenths == pytest.approx(density, rel=0.01)
        assert set(np.unique(found).tolist()) == {0, 1, 2}
    else:
        assert found.max() == 1
        # successive sampling: row i is in with probability 1 - exp(-c P_i)
        fits = -np.log1p(-tenths) / density
        assert fits == pytest.approx(fits.mean(), rel=0.06)
