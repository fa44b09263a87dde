"""Exact neighbours: dense and sparse, duplicates and ties, without an n x n matrix."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2ace.selectors import neighbors
from d2ace.selectors._engine import exact_search
from d2ace.selectors._engine.inputs import feature_matrix
from d2ace.selectors.neighbors import local_labels, nearest, neighbor_index


def slow_nearest(x: np.ndarray, k: int, include_self: bool = False) -> np.ndarray:
    n = len(x)
    found = []
    for i in range(n):
        distance = ((x - x[i]) ** 2).sum(axis=1)
        order = sorted(range(n), key=lambda j: (distance[j], j))
        found.append([j for j in order if include_self or j != i][:k])
    return np.array(found, dtype=np.int64).reshape(n, -1)


@given(
    n=st.integers(1, 150),
    d=st.integers(1, 5),
    k=st.integers(0, 12),
    seed=st.integers(0, 2**31),
    kind=st.sampled_from(["continuous", "integers", "binary", "constant", "far away"]),
    include_self=st.booleans(),
    sparse=st.booleans(),
)
def test_equals_brute_force(n, d, k, seed, kind, include_self, sparse):
    rng = np.random.default_rng(seed)
    x = {
        "continuous": lambda: rng.normal(size=(n, d)),
        "integers": lambda: rng.integers(0, 4, (n, d)).astype(float),
        "binary": lambda: (rng.random((n, d)) < 0.2).astype(float),
        "constant": lambda: np.ones((n, d)),
        "far away": lambda: 1e4 + rng.integers(0, 50, (n, d)),
    }[kind]()
    features = feature_matrix(sp.csr_array(x) if sparse else x, n)
    found = nearest(features, k, include_self=include_self)
    assert np.array_equal(found.numpy(), slow_nearest(x, k, include_self))


@pytest.mark.parametrize(
    ("kind", "per_row"),
    [("outlier", 60), ("duplicates", 120), ("two clusters far apart", 60)],
)
def test_few_pairs_are_measured_twice(kind, per_row, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1_000, 20))
    if kind == "outlier":
        x[0, 0] = 1e6
    elif kind == "duplicates":
        x[:] = 0.3
    else:
        x[::2] += 1e6
    sizes, measured = [], exact_search.DenseRows.exact_distances

    def counted(self, rows, columns):
        sizes.append(columns.numel())
        return measured(self, rows, columns)

    monkeypatch.setattr(exact_search.DenseRows, "exact_distances", counted)
    assert np.array_equal(nearest(torch.from_numpy(x), 6).numpy(), slow_nearest(x, 6))
    assert sum(sizes) < per_row * len(x)
    assert len(sizes) < len(x) / 4


def test_blocks_do_not_matter(monkeypatch):
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(1_500, 6)))
    whole = nearest(x, 7)
    monkeypatch.setattr(neighbors, "BLOCK", 1 << 12)  # two rows at a time
    assert torch.equal(nearest(x, 7), whole)
    assert torch.equal(nearest(sp.csr_array(x.numpy()), 7), whole)


def test_a_ready_index_is_checked():
    good = neighbor_index([[1], [0]], 2)
    assert good.tolist() == [[1], [0]]
    with pytest.raises(ValueError, match=r"neighbors holds 2, but rows run from 0 to 1"):
        neighbor_index([[1], [2]], 2)
    with pytest.raises(ValueError, match=r"neighbors must be .* \[2, K\]"):
        neighbor_index([[0.5], [1.0]], 2)


@given(
    n=st.integers(1, 30),
    q=st.integers(1, 6),
    k=st.integers(0, 4),
    seed=st.integers(0, 2**31),
    include_self=st.booleans(),
)
def test_local_labels(n, q, k, seed, include_self):
    rng = np.random.default_rng(seed)
    y = (rng.random((n, q)) < 0.3).astype(np.uint8)
    around = rng.integers(0, n, (n, k))
    z = local_labels(sp.csr_array(y), torch.from_numpy(around), include_self=include_self)
    for i in range(n):
        near = [*around[i], i] if include_self else list(around[i])
        expected = y[near].any(axis=0) if near else np.zeros(q, dtype=bool)
        assert np.array_equal(z.toarray()[i] > 0, expected)
