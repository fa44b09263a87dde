from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from d2ace.data import AnnotatedData, DataError, describe, make_multilabel


@settings(deadline=None)
@given(st.data())
def test_made_data_have_the_properties_asked_for(data: st.DataObject) -> None:
    n, d, q = (data.draw(st.integers(1, top)) for top in (300, 10, 40))
    share = st.floats(0, 1)
    asked = {
        "cardinality": data.draw(st.floats(0.05, 0.9 * q)),
        "correlation": data.draw(share),
        "imbalance": data.draw(st.floats(0, 4)),
        "noise": data.draw(st.floats(0, 0.5)),
        "outliers": data.draw(st.floats(0, 0.5)),
        "density": data.draw(st.none() | st.floats(0.01, 1)),
        "seed": data.draw(st.integers(0, 2**40)),
    }
    made = make_multilabel(n, d, q, **asked)
    assert made.X.shape == (n, d)
    assert made.X.dtype == np.float32
    assert made.Y.shape == (n, q)
    assert made.Y.dtype == np.uint8
    assert sp.issparse(made.X) == sp.issparse(made.Y) == (asked["density"] is not None)
    labels = sp.csr_matrix(made.true_Y)
    assert labels.has_canonical_format
    assert labels.nnz == round(n * asked["cardinality"])
    assert set(labels.data) <= {1}
    if asked["cardinality"] >= 1:
        assert np.diff(labels.indptr).min() >= 1
    assert made.flipped.size == round(asked["noise"] * n)
    assert made.outliers.size == min(round(asked["outliers"] * n), n - made.flipped.size)
    assert not np.intersect1d(made.flipped, made.outliers).size
    wrong = np.flatnonzero((sp.csr_matrix(made.Y) != labels).getnnz(axis=1))
    np.testing.assert_array_equal(wrong, made.flipped)


def test_same_seed_same_data() -> None:
    for density in (None, 0.05):
        one, two, other = (make_multilabel(80, 30, 9, density=density, seed=s) for s in (3, 3, 4))
        assert describe(one) == describe(two)
        assert not (one.X != two.X).sum()
        assert not (one.Y != two.Y).sum()
        assert (one.Y != other.Y).sum()


def correlations(data: AnnotatedData) -> tuple[float, float]:
    """Mean correlation inside themes and between them (themes of six: every sixth label)."""
    found = np.corrcoef(data.true_Y.T)
    same = np.equal.outer(np.arange(36) % 6, np.arange(36) % 6)
    return float(found[same & ~np.eye(36, dtype=bool)].mean()), float(found[~same].mean())


def test_correlation() -> None:
    inside = []
    for asked in (0.0, 0.3, 0.6, 0.9):
        data = make_multilabel(
            4000, 1, 36, cardinality=3.0, correlation=asked, imbalance=0.0, seed=1
        )
        within, between = correlations(data)
        inside.append(within)
        assert within - between >= asked / 6 - 0.02
    assert inside == sorted(inside)
    assert abs(inside[0]) < 0.03


def test_imbalance() -> None:
    ratios = [
        describe(make_multilabel(5000, 1, 30, imbalance=asked))["mean_imbalance_ratio"]
        for asked in (0.0, 0.5, 1.0, 1.5)
    ]
    assert ratios[0] < 1.3
    assert ratios == sorted(ratios)
    assert ratios[-1] > 20


@pytest.mark.parametrize("density", [0.002, 0.02, 0.2])
def test_density(density: float) -> None:
    found = describe(make_multilabel(500, 4000, 30, cardinality=3.0, density=density))
    assert found["feature_density"] == pytest.approx(density, rel=0.1)


@pytest.mark.parametrize("density", [None, 0.05])
def test_features_tell_about_labels_except_in_outliers(density: float | None) -> None:
    data = make_multilabel(3000, 400, 8, outliers=0.2, density=density)
    Y = sp.csr_matrix(data.Y).toarray()
    fitted = np.setdiff1d(np.arange(2000), data.outliers)
    right = (Ridge().fit(data.X[fitted], Y[fitted]).predict(data.X) > 0.5) == Y
    later = np.arange(3000) >= 2000
    odd = np.isin(np.arange(3000), data.outliers)
    assert right[later & ~odd].mean() > 0.9
    assert right[later & odd].mean() < 0.85


def test_large_and_sparse() -> None:
    data = make_multilabel(100_000, 20_000, 1_000, cardinality=5.0, density=0.001, noise=0.05)
    assert data.true_Y.nnz == 500_000
    assert data.Y.nnz == 500_000
    assert data.X.nnz == pytest.approx(2_000_000, rel=0.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 0}, "n is 0; it must be a whole number of at least 1"),
        ({"d": 2.5}, "d is 2.5"),
        ({"q": -1}, "q is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"cardinality": 0.0}, "cardinality is 0.0; it must be above 0 and at most 9 (nine tenths"),
        ({"cardinality": 9.5}, "cardinality is 9.5"),
        ({"cardinality": float("nan")}, "cardinality is nan"),
        ({"correlation": 1.1}, "correlation is 1.1; it must lie between 0 and 1"),
        ({"imbalance": -1.0}, "imbalance is -1.0"),
        ({"imbalance": float("inf")}, "imbalance is inf"),
        ({"noise": -0.1}, "noise is -0.1"),
        ({"outliers": 2.0}, "outliers is 2.0"),
        ({"noise": 0.6, "outliers": 0.6}, "noise 0.6 and outliers 0.6 exceed 1 together"),
        ({"density": 0.0}, "density is 0; it must be above 0, or None"),
        ({"density": 1.5}, "density is 1.5"),
    ],
)
def test_errors(options: dict[str, object], words: str) -> None:
    with pytest.raises(DataError) as caught:
        make_multilabel(**options)
    assert words in str(caught.value)
