"""What the guide to data says in passing."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp

from d2ace.data import fold_numbers, load_digits, make_multilabel


def test_fields_of_a_dataset_cannot_be_replaced() -> None:
    data = make_multilabel(20, 3, 4)
    for field in dataclasses.fields(data):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(data, field.name, None)


@pytest.mark.parametrize("seed", range(30))
def test_folds_of_any_labels(seed: int) -> None:
    """Every row once, sizes within one row, rows without labels spread as the guide says."""
    random = np.random.default_rng(seed)
    n, q, k = int(random.integers(10, 300)), int(random.integers(1, 9)), int(random.integers(2, 9))
    kinds = random.random((int(random.integers(1, 6)), q)) < 0.6  # few label sets, far from random
    Y = (kinds[random.integers(0, len(kinds), n)] & (random.random((n, 1)) < 0.6)).astype(np.uint8)
    numbers = fold_numbers(Y, n_splits=k, seed=seed)
    sizes = np.bincount(numbers, minlength=k)
    assert (len(numbers), len(sizes)) == (n, k)
    assert sizes.max() - sizes.min() <= 1
    empty = np.bincount(numbers[Y.sum(axis=1) == 0], minlength=k)
    assert empty.min() >= empty.sum() / k * 7 // 8


def test_exchanged_labels_leave_a_row_its_number_of_labels_where_they_can() -> None:
    """The cardinality asked for is that of the right labels, and of nearly all wrong ones."""
    data = make_multilabel(400, 3, 6, cardinality=1.5, noise=0.3, density=0.5, seed=2)
    wrong, right = (np.asarray(sp.csr_matrix(Y).sum(axis=1)).ravel() for Y in (data.Y, data.true_Y))
    assert right.sum() == 600
    between = (right > 0) & (right < 6)
    assert (wrong == right)[between].all()


def test_digits_need_no_network_and_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setenv("D2ACE_DATA", "")
    monkeypatch.setattr("socket.socket.connect", refuse)
    assert load_digits().n == 3000
