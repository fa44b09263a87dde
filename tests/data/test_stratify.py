from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from iterstrat.ml_stratifiers import MultilabelStratifiedKFold

from d2ace.data import (
    DataError,
    MultiLabelData,
    balance_error,
    catalogue,
    fold_numbers,
    folds,
    make_multilabel,
    validation_split,
)

label_matrices = hnp.arrays(
    np.uint8, st.tuples(st.integers(7, 60), st.integers(1, 8)), elements=st.integers(0, 1)
)
splits = st.integers(2, 7)
seeds = st.integers(0, 2**63)


def iterstrat_numbers(Y: np.ndarray, n_splits: int, seed: int) -> np.ndarray:
    numbers = np.empty(len(Y), dtype=np.int64)
    oracle = MultilabelStratifiedKFold(n_splits, shuffle=True, random_state=seed)
    for fold, (_, test) in enumerate(oracle.split(np.zeros(len(Y)), Y)):
        numbers[test] = fold
    return numbers


# -- against the reference implementation, on every dataset there is


@pytest.mark.parametrize("name", list(catalogue.catalogue()))
def test_balance_is_as_good_as_the_reference(
    name: str, real: Callable[[str], MultiLabelData]
) -> None:
    Y = sp.csr_matrix(real(name).Y).toarray()
    seeds = range(1 if Y.size > 10**7 else 3)  # the reference takes its time
    ours = np.mean([balance_error(Y, fold_numbers(Y, 5, seed)) for seed in seeds])
    theirs = np.mean([balance_error(Y, iterstrat_numbers(Y, 5, seed)) for seed in seeds])
    assert ours <= 1.05 * theirs
    sizes = np.bincount(fold_numbers(Y, 5, 0))
    assert sizes.max() - sizes.min() <= 1


def test_balance_on_labels_that_never_lead() -> None:
    # With many labels per row the rarest decides alone; the others must still come out even.
    data = make_multilabel(2000, 1, 200, cardinality=30.0, seed=3)
    ours = balance_error(data.Y, fold_numbers(data.Y))
    assert ours < 0.8 * balance_error(data.Y, iterstrat_numbers(data.Y, 5, 0))


# -- properties


@settings(deadline=None)
@given(label_matrices, splits, seeds)
def test_every_row_is_tested_once(Y: np.ndarray, n_splits: int, seed: int) -> None:
    pairs = folds(Y, n_splits, seed)
    assert len(pairs) == n_splits
    np.testing.assert_array_equal(
        np.sort(np.concatenate([test for _, test in pairs])), np.arange(len(Y))
    )
    for train, test in pairs:
        np.testing.assert_array_equal(np.union1d(train, test), np.arange(len(Y)))
        assert train.size + test.size == len(Y)
        assert (np.diff(train) > 0).all()
        assert (np.diff(test) > 0).all()
    sizes = [test.size for _, test in pairs]
    assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(label_matrices, splits, seeds)
def test_same_seed_same_folds_whatever_the_storage(Y: np.ndarray, n_splits: int, seed: int) -> None:
    expected = fold_numbers(Y, n_splits, seed)
    explicit = sp.csr_matrix(np.ones_like(Y))
    explicit.data[:] = Y.ravel()  # zeros that are stored
    for same in (Y.astype(bool), Y.astype(float), Y.tolist(), sp.csc_matrix(Y), sp.lil_matrix(Y)):
        np.testing.assert_array_equal(fold_numbers(same, n_splits, seed), expected)
    np.testing.assert_array_equal(fold_numbers(explicit, n_splits, seed), expected)
    assert explicit.nnz == Y.size  # the argument is left alone


@settings(deadline=None)
@given(label_matrices, splits, seeds, st.randoms())
def test_the_order_of_labels_does_not_matter(Y: np.ndarray, n_splits: int, seed: int, luck) -> None:
    order = list(range(Y.shape[1]))
    luck.shuffle(order)
    np.testing.assert_array_equal(
        fold_numbers(Y[:, order], n_splits, seed), fold_numbers(Y, n_splits, seed)
    )


