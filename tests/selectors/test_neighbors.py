"""Exact neighbours: dense and sparse, duplicates and ties, without an n x n matrix."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

import d2ace
from d2ace._util.errors import UserError
from d2ace.selectors import neighbor_search, neighbors
from d2ace.selectors._engine import exact_search, tree_search
from d2ace.selectors._engine.inputs import feature_matrix
from d2ace.selectors.neighbors import local_labels, nearest, neighbor_index, search


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
    d=st.integers(1, 8),
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
    truth = slow_nearest(x, k, include_self)
    for method in ("exact",) if sparse else ("exact", "tree"):
        found = nearest(features, k, include_self=include_self, method=method)
        assert np.array_equal(found.numpy(), truth)


@pytest.mark.parametrize(
    ("kind", "per_row"),
    [("outlier", 60), ("duplicates", 140), ("two clusters far apart", 60)],
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


def crowd(kind: str) -> np.ndarray:
    """Rows with many equal distances, which trees are slow to tell apart."""
    rng = np.random.default_rng(0)
    if kind == "few distinct rows":
        return rng.normal(size=(7, 4))[rng.integers(0, 7, 1_500)]
    if kind == "one crowd":
        return rng.normal(size=(1_500, 4)) * (np.arange(1_500) % 2)[:, None]
    if kind == "grid":
        return rng.integers(0, 4, (1_500, 4)).astype(float)
    if kind == "wide grid":
        return rng.integers(0, 3, (1_500, 6)).astype(float)
    if kind == "all sizes":
        return rng.normal(size=(1_500, 6)) * 10.0 ** rng.integers(-30, 30, (1_500, 1))
    if kind == "outlier":
        return np.concatenate([np.full((1, 6), 1e30), rng.normal(size=(1_499, 6))])
    if kind == "signed zeros":
        return rng.choice([0.0, -0.0, 1.0], (1_500, 3))
    axis = np.arange(-9, 10)  # 1,152 whole vectors with a squared length of 70, and their centre
    points = np.stack(np.meshgrid(axis, axis, axis, axis), axis=-1).reshape(-1, 4)
    around = points[(points**2).sum(axis=1) == 70]
    return np.concatenate([around, np.zeros((1, 4))]).astype(float)


@pytest.mark.parametrize(
    "kind",
    [
        *("few distinct rows", "one crowd", "grid", "wide grid", "all sizes", "outlier"),
        *("signed zeros", "a sphere and its centre"),
    ],
)
@pytest.mark.parametrize(("k", "include_self"), [(6, False), (5, True), (40, False)])
def test_a_tree_finds_the_same_among_crowds(kind, k, include_self, monkeypatch):
    x = crowd(kind)
    truth = slow_nearest(x, k, include_self)
    for few in (0, 4, 8):  # columns up to which rows are asked for one at a time
        monkeypatch.setattr(tree_search, "FEW", few)
        monkeypatch.setattr(tree_search, "CROWD", 1)
        found = nearest(torch.from_numpy(x), k, include_self=include_self, method="tree")
        assert np.array_equal(found.numpy(), truth)


@pytest.mark.parametrize(
    ("kind", "per_row"), [("few distinct rows", 1), ("one crowd", 5), ("grid", 60)]
)
def test_a_tree_does_not_compare_all_rows_of_a_crowd(kind, per_row, monkeypatch):
    x, pairs, measured = crowd(kind), [], exact_search.DenseRows.exact_distances

    def counted(self, rows, columns):
        pairs.append(columns.numel())
        return measured(self, rows, columns)

    monkeypatch.setattr(exact_search.DenseRows, "exact_distances", counted)
    nearest(torch.from_numpy(x), 6, method="tree")
    assert sum(pairs) < per_row * len(x)


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


def test_sizes_that_float32_cannot_hold_are_told_apart():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3)) * 10.0 ** rng.choice([-30, 0, 30], (300, 1))
    x[::3] += 1e7
    for features in (torch.from_numpy(x), sp.csr_array(x)):
        assert np.array_equal(nearest(features, 4, method="exact").numpy(), slow_nearest(x, 4))


@pytest.mark.parametrize("d", [8, 400])
def test_approximate_search_finds_nearly_all(d):
    pytest.importorskip("faiss")
    rng = np.random.default_rng(0)
    centres = 4 * rng.normal(size=(40, d))
    x = torch.from_numpy(centres[rng.integers(0, 40, 3_000)] + rng.normal(size=(3_000, d)))
    exact = search(x, 5)
    found = search(x, 5, method="approximate")
    same = (found.rows[:, :, None] == exact.rows[:, None, :]).any(dim=1).double().mean()
    assert (exact.method, exact.recall) == ("exact", 1.0)
    assert found.method == "approximate"
    assert same > 0.9
    assert abs(found.recall - float(same)) < 0.05
    assert not (found.rows == torch.arange(3_000)[:, None]).any()


@pytest.mark.parametrize("n", [2, 3, 12, 16])
def test_approximate_search_among_a_few_rows(n):
    pytest.importorskip("faiss")
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for k in (1, n - 1):
        assert torch.equal(nearest(x, k, method="approximate"), nearest(x, k, method="exact"))


def test_approximate_search_of_sparse_and_wide_features():
    pytest.importorskip("faiss")
    x = sp.random_array((2_000, 3_000), density=0.02, rng=0, format="csr")
    x = sp.csr_array(sp.vstack([x, x]))  # everybody has a twin
    found = search(feature_matrix(x, 4_000), 1, method="approximate").rows.flatten()
    assert torch.equal(found, (torch.arange(4_000) + 2_000) % 4_000)


@pytest.mark.parametrize("method", ["exact", "tree", "approximate"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_features_of_dtypes_that_numpy_does_not_have(dtype, method):
    if method == "approximate":
        pytest.importorskip("faiss")
    y = np.eye(60, 3)
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    few, same = (
        d2ace.D2ACE(y, features, neighbors_method=method) for features in (x, x.float().numpy())
    )
    assert (few.neighborhood != same.neighborhood).nnz == 0
    few.load_state_dict(same.state_dict())


def test_a_state_of_approximate_neighbours_fits_no_exact_ones():
    pytest.importorskip("faiss")
    x, y = np.random.default_rng(0).normal(size=(200, 4)), np.eye(200, 3)
    near = d2ace.D2ACE(y, x, neighbors_method="approximate")
    exact = d2ace.D2ACE(y, x, neighbors_method="exact")
    d2ace.D2ACE(y, x, neighbors_method="tree").load_state_dict(exact.state_dict())
    assert near.neighbor_recall > 0.9
    assert exact.neighbor_recall == 1.0
    with pytest.raises(ValueError, match=r"neighbors"):
        exact.load_state_dict(near.state_dict())


class TestWithoutFaiss:
    @pytest.fixture(autouse=True)
    def _absent(self, monkeypatch):
        monkeypatch.setattr(neighbors, "find_spec", lambda name: None)

    def test_asking_for_it_names_the_extra(self):
        with pytest.raises(UserError, match=r"pip install \"\.\[large\]\""):
            nearest(torch.randn(20, 3), 2, method="approximate")

    def test_a_long_search_is_announced(self, monkeypatch):
        monkeypatch.setattr(neighbors, "LONG", 0.0)
        x = torch.randn(100, 30, dtype=torch.float64)
        with pytest.warns(UserWarning, match=r"100 rows with 30 features will take about .* or"):
            found = nearest(x, 2)
        assert np.array_equal(found.numpy(), slow_nearest(x.numpy(), 2))


def test_unknown_methods_are_named():
    with pytest.raises(ValueError, match=r"neighbors_method must be .*'trea'"):
        d2ace.HardImb(np.eye(4), np.eye(4), neighbors_method="trea")
    with pytest.raises(UserError, match=r"'tree' needs dense features"):
        d2ace.HardImb(np.eye(4), sp.csr_array(np.eye(4)), neighbors_method="tree")


@pytest.mark.parametrize("method", ["exact", "tree"])
def test_progress_is_reported_to_the_end(method):
    seen = []
    with neighbor_search(progress=lambda done, total: seen.append((done, total))):
        nearest(torch.randn(50, 3), 2, method=method)
    assert seen[-1] == (50, 50)


class TestKeptNeighbours:
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(300, 5)))

    @pytest.fixture(autouse=True)
    def _keep_all(self, monkeypatch):
        monkeypatch.setattr(neighbors, "KEPT", 0.0)

    def searches(self, folder, **options):
        """How often rows are looked at while the neighbours are asked for, and these."""
        seen = []
        with neighbor_search(folder=folder, progress=lambda *done: seen.append(done)):
            found = nearest(options.pop("x", self.x), options.pop("k", 3), **options)
        return len(seen), found

    def test_are_found_again_by_content(self, tmp_path):
        first, found = self.searches(tmp_path)
        again, kept = self.searches(tmp_path, x=self.x.clone())
        assert (first, again) == (1, 0)
        assert torch.equal(found, kept)
        other = self.x.clone()
        other[7, 2] += 1.0
        assert self.searches(tmp_path, x=other)[0] == 1
        assert self.searches(tmp_path, k=4)[0] == 1
        assert self.searches(tmp_path, include_self=True)[0] == 1
        assert self.searches(tmp_path, method="tree")[0] == 0  # finds the same rows

    def test_damaged_ones_are_made_anew(self, tmp_path):
        _, found = self.searches(tmp_path)
        (file,) = tmp_path.iterdir()
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 0xFF
        file.write_bytes(content)
        count, kept = self.searches(tmp_path)
        assert count == 1
        assert torch.equal(found, kept)
        assert self.searches(tmp_path)[0] == 0

    def test_a_file_that_names_rows_which_are_not_there_is_not_used(self, tmp_path):
        _, found = self.searches(tmp_path)
        (file,) = tmp_path.iterdir()
        np.savez(file, index=found.numpy() + 300, recall=1.0)
        count, again = self.searches(tmp_path)
        assert count == 1
        assert torch.equal(found, again)

    @pytest.mark.parametrize("kind", ["empty", "text", "array", "other names", "recall", "cut"])
    def test_a_file_of_another_kind_is_replaced(self, tmp_path, kind):
        _, found = self.searches(tmp_path)
        (file,) = tmp_path.iterdir()
        content = io.BytesIO()
        if kind == "array":  # which numpy reads under any name
            np.save(content, found.numpy())
        elif kind == "other names":
            np.savez(content, rows=found.numpy())
        elif kind == "recall":
            np.savez(content, index=found.numpy(), recall=np.nan)
        elif kind == "cut":
            content.write(file.read_bytes()[:-100])
        elif kind == "text":
            content.write(b"notes")
        file.write_bytes(content.getvalue())
        count, again = self.searches(tmp_path)
        assert (count, self.searches(tmp_path)[0]) == (1, 0)
        assert torch.equal(found, again)

    def test_two_that_write_at_once_leave_one_whole_file(self, tmp_path):
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: self.searches(tmp_path), range(8)))
        assert all(torch.equal(rows, found[0][1]) for _, rows in found)
        assert len(list(tmp_path.iterdir())) == 1
        assert self.searches(tmp_path)[0] == 0

    def test_a_folder_that_cannot_be_written_costs_nothing_but_time(self, tmp_path):
        (tmp_path / "file").write_text("mine")
        count, found = self.searches(tmp_path / "file")
        assert count == 1
        assert torch.equal(found, nearest(self.x, 3))
        assert (tmp_path / "file").read_text() == "mine"
