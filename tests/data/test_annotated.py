from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from d2ace.data.annotated import choose_flawed, flip_labels


@settings(deadline=None)
@given(
    hnp.arrays(
        np.uint8, st.tuples(st.integers(1, 12), st.integers(1, 6)), elements=st.integers(0, 1)
    ),
    st.integers(0, 2**32),
)
def test_one_label_goes_and_one_comes(Y: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.flatnonzero(rng.random(len(Y)) < 0.5)
    flipped = flip_labels(sp.csr_matrix(Y), rows, rng.random((2, rows.size))).toarray()
    assert set(np.unique(flipped)) <= {0, 1}
    others = np.setdiff1d(np.arange(len(Y)), rows)
    np.testing.assert_array_equal(flipped[others], Y[others])
    lost = ((Y == 1) & (flipped == 0)).sum(axis=1)
    gained = ((Y == 0) & (flipped == 1)).sum(axis=1)
    for row in rows:
        assert lost[row] == (Y[row].sum() > 0)
        assert gained[row] == (Y[row].sum() < Y.shape[1])


def test_every_label_can_come_and_go() -> None:
    Y = np.tile(np.array([1, 0, 1, 0, 0], dtype=np.uint8), (4000, 1))
    luck = np.random.default_rng(0).random((2, 4000))
    change = flip_labels(sp.csr_matrix(Y), np.arange(4000), luck).toarray() != Y
    np.testing.assert_allclose(change.mean(axis=0), [1 / 2, 1 / 3, 1 / 2, 1 / 3, 1 / 3], atol=0.04)


def test_flawed_rows_are_disjoint() -> None:
    flipped, outliers = choose_flawed(100, 0.3, 0.7, np.random.default_rng(1).random(100))
    np.testing.assert_array_equal(np.sort(np.append(flipped, outliers)), np.arange(100))
    assert (flipped.size, outliers.size) == (30, 70)
