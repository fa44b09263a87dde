from __future__ import annotations

import json
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


@pytest.mark.parametrize(
    ("name", "label_sets", "mean_ir", "scumble"),
    # As the R package mldr and the papers of Charte et al. print them.
    [
        ("emotions", 27, 1.478, 0.0110),
        ("birds", 133, 5.407, 0.0330),
        ("genbase", 32, 37.315, 0.0288),
        ("yeast", 198, 7.197, 0.1044),
        ("scene", 15, 1.254, 0.0003),
        ("enron", 753, 73.953, 0.3028),
        ("cal500", 502, 20.578, 0.3372),
        ("corel5k", 3175, 189.568, 0.3941),
        ("bibtex", 2856, 12.498, 0.0938),
    ],
)
def test_published_values(
    name: str,
    label_sets: int,
    mean_ir: float,
    scumble: float,
    real: Callable[[str], MultiLabelData],
) -> None:
    found = describe(real(name))
    assert found["distinct_label_sets"] == label_sets
    assert found["mean_imbalance_ratio"] == pytest.approx(mean_ir, abs=5e-4)
    assert found["scumble"] == pytest.approx(scumble, abs=5e-5)


@pytest.mark.parametrize("shape", [(3, 2), (0, 2), (3, 0)])
def test_nothing_to_measure(shape: tuple[int, int]) -> None:
    found = describe(dataset(np.zeros(shape, dtype=np.uint8)))
    assert found["cardinality"] == found["scumble"] == found["max_imbalance_ratio"] == 0.0
    assert found["labels_without_positives"] == shape[1]


def test_plain_numbers() -> None:
    found = describe(make_multilabel(50, 30, 5, density=0.1))
    assert json.loads(json.dumps(found)) == found
    assert all(type(value) in (int, float, bool, str) for value in found.values())
