"""Batches follow the probabilities they are drawn from, at every size."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import d2ace
from d2ace.selectors import Selector, drawing

SHAPES = {
    "flat": lambda n: np.ones(n),
    "linear": lambda n: np.arange(1, n + 1),
    "zipf": lambda n: 1.0 / np.arange(1, n + 1),
    "two levels": lambda n: np.where(np.arange(n) % 2, 100.0, 1.0),
    "one giant": lambda n: np.where(np.arange(n) == n // 3, 1e3 * n, 1.0),
    "tiny numbers": lambda n: 1e-30 * np.arange(1, n + 1),
    "pressure 100": lambda n: 100.0 ** (-np.arange(n) / n),
    "steep": lambda n: 2.0 ** (-np.minimum(np.arange(n), 40)),
}


def distribution(shape: str, n: int) -> torch.Tensor:
    weights = np.asarray(SHAPES[shape](n), dtype=np.float64)
    return torch.from_numpy(weights / weights.sum())


def first_batches(p: torch.Tensor, size: int, count: int, key: int = 0) -> np.ndarray:
    batches = drawing.weighted(p, [size] * count, (key, 1))
    return np.array(list(batches))


def successive(p: np.ndarray, size: int) -> dict[tuple[int, ...], float]:
    """Exact probability of every ordered draw without replacement."""
    result = {}
    for rows in itertools.permutations(range(len(p)), size):
        left, chance = 1.0, 1.0
        for row in rows:
            chance *= p[row] / left
            left -= p[row]
        result[rows] = chance
    return result


@pytest.mark.parametrize(("n", "size"), [(6, 2), (4, 2), (7, 3), (5, 3), (3, 3)])
def test_ordered_draws_follow_successive_sampling(n, size):
    # sizes up to n/2 are drawn by rejection, larger ones by keys: one law
    p = distribution("linear", n)
    expected = successive(p.numpy(), size)
    drawn = first_batches(p, size, 60_000)
    keys, counts = np.unique(drawn, axis=0, return_counts=True)
    observed = dict(zip(map(tuple, keys.tolist()), counts, strict=True))
    table = np.array([[observed.get(rows, 0), 60_000 * q] for rows, q in expected.items()])
    assert stats.chisquare(table[:, 0], table[:, 1]).pvalue > 1e-4


@pytest.mark.parametrize("many", [drawing.MANY, 1])
@pytest.mark.parametrize("heavy", [[8], [3, 8]])
def test_mass_on_few_rows_still_fills_the_batch_by_the_same_law(heavy, many, monkeypatch):
    # one or two rows hold nearly everything, so redrawing finds no others
    monkeypatch.setattr(drawing, "MANY", many)
    p = 1e-9 * np.arange(1.0, 13)
    p[heavy] = 0.5
    p /= p.sum()
    drawn = first_batches(torch.from_numpy(p), 4, 3_000)
    assert all(len(set(batch)) == 4 for batch in drawn.tolist())
    assert np.isin(drawn[:, : len(heavy)], heavy).all()
    light = np.delete(p, heavy) / np.delete(p, heavy).sum()
    expected = np.zeros(12 - len(heavy))
    for rows, chance in successive(light, 4 - len(heavy)).items():
        expected[list(rows)] += 3_000 * chance
    counts = np.delete(np.bincount(drawn.ravel(), minlength=12), heavy)
    share = expected / 3_000
    deviation = (counts - expected) / np.sqrt(expected * (1 - share))
    assert np.abs(deviation).max() < 4.5


def test_a_row_that_takes_everything_leaves_an_epoch_of_many_rows_in_reach():
    n, size = 200_000, 100
    p = np.full(n, math.exp(-50.0))
    p[7] = 1.0
    batches = first_batches(torch.from_numpy(p / p.sum()), size, n // size)
    assert (batches[:, 0] == 7).all()
    others = batches[:, 1:]
    assert all(len(set(batch)) == size for batch in batches.tolist())
    assert stats.chisquare(np.bincount(others.ravel() * 50 // n, minlength=50)).pvalue > 1e-4


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("n", [200, 5_000])
def test_independent_draws_match_by_chi_square(shape, n):
    p = distribution(shape, n)
    draws = 400_000
    batches = drawing.weighted(p, [100] * (draws // 100), (3, 1), replacement=True)
    counts = np.bincount(np.concatenate([np.array(batch) for batch in batches]), minlength=n)
    expected = draws * p.numpy()
    order = np.argsort(expected)  # merge rare rows until every cell expects ten
    cells = np.minimum(np.cumsum(expected[order]) // 10, 1e9).astype(np.int64)
    observed = np.bincount(np.unique(cells, return_inverse=True)[1], weights=counts[order])
    wanted = np.bincount(np.unique(cells, return_inverse=True)[1], weights=expected[order])
    assert stats.chisquare(observed, wanted).pvalue > 1e-4


@pytest.mark.parametrize("many", [drawing.MANY, 1])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_inclusion_without_replacement_matches_by_chi_square(shape, many, monkeypatch):
    monkeypatch.setattr(drawing, "MANY", many)
    n, size, count = 9, 3, 8_000
    p = distribution(shape, n).numpy()
    inclusion = np.zeros(n)
    for rows, chance in successive(p, size).items():
        inclusion[list(rows)] += chance
    drawn = first_batches(torch.from_numpy(p), size, count)
    counts = np.bincount(drawn.ravel(), minlength=n)
    deviation = (counts - count * inclusion) / np.sqrt(count * inclusion * (1 - inclusion) + 1e-9)
    assert np.abs(deviation).max() < 5.5


@given(
    n=st.integers(1, 60),
    size=st.integers(1, 70),
    seed=st.integers(0, 2**31),
    shape=st.sampled_from(list(SHAPES)),
    replacement=st.booleans(),
)
def test_every_epoch_has_the_right_sizes_and_no_repeats(n, size, seed, shape, replacement):
    sizes = drawing.batch_sizes(n, size)
    assert sum(sizes) == n
    assert len(sizes) == math.ceil(n / size)
    p = distribution(shape, n)
    batches = list(drawing.weighted(p, sizes, (seed, 2), replacement=replacement))
    assert [len(batch) for batch in batches] == sizes
    for batch in batches:
        assert all(0 <= row < n for row in batch)
        assert replacement or len(set(batch)) == len(batch)
    start = len(sizes) // 2
    assert (
        list(drawing.weighted(p, sizes, (seed, 2), start, replacement=replacement))
        == (batches[start:])
    )


def test_an_epoch_goes_on_at_any_block():
    p = distribution("zipf", 300_000)
    sizes = drawing.batch_sizes(300_000, 100)
    whole = list(drawing.weighted(p, sizes, (0, 1)))
    for start in (1, 654, 655, 656, 2999):
        assert list(drawing.weighted(p, sizes, (0, 1), start)) == whole[start:]


class ByNumber(Selector):
    """Weighs rows by their number: cheap at any size."""

    name = "by_number"
    pressure = 4.0

    def instance_weights(self):
        return {"number": torch.arange(self.n, dtype=torch.float64)}


@pytest.mark.parametrize("n", [1, 2, 127, 129, 2**24 - 1, 2**24, 2**24 + 1, 2**25])
def test_no_limit_on_rows(n):
    selector = ByNumber(np.zeros((n, 1), dtype=np.uint8), warmup=0, batch_size=128)
    rows = np.concatenate([np.array(b) for b in itertools.islice(iter(selector), 800)])
    assert rows.min() >= 0
    assert rows.max() < n
    if n > 10_000:
        # P falls from 4 to 1 over the rows: the exact share of the upper half is 2/3
        upper = (rows >= n / 2).mean()
        assert abs(upper - 2 / 3) < 5 * math.sqrt(2 / 9 / rows.size)
        thirds = np.bincount(rows * 12 // n, minlength=12)
        edges = 4.0 ** (np.arange(13) / 12)
        assert stats.chisquare(thirds, rows.size * np.diff(edges) / (edges[-1] - 1)).pvalue > 1e-4


def test_reference_baselines_draw_full_batches():
    y = np.eye(10, 3, dtype=np.uint8)
    selector = d2ace.Active(y, batch_size=4, warmup=1, preset="reference")
    assert [len(batch) for batch in selector] == [4, 4, 2]
    assert len(selector.sampler) == 12
    selector.observe([0], probs=np.full((1, 3), 0.5))
    assert [len(batch) for batch in selector] == [4, 4, 4]


def test_reference_warmup_keeps_the_stored_order():
    y = np.eye(10, 3, dtype=np.uint8)
    for name in ("random", "d2ace"):
        selector = d2ace.make_selector(name, y, batch_size=4, preset="reference")
        assert list(selector) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


class TestLemma2:
    """Weighted mini-batch means are unbiased under i.i.d. draws."""

    def test_by_enumeration(self):
        rng = np.random.default_rng(0)
        n, b = 4, 3
        losses = rng.normal(size=n)
        selector = d2ace.D2ACE(
            rng.integers(0, 2, (n, 3)),
            batch_size=b,
            warmup=1,
            replacement=True,
            importance_weighting=True,
            dtype=torch.float64,
        )
        for batch in selector:
            selector.observe(batch, probs=rng.random((len(batch), 3)))
        p = selector.probabilities.numpy()
        next(iter(selector))
        expectation = 0.0
        for batch in itertools.product(range(n), repeat=b):
            weight = selector.loss_weight(list(batch)).numpy().ravel()
            expectation += p[list(batch)].prod() * (weight * losses[list(batch)]).mean()
        assert expectation == pytest.approx(losses.mean(), rel=1e-12)

    def test_weights_are_bounded_by_the_pressure(self):
        rng = np.random.default_rng(1)
        selector = d2ace.D2ACE(
            rng.integers(0, 2, (50, 3)), warmup=1, batch_size=8, importance_weighting=True
        )
        for batch in selector:
            selector.observe(batch, probs=rng.random((len(batch), 3)))
        for batch in selector:
            weight = selector.loss_weight(batch)
            assert float(weight.max()) <= 100.0
            assert float(weight.min()) > 0.0