@settings(deadline=None)
@given(
    hnp.arrays(np.uint8, st.tuples(st.integers(10, 60), st.just(1)), elements=st.integers(0, 1)),
    splits,
    seeds,
)
def test_one_label_is_spread_within_one_row(Y: np.ndarray, n_splits: int, seed: int) -> None:
    numbers = fold_numbers(Y, n_splits, seed)
    positives = np.bincount(numbers[Y[:, 0] == 1], minlength=n_splits)
    assert positives.max() - positives.min() <= 1


@settings(deadline=None)
@given(label_matrices, seeds, st.sampled_from([0.1, 0.15, 0.2, 0.25, 0.5]), st.data())
def test_validation_split_is_a_partition_of_the_rows(
    Y: np.ndarray, seed: int, share: float, data: st.DataObject
) -> None:
    rows = data.draw(st.permutations(range(len(Y))))[: len(Y) - 3]
    if len(rows) < 20:
        return
    train, validation = validation_split(Y, rows, share, seed)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, validation])), np.sort(rows))
    assert abs(validation.size - share * len(rows)) <= 3
    again = validation_split(Y, rows, share, seed)
    np.testing.assert_array_equal(again[1], validation)


# -- special cases


@pytest.mark.parametrize("value", [0, 1])
def test_constant_labels(value: int) -> None:
    sizes = np.bincount(fold_numbers(np.full((23, 4), value), 5))
    assert sorted(sizes) == [4, 4, 5, 5, 5]


def test_no_labels_at_all() -> None:
    assert sorted(np.bincount(fold_numbers(np.zeros((11, 0)), 2))) == [5, 6]


def test_as_many_folds_as_rows() -> None:
    assert sorted(fold_numbers(np.eye(6), 6)) == list(range(6))


def test_rows_without_labels_are_spread() -> None:
    Y = np.zeros((600, 6), dtype=np.uint8)
    Y[:300] = make_multilabel(300, 1, 6).Y
    empty = np.bincount(fold_numbers(Y)[300:], minlength=5)
    assert empty.min() >= 52  # seven eighths of 60
    assert empty.max() <= 90


def test_identical_rows_are_dealt_in_turn() -> None:
    Y = np.repeat(np.array([[1, 0, 1], [0, 1, 0]]), [50, 25], axis=0)
    numbers = fold_numbers(Y)
    assert np.bincount(numbers[:50]).tolist() == [10] * 5
    assert np.bincount(numbers[50:]).tolist() == [5] * 5


def test_rare_labels_do_not_gather_in_one_fold() -> None:
    # Forty labels with one positive each: no fold may be the favourite of them all.
    assert np.bincount(fold_numbers(np.eye(40))).tolist() == [8] * 5
    first = [int(fold_numbers(np.eye(6, 1), 6, seed)[0]) for seed in range(200)]
    assert np.bincount(first, minlength=6).min() > 15  # nor fold 0 that of the first


def test_seeds_differ_and_zero_is_a_seed() -> None:
    Y = make_multilabel(200, 1, 6).Y
    assert not np.array_equal(fold_numbers(Y, seed=0), fold_numbers(Y, seed=1))
    np.testing.assert_array_equal(fold_numbers(Y, seed=0), fold_numbers(Y))


def test_global_random_state_is_neither_read_nor_changed() -> None:
    Y = make_multilabel(100, 1, 6).Y
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    fold_numbers(Y)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_folds_are_the_same_everywhere() -> None:
    # Labels from integer arithmetic, so that no other generator is involved.
    rows, columns = np.meshgrid(np.arange(500), np.arange(20), indexing="ij")
    Y = (rows * rows + 7 * rows * columns + columns * columns) % (columns + 3) == 0
    numbers = fold_numbers(Y, 5, seed=7).astype("<i8")
    digest = hashlib.sha256(numbers.tobytes()).hexdigest()
    assert digest == "9e25e1fff8f53b8c0887203f7a2ed73791c7f88a0fcf0ce041ca3d6899009513"


