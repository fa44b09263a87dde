"""Thresholds per label: worked numbers, every threshold tried by hand, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from cases import case
from hypothesis import given
from hypothesis import strategies as st

from d2ace.evaluation import evaluate, macro_f1, macro_f1_tuned, tune_thresholds

Y = np.array([[1, 0], [1, 0], [0, 1], [0, 0]])
SCORES = np.array([[0.4, 0.1], [0.3, 0.2], [0.2, 0.9], [0.1, 0.3]])


def label_f1(truth: np.ndarray, scores: np.ndarray, threshold: float) -> float:
    predicted = scores >= threshold
    either = truth.sum() + predicted.sum()
    return 2 * (truth & predicted).sum() / either if either else 0.0


def test_worked_numbers() -> None:
    """Label 1: halfway between 0.3 and 0.2. Label 2: between 0.9 and 0.3.

    All pairs: 0.9, 0.4 | 0.3 holds 2 of 3 positives, F1 4/5; with both 0.3, 3 of 4, F1 6/7.
    """
    np.testing.assert_allclose(tune_thresholds(Y, SCORES, shrinkage=0), [0.25, 0.6])
    common = 0.25
    shrunk = [(2 * 0.25 + 5 * common) / 7, (1 * 0.6 + 5 * common) / 6]
    np.testing.assert_allclose(tune_thresholds(Y, SCORES), shrunk)


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_no_threshold_is_better_on_the_tuned_rows(first: int) -> None:
    for seed in range(first, first + 25):
        truth, scores = case(seed)
        if not truth.any():
            continue
        truth = truth.astype(bool)
        found = tune_thresholds(truth, scores, shrinkage=0)
        for j in np.flatnonzero(truth.any(axis=0)):
            every = [label_f1(truth[:, j], scores[:, j], limit) for limit in scores[:, j]]
            assert label_f1(truth[:, j], scores[:, j], found[j]) == pytest.approx(max(every))


@given(st.integers(0, 599), st.floats(0, 100))
def test_shrinkage_moves_each_threshold_towards_the_common_one(seed: int, shrinkage: float) -> None:
    truth, scores = case(seed)
    if not truth.any():
        return
    own, found = (tune_thresholds(truth, scores, shrinkage=one) for one in (0, shrinkage))
    common = tune_thresholds(truth.reshape(-1, 1), scores.reshape(-1, 1), shrinkage=0)
    low, high = np.minimum(own, common), np.maximum(own, common)
    rounding = 1e-9 * np.maximum(np.abs(low), np.abs(high))
    assert ((found >= low - rounding) & (found <= high + rounding)).all()
    lacking = ~truth.any(axis=0)
    np.testing.assert_allclose(found[lacking], np.broadcast_to(common, found.shape)[lacking])


def test_every_kind_of_matrix_gives_the_same() -> None:
    plain = tune_thresholds(Y, SCORES)
    for labels, scores in (
        (torch.tensor(Y), torch.tensor(SCORES)),
        (sp.csr_matrix(Y), SCORES),
        (Y.astype(bool), SCORES),
    ):
        np.testing.assert_array_equal(tune_thresholds(labels, scores), plain)


def test_neighbouring_numbers_are_told_apart() -> None:
    low = np.float64(0.5)
    high = np.nextafter(low, 1)
    scores = np.array([[high], [low]])
    (found,) = tune_thresholds(np.array([[1], [0]]), scores, shrinkage=0)
    assert (scores >= found).ravel().tolist() == [True, False]


def test_metrics_take_a_threshold_for_each_label() -> None:
    limits = [0.25, 0.6]
    assert macro_f1(Y, SCORES, limits) == 1.0
    assert macro_f1_tuned(Y, SCORES, limits) == 1.0
    assert evaluate(Y, SCORES, thresholds=limits).values["macro_f1_tuned"] == 1.0
    found = evaluate(Y, SCORES, threshold=torch.tensor(limits))
    assert (found.values["macro_f1"], found.values["hamming_loss"]) == (1.0, 0.0)


def test_without_thresholds_the_tuned_metric_is_left_out() -> None:
    assert "macro_f1_tuned" not in evaluate(Y, SCORES).values


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"metric": "auc"}, "metric must be 'f1', got 'auc'"),
        ({"shrinkage": -1}, "shrinkage must be a number from 0 on, got -1"),
        ({"shrinkage": float("nan")}, "shrinkage must be a number from 0 on, got nan"),
        ({"shrinkage": "much"}, "shrinkage must be a number from 0 on, got 'much'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        tune_thresholds(Y, SCORES, **options)


def test_labels_without_any_positive_are_refused() -> None:
    with pytest.raises(ValueError, match="no positive in any label"):
        tune_thresholds(np.zeros((4, 2)), SCORES)


@pytest.mark.parametrize(
    "limits", [[0.5], [[0.5, 0.5]], [0.5, 0.5, 0.5], ["a", "b"], [True, False]]
)
def test_thresholds_of_another_shape_or_kind_are_refused(limits: Any) -> None:
    with pytest.raises(TypeError, match="one number for each of the 2 labels"):
        macro_f1(Y, SCORES, limits)


def test_one_threshold_is_compared_in_the_precision_of_the_scores() -> None:
    scores = np.full((1, 1), 0.7, dtype=np.float32)
    assert macro_f1([[1]], scores, 0.7) == 1.0
