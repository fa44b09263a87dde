from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.io import loadmat

from d2ace.data import DataError, MultiLabelData, load_digits, make_multilabel, prepare


def small(sparse: bool = False) -> MultiLabelData:
    X = np.array([[5, 0, 1, 2], [0, 0, 3, 0], [1, 9, 0, 0], [0, 0, 0, 4]], dtype=np.float32)
    Y = np.array([[1, 0, 1], [1, 0, 0], [0, 1, 0], [1, 0, 1]], dtype=np.uint8)
    if sparse:
        X, Y = sp.csr_matrix(X), sp.csr_matrix(Y)
    return MultiLabelData("small", X, Y, ("a", "b", "c", "d"), ("u", "v", "w"))


def dense(table: object) -> np.ndarray:
    return table.toarray() if sp.issparse(table) else np.asarray(table)


@pytest.mark.parametrize("sparse", [False, True])
def test_each_filter(sparse: bool) -> None:
    prepared = prepare(small(sparse), keep_features=0.5, min_positives=2)
    assert prepared.features.tolist() == [0, 1]  # sums 6, 9, 4, 6: of equals, the first
    assert prepared.labels.tolist() == [0, 2]
    assert prepared.rows.tolist() == [0, 1, 3]
    data = prepared.data
    assert sp.issparse(data.X) == sp.issparse(data.Y) == sparse
    np.testing.assert_array_equal(dense(data.X), [[5, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(dense(data.Y), [[1, 1], [1, 0], [1, 1]])
    assert (data.name, data.feature_names, data.label_names) == ("small", ("a", "b"), ("u", "w"))


def test_each_filter_can_be_switched_off() -> None:
    everything = prepare(small(), keep_features=1.0, min_positives=0, drop_empty_rows=False)
    np.testing.assert_array_equal(everything.data.X, small().X)
    np.testing.assert_array_equal(everything.data.Y, small().Y)
    rows_kept = prepare(small(), min_positives=2, drop_empty_rows=False)
    assert rows_kept.data.Y.sum(axis=1).tolist() == [2, 1, 0, 2]
    labels_kept = prepare(small(), min_positives=1)
    assert labels_kept.labels.tolist() == [0, 1, 2]


def test_labels_with_at_most_twenty_positives_go() -> None:
    Y = np.zeros((50, 2), dtype=np.uint8)
    Y[:20, 0] = Y[:21, 1] = 1
    X = np.ones((50, 1), dtype=np.float32)
    prepared = prepare(MultiLabelData("counts", X, Y, ("x",), ("twenty", "twenty-one")))
    assert prepared.data.label_names == ("twenty-one",)
    assert prepared.rows.size == 21


def test_report() -> None:
    report = prepare(small(), keep_features=0.75, min_positives=2).report
    assert json.loads(json.dumps(asdict(report))) == {
        "name": "small",
        "protocol": "paper",
        "rows": 4,
        "rows_dropped": 1,
        "features": 4,
        "features_dropped": 1,
        "labels": 3,
        "labels_dropped": 1,
        "labels_dropped_names": ["v"],
    }
    assert str(report) == (
        "small, prepared by protocol 'paper': kept 3 of 4 rows, 3 of 4 features, 2 of 3 labels."
    )


def test_scaling_sees_training_rows_only() -> None:
    prepared = prepare(small(), min_positives=1)
    np.testing.assert_array_equal(prepared.data.X, small().X)  # not scaled yet
    scaled = prepared.scaled([0, 1])
    np.testing.assert_allclose(scaled.X[2], [0.2, 0.0, -0.5, 0.0])
    changed = small()
    changed.X[2] = 1e6  # a test row
    again = prepare(changed, min_positives=1).scaled([0, 1])
    np.testing.assert_array_equal(again.X[[0, 1, 3]], scaled.X[[0, 1, 3]])
    np.testing.assert_array_equal(scaled.Y, small().Y)
    by_mask = prepared.scaled(np.arange(prepared.data.n) < 2)
    np.testing.assert_array_equal(by_mask.X, scaled.X)


def test_reference_scales_all_rows_at_once() -> None:
    prepared = prepare(small(), "reference", min_positives=1)
    np.testing.assert_array_equal(prepared.data.X.min(axis=0), 0)
    np.testing.assert_array_equal(prepared.data.X.max(axis=0), 1)
    assert prepared.scaled([0]) is prepared.data


def test_known_flaws_can_be_followed() -> None:
    data = make_multilabel(400, 5, 12, noise=0.1, imbalance=2.0)
    prepared = prepare(data)
    assert type(prepared.data) is MultiLabelData
    assert 0 < prepared.rows.size < 400
    flipped = np.flatnonzero(np.isin(prepared.rows, data.flipped))
    np.testing.assert_array_equal(prepared.data.X[flipped], data.X[prepared.rows[flipped]])


def test_digits_need_no_preparation() -> None:
    report = prepare(load_digits()).report
    assert report.rows_dropped == report.labels_dropped == report.features_dropped == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"protocol": "Paper"}, "protocol is 'Paper'; it must be one of paper, reference"),
        ({"keep_features": 0.0}, "keep_features is 0.0"),
        ({"keep_features": 1.5}, "keep_features is 1.5"),
        ({"keep_features": 0.2}, "keep_features=0.2 leaves none of 4 features"),
        ({}, "no label of small has 21 positives or more; lower min_positives"),
    ],
)
def test_errors(options: dict[str, object], words: str) -> None:
    with pytest.raises(DataError) as caught:
        prepare(small(), **options)
    assert words in str(caught.value)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_cell_that_is_no_number_is_named(sparse: bool, value: float) -> None:
    """Whichever fold its row is in: before, only training rows were looked at."""
    data = small(sparse=sparse)
    X = data.X.toarray() if sparse else data.X.copy()
    X[3, 2] = value
    data = replace(data, X=sp.csr_matrix(X) if sparse else X)
    with pytest.raises(DataError, match=rf"^row 3 of small has {value} as 'c'; replace"):
        prepare(data, min_positives=1)


# -- real data


@pytest.mark.parametrize(
    ("name", "n", "d", "q"),
    [
        ("cal500", 502, 68, 119),
        ("birds", 322, 260, 11),
        ("corel5k", 4983, 499, 149),
        ("rcv1subset1", 6000, 944, 80),
        ("rcv1subset2", 6000, 944, 81),
        ("rcv1subset3", 6000, 944, 82),
        ("yahoo-arts1", 7484, 2314, 24),
        ("yahoo-business1", 11204, 2192, 25),
    ],
)
def test_the_features_of_the_paper_are_left(
    name: str, n: int, d: int, q: int, real: Callable[[str], MultiLabelData]
) -> None:
    data = prepare(real(name)).data
    assert (data.X.shape, data.Y.shape) == ((n, d), (n, q))
    again = prepare(data)  # what was chosen once is not chosen from again
    assert again.data.X.shape == (n, d)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_frequent_features_agree_with_an_independent_copy(
    number: int, data_root: Path, real: Callable[[str], MultiLabelData]
) -> None:
    name = f"rcv1subset{number}"
    stored = data_root / name / f"{name}_top944.mat"
    if not stored.is_file():
        pytest.skip(f"{stored.name} is absent")
    theirs = {column.tobytes() for column in loadmat(stored)["data"].T.astype(bool)}
    kept = prepare(real(name)).data.X.toarray().astype(bool)
    ours = {np.ascontiguousarray(column).tobytes() for column in kept.T}
    assert len(ours & theirs) >= 943  # one column of the copies of 2 and 3 is unexplained
