from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler

from d2ace.data import DataError, Scaler

tables = hnp.arrays(
    np.float32,
    st.tuples(st.integers(2, 12), st.integers(1, 5)),
    # Eighths: scikit-learn takes features whose range is below its tolerance for constant.
    elements=st.integers(-(10**6), 10**6).map(lambda value: value / 8) | st.just(0.0),
)


@settings(deadline=None)
@given(tables, st.data())
def test_dense_agrees_with_scikit_learn(X: np.ndarray, data: st.DataObject) -> None:
    train = data.draw(st.lists(st.integers(0, len(X) - 1), min_size=1, unique=True))
    scaler = Scaler.fit(X, train)
    scaled = scaler.transform(X)
    assert scaled.dtype == np.float32
    assert (scaled[train] >= 0).all()
    assert (scaled[train] <= 1).all()
    varies = scaler.span > 0
    expected = MinMaxScaler().fit(X[train].astype(np.float64)).transform(X.astype(np.float64))
    np.testing.assert_allclose(scaled[:, varies], expected[:, varies], rtol=1e-4, atol=1e-4)
    assert not scaled[:, ~varies].any()


@settings(deadline=None)
@given(tables, st.data())
def test_sparse_agrees_with_scikit_learn(X: np.ndarray, data: st.DataObject) -> None:
    train = data.draw(st.lists(st.integers(0, len(X) - 1), min_size=1, unique=True))
    scaler = Scaler.fit(sp.csr_matrix(X), train)
    scaled = scaler.transform(sp.csr_matrix(X))
    assert sp.issparse(scaled)
    assert scaled.nnz <= np.count_nonzero(X)
    varies = scaler.span > 0
    expected = MaxAbsScaler().fit(X[train].astype(np.float64)).transform(X.astype(np.float64))
    found = scaled.toarray()
    np.testing.assert_allclose(found[:, varies], expected[:, varies], rtol=1e-4, atol=1e-4)
    assert not found[:, ~varies].any()


def test_sparse_and_dense_agree_on_counts() -> None:
    X = np.array([[0, 2, 0], [4, 0, 0], [1, 1, 0]], dtype=np.float32)
    sparse = Scaler.fit(sp.csr_matrix(X)).transform(sp.csr_matrix(X))
    np.testing.assert_array_equal(sparse.toarray(), Scaler.fit(X).transform(X))


def test_only_the_fitted_rows_count() -> None:
    X = np.array([[0.0, 5.0], [10.0, 5.0], [1000.0, -7.0]], dtype=np.float32)
    scaled = Scaler.fit(X, [0, 1]).transform(X)
    np.testing.assert_array_equal(scaled, [[0, 0], [1, 0], [100, 0]])
    np.testing.assert_array_equal(X[2], [1000.0, -7.0])  # the argument is left alone


def test_state_is_plain_arrays() -> None:
    X = np.arange(6, dtype=np.float32).reshape(3, 2)
    state = Scaler.fit(X).state_dict()
    assert {name: value.tolist() for name, value in state.items()} == {
        "low": [0.0, 1.0],
        "span": [4.0, 4.0],
    }
    np.testing.assert_array_equal(Scaler(**state).transform(X), Scaler.fit(X).transform(X))


def test_errors() -> None:
    X = np.ones((2, 3), dtype=np.float32)
    with pytest.raises(DataError, match="on no rows"):
        Scaler.fit(X, [])
    with pytest.raises(DataError, match="NaN or infinity"):
        Scaler.fit(np.array([[np.nan]]))
    with pytest.raises(DataError, match="fitted on 3 features, but X has 2"):
        Scaler.fit(X).transform(X[:, :2])
    with pytest.raises(DataError, match="cannot keep X sparse"):
        Scaler.fit(X).transform(sp.csr_matrix(X))