def test_validation_split_keeps_rare_labels_in_proportion() -> None:
    data = make_multilabel(5000, 1, 30, cardinality=3.0)
    train, validation = validation_split(data.Y, np.arange(0, 5000, 2))
    rate = data.Y[train].mean(axis=0)
    assert validation.size == 250
    np.testing.assert_allclose(data.Y[validation].mean(axis=0), rate, atol=1.5 / 250)


def test_balance_error_by_hand() -> None:
    Y = np.array([[1, 0], [1, 0], [0, 0], [0, 0]])
    assert balance_error(Y, [0, 1, 0, 1]) == 0.0
    assert balance_error(Y, [0, 0, 1, 1]) == 1.0
    assert balance_error(np.zeros((2, 2)), [0, 1]) == 0.0


# -- errors are sentences


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: folds(np.eye(3), 5), "3 rows cannot fill 5 folds; lower n_splits"),
        (lambda: folds(np.eye(3), 1), "n_splits is 1; it must be a whole number of at least 2"),
        (lambda: folds(np.eye(3), 2.0), "n_splits is 2.0"),
        (lambda: folds(np.eye(3), 2, seed=-1), "seed is -1"),
        (lambda: folds(np.eye(3), 2, seed=None), "seed is None"),
        (
            lambda: folds(np.ones(3), 2),
            "Y must be a matrix [instances, labels]",
        ),
        (lambda: folds(np.full((3, 2), 2), 2), "Y[0, 0] is 2, but labels must be 0 or 1"),
        (lambda: folds(np.full((3, 2), np.nan), 2), "Y[0, 0] is nan"),
        (lambda: folds(sp.csr_matrix(np.full((3, 2), 0.5)), 2), "Y[0, 0] is 0.5"),
        (
            lambda: folds(sp.coo_matrix(([1, 1], ([0, 0], [1, 1])), shape=(3, 2)), 2),
            "Y[0, 1] is 2",
        ),
        (lambda: validation_split(np.eye(30), share=0.0), "share is 0.0"),
        (lambda: validation_split(np.eye(30), share=1.0), "share is 1.0"),
        (lambda: validation_split(np.eye(30), share=0.001), "share is 0.001"),
        (lambda: validation_split(np.eye(30), share=float("nan")), "share is nan"),
        (lambda: validation_split(np.eye(8)), "needs at least 10 rows, but there are 8"),
        (lambda: validation_split(np.eye(30), [1, 1, 2]), "without repetition"),
        (lambda: validation_split(np.eye(30), range(20, 40)), "rows go from 20 to 39"),
        (lambda: validation_split(np.eye(30), [0.5, 2.0]), "row numbers or a mask of 30 rows"),
        (lambda: validation_split(np.eye(30), np.ones(29, bool)), "got bool of shape (29,)"),
        (lambda: balance_error(np.eye(3), [0, 1]), "2 fold numbers were given for 3 rows"),
    ],
)
def test_errors(call: Callable[[], object], words: str) -> None:
    with pytest.raises(DataError) as caught:
        call()
    assert words in str(caught.value)


@pytest.mark.parametrize("n", [2, 3, 7, 12])
@pytest.mark.parametrize("share", [0.02, 0.15, 0.35])
def test_the_share_that_too_few_rows_are_offered_works(n, share):
    with pytest.raises(DataError, match="give more rows or a share of") as refused:
        validation_split(np.ones((n, 2)), share=share)
    train, validation = validation_split(
        np.ones((n, 2)), share=float(str(refused.value).rstrip(".").split()[-1])
    )
    assert len(train) > 0
    assert len(validation) > 0
