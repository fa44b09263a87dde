from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits as scans
from sklearn.neighbors import KNeighborsClassifier

from d2ace.data import AnnotatedData, describe, load, load_digits


@pytest.fixture(scope="module")
def digits() -> AnnotatedData:
    return load_digits()


def test_shape(digits: AnnotatedData) -> None:
    assert digits.X.shape == (3000, 576)
    assert digits.Y.shape == digits.true_Y.shape == (3000, 10)
    assert (digits.X.dtype, digits.Y.dtype) == (np.float32, np.uint8)
    assert (digits.X.min(), digits.X.max()) == (0.0, 1.0)
    assert digits.label_names == tuple("0123456789")
    assert len(set(digits.feature_names)) == 576
    assert digits.X.flags.writeable  # torch.from_numpy warns otherwise


def test_same_everywhere(digits: AnnotatedData) -> None:
    content = b"".join(
        np.ascontiguousarray(part).astype(kind).tobytes()
        for part, kind in (
            (digits.X, "<f4"),
            (digits.Y, "u1"),
            (digits.true_Y, "u1"),
            (digits.flipped, "<i8"),
            (digits.outliers, "<i8"),
        )
    )
    digest = hashlib.sha256(content).hexdigest()
    assert digest == "5b9d9f2da6a199186f034f0503fcb84a7dbb455bb1ed8f6ef69ace753d4235db"


def test_load_gives_the_same(digits: AnnotatedData) -> None:
    np.random.seed(5)  # noqa: NPY002  (global state must not matter)
    again = load("digits")
    np.testing.assert_array_equal(again.X, digits.X)
    np.testing.assert_array_equal(again.Y, digits.Y)


def test_one_to_four_imbalanced_and_correlated_labels(digits: AnnotatedData) -> None:
    assert np.bincount(digits.true_Y.sum(axis=1)).tolist()[0] == 0
    assert set(digits.true_Y.sum(axis=1)) == {1, 2, 3, 4}
    found = describe(digits)
    assert 2.0 < found["cardinality"] < 2.5
    assert found["max_imbalance_ratio"] > 5
    assert found["rows_without_labels"] == 0
    correlation = np.corrcoef(digits.true_Y.T)
    assert min(correlation[j, j + 5] for j in range(5)) > 0.2
    assert np.median(correlation) < 0


def test_flaws_are_where_they_are_said_to_be(digits: AnnotatedData) -> None:
    wrong = np.flatnonzero((digits.true_Y != digits.Y).any(axis=1))
    np.testing.assert_array_equal(wrong, digits.flipped)
    assert digits.flipped.size == digits.outliers.size == 120
    assert not np.intersect1d(digits.flipped, digits.outliers).size


def test_the_handwriting_is_on_the_canvas(digits: AnnotatedData) -> None:
    known = {image.tobytes(): label for image, label in zip(*scans(return_X_y=True), strict=True)}
    clean = np.setdiff1d(np.arange(3000), digits.outliers)[:300]
    for row in clean:
        canvas = np.pad(digits.X[row].reshape(24, 24) * 16.0, 8)
        windows = np.lib.stride_tricks.sliding_window_view(canvas, (8, 8))
        seen = {
            known[code]
            for window in windows.reshape(-1, 64).astype(np.float64)
            if (code := window.tobytes()) in known
        }
        assert seen == set(np.flatnonzero(digits.true_Y[row]))


def test_there_is_something_to_learn(digits: AnnotatedData) -> None:
    model = KNeighborsClassifier(1).fit(digits.X[:2400], digits.true_Y[:2400])
    right = model.predict(digits.X[2400:]) == digits.true_Y[2400:]
    chance = np.maximum(digits.true_Y.mean(axis=0), 1 - digits.true_Y.mean(axis=0)).mean()
    assert right.mean() > chance


def test_without_scikit_learn_there_is_advice() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from d2ace.data import DataError, load\n"
        "try: load('digits')\n"
        "except DataError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install ".[bench]" in a checkout' in said.stdout
