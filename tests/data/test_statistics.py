from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp

from d2ace.data import MultiLabelData, describe, make_multilabel


def dataset(Y: object, X: object = None) -> MultiLabelData:
    n, q = Y.shape
    X = np.ones((n, 2), dtype=np.float32) if X is None else X
    names = tuple(f"x{i}" for i in range(X.shape[1]))
    return MultiLabelData("small", X, Y, names, tuple(f"y{j}" for j in range(q)))


def test_by_hand() -> None:
    Y = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0]], dtype=np.uint8)
    X = np.array([[0, 1], [0, 0], [2, 0], [0, 0], [0, 0]], dtype=np.float32)
    # Counts 4, 2, 0; ratios 1 and 2. Two rows hold both: 1 - sqrt(2) / 1.5 each, others 0.
    expected = {
        "name": "small",
        "n": 5,
        "d": 2,
        "q": 3,
        "cardinality": 1.2,
        "density": 0.4,
        "distinct_label_sets": 3,
        "mean_imbalance_ratio": 1.5,
        "max_imbalance_ratio": 2.0,
        "scumble": pytest.approx(2 * (1 - np.sqrt(2) / 1.5) / 5),
        "rows_without_labels": 0.2,
        "labels_without_positives": 1,
        "sparse": False,
        "feature_density": 0.2,
    }
    assert describe(dataset(Y, X)) == pytest.approx(expected)
    sparse = describe(dataset(sp.csr_matrix(Y), sp.csr_matrix(X)))
    assert sparse == pytest.approx(expected | {"sparse": True})


@pytest.mark.parametrize("name", ["emotions", "birds", "genbase", "yeast", "enron", "cal500"])
def test_against_the_definitions_row_by_row(
    name: str, real: Callable[[str], MultiLabelData]
) -> None:
    data = real(name)
    Y = sp.csr_matrix(data.Y).toarray()
    most = max(column.sum() for column in Y.T)
    ratio = [most / column.sum() if column.any() else math.nan for column in Y.T]
    rows = []
    for row in Y:
        present = [ratio[j] for j in np.flatnonzero(row)]
        rows.append(
            1 - statistics.geometric_mean(present) / statistics.mean(present) if present else 0
        )
    found = describe(data)
    assert found["distinct_label_sets"] == len({tuple(row) for row in Y.tolist()})
    assert found["mean_imbalance_ratio"] == pytest.approx(np.nanmean(ratio), rel=1e-12)
    assert found["max_imbalance_ratio"] == pytest.approx(np.nanmax(ratio), rel=1e-12)
    assert found["scumble"] == pytest.approx(statistics.mean(rows), rel=1e-9)
    assert found["rows_without_labels"] == np.mean([not row.any() for row in Y])


@pytest.mark.parametrize("shape", [(3, 2), (0, 2), (3, 0)])
def test_nothing_to_measure(shape: tuple[int, int]) -> None:
    found = describe(dataset(np.zeros(shape, dtype=np.uint8)))
    assert found["cardinality"] == found["scumble"] == found["max_imbalance_ratio"] == 0.0
    assert found["labels_without_positives"] == shape[1]


def test_plain_numbers() -> None:
    found = describe(make_multilabel(50, 30, 5, density=0.1))
    assert json.loads(json.dumps(found)) == found
    assert all(type(value) in (int, float, bool, str) for value in found.values())
