"""Features near the ends of what floats hold: handled rightly, or refused for the true reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import d2ace
from d2ace.data import DataError, MultiLabelData, Scaler, load, make_multilabel, prepare

HUGE = 3e38
LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("top", [HUGE, LARGEST])
def test_a_range_beyond_32_bits_is_scaled_exactly(top: float) -> None:
    X = np.array([[-top, 1], [top, 2], [0, 1], [top / 2, 3]], dtype=np.float32)
    scaled = Scaler.fit(X).transform(X)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled[:, 0], [0, 1, 0.5, 0.75], rtol=1e-6)
    np.testing.assert_array_equal(scaled[:, 1], Scaler.fit(X[:, 1:]).transform(X[:, 1:])[:, 0])


def test_a_restored_scaler_gives_the_same() -> None:
    X = np.array([[-HUGE], [HUGE], [1.0]], dtype=np.float32)
    scaler = Scaler.fit(X)
    again = Scaler(**scaler.state_dict())
    np.testing.assert_array_equal(again.transform(X), scaler.transform(X))


def test_ordinary_features_are_scaled_in_32_bits_as_ever() -> None:
    X = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    scaler = Scaler.fit(X)
    assert scaler.low.dtype == scaler.span.dtype == np.float32
    expected = (X - X.min(axis=0)) / (X.max(axis=0) - X.min(axis=0))
    np.testing.assert_array_equal(scaler.transform(X), expected)


def test_a_range_beyond_64_bits_is_refused_for_that_reason() -> None:
    X = np.array([[1.0, -1e308], [2.0, 1e308]])
    with pytest.raises(DataError, match=r"feature 1 runs from -1e\+308 to 1e\+308, .* divide it"):
        Scaler.fit(X)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_a_row_far_outside_the_range_is_refused_for_that_reason(form: Any) -> None:
    train = np.array([[0, 1], [1e-30, 2]], dtype=np.float32)
    scaler = Scaler.fit(form(train))
    other = np.array([[0, 1], [HUGE, 1]], dtype=np.float32)
    sentence = r"row 1 has 3e\+38 as feature 0, too far outside .* 1e-30 .* 32-bit float"
    with pytest.raises(DataError, match=sentence):
        scaler.transform(form(other))


def test_the_smallest_numbers_are_scaled_too() -> None:
    tiny = float(np.finfo(np.float32).smallest_subnormal)
    X = np.array([[0.0], [tiny], [2 * tiny]], dtype=np.float32)
    np.testing.assert_array_equal(Scaler.fit(X).transform(X), [[0], [0.5], [1]])
    np.testing.assert_array_equal(
        Scaler.fit(sp.csr_matrix(X)).transform(sp.csr_matrix(X)).toarray(), [[0], [0.5], [1]]
    )


def test_training_on_huge_features_works() -> None:
    data = make_multilabel(120, 4, 3, seed=0)
    X = np.where(np.asarray(data.X) > np.median(data.X, axis=0), HUGE, -HUGE).astype(np.float32)
    found = [
        d2ace.train(
            MultiLabelData(name, features, data.Y, data.feature_names, data.label_names),
            model="mlp",
            selector="d2ace",
            epochs=3,
            warmup=1,
        ).test
        for name, features in (("huge", X), ("plain", (X > 0).astype(np.float32)))
    ]
    assert found[0] == found[1]


def file_of(value: float, tmp_path: Path) -> Path:
    path = tmp_path / "set.npz"
    X = np.ones((3, 2))
    X[2, 1] = value
    np.savez(path, X=X, Y=np.array([[1], [0], [1]]), feature_names=np.array(["a", "b"]))
    return path


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.inf, "has inf as 'b'; replace what is missing or infinite"),
        (np.nan, "has nan as 'b'; replace what is missing or infinite"),
        (1e39, r"has 1e\+39 as 'b', too large for a 32-bit float; divide the feature"),
        (-1e308, r"has -1e\+308 as 'b', too large for a 32-bit float; divide the feature"),
    ],
)
def test_a_feature_that_cannot_be_kept_is_named(value: float, reason: str, tmp_path: Path) -> None:
    path = file_of(value, tmp_path)
    with pytest.raises(DataError, match=f"^{path}: row 2 .*{reason}"):
        load(path)


@pytest.mark.parametrize("value", [LARGEST, -LARGEST, HUGE, 1e-45])
def test_values_that_fit_32_bits_are_kept(value: float, tmp_path: Path) -> None:
    assert load(file_of(value, tmp_path)).X[2, 1] == np.float32(value)


def test_a_feature_that_would_vanish_is_reported(tmp_path: Path) -> None:
    """1e-60 is 0 in 32 bits; a column that becomes constant so is lost without a word."""
    path = tmp_path / "set.npz"
    np.savez(path, X=np.array([[1e-60, 1], [2e-60, 2]]), Y=np.array([[1], [0]]))
    with pytest.raises(DataError, match="all of 'feature_0' is too small for a 32-bit float"):
        load(path)


def test_sums_beyond_64_bits_are_no_order_of_features() -> None:
    X = np.full((4, 3), 1e308)
    X[:, 1] = 1.0
    data = MultiLabelData("big", X, np.ones((4, 1), np.uint8), ("a", "b", "c"), ("l",))
    with pytest.raises(DataError, match=r"the sum of 'a' is too large for a 64-bit float; divide"):
        prepare(data, keep_features=0.5, min_positives=0)
