"""The metrics against scikit-learn, against their definitions pair by pair, and by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import slow_metrics
from cases import case
from sklearn import metrics as sklearn

from d2ace import evaluation
from d2ace.evaluation import METRICS, evaluate

TOLERANCE = 1e-12
seeds = pytest.mark.parametrize("first", range(0, 600, 25))  # 600 problems, 25 to a test


def same(ours: object, theirs: object) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE)


@seeds
def test_labels_as_scikit_learn(first: int) -> None:
    for seed in range(first, first + 25):
        truth, scores = case(seed)
        auc, precision = np.full((2, truth.shape[1]), math.nan)
        for j, (label, score) in enumerate(zip(truth.T, scores.T, strict=True)):
            if label.any():
                precision[j] = sklearn.average_precision_score(label, score)
                if not label.all():
                    auc[j] = sklearn.roc_auc_score(label, score)
        same(evaluation.label_auc(truth, scores), auc)
        same(evaluation.label_average_precision(truth, scores), precision)
        for metric, values in (
            (evaluation.macro_auc, auc),
            (evaluation.mean_average_precision, precision),
        ):
            defined = values[~np.isnan(values)]
            same(metric(truth, scores), defined.mean() if defined.size else math.nan)


@seeds
def test_rows_as_scikit_learn(first: int) -> None:
    for seed in range(first, first + 25):
        truth, scores = case(seed)
        if truth.shape[1] == 1:
            continue  # scikit-learn does not take one label here
        same(evaluation.ranking_loss(truth, scores), sklearn.label_ranking_loss(truth, scores))
        # Theirs counts from 1, ours from 0; a row without labels is 0 in both.
        labelled = truth.any(axis=1).mean()
        same(evaluation.coverage(truth, scores), sklearn.coverage_error(truth, scores) - labelled)
        if truth.any(axis=1).all():
            depth = sklearn.coverage_error(truth, scores)
            same(evaluation.coverage(truth, scores), depth - 1)


@seeds
def test_sets_as_scikit_learn(first: int) -> None:
    for seed in range(first, first + 25):
        truth, scores = case(seed)
        threshold = (0.5, 0.25, -1.0)[seed % 5 % 3]
        predicted = scores >= threshold
        f1 = sklearn.f1_score if truth.shape[1] > 1 else one_label_f1
        flat = truth.ravel(), predicted.ravel()
        expected = {
            "macro_f1": f1(truth, predicted, average="macro", zero_division=0),
            "micro_f1": sklearn.f1_score(*flat, zero_division=0),
            "hamming_loss": sklearn.hamming_loss(*flat),
            "subset_accuracy": sklearn.accuracy_score(truth, predicted),
        }
        for name, value in expected.items():
            metric = METRICS[name].function
            same(metric(truth, scores, threshold=threshold), value)
            same(metric(truth, predicted), value)
            same(metric(truth, predicted.astype(np.int64)), value)
        each = [
            sklearn.f1_score(*column, zero_division=0)
            for column in zip(truth.T, predicted.T, strict=True)
        ]
        same(evaluation.label_f1(truth, scores, threshold), each)


def one_label_f1(truth: np.ndarray, predicted: np.ndarray, average: str, **options: int) -> float:
    """scikit-learn takes a matrix of one column for two classes, and averages over both."""
    return sklearn.f1_score(truth.ravel(), predicted.ravel(), average="binary", **options)


@pytest.mark.parametrize(
    "name", ["label_auc", "label_average_precision", "ranking_loss", "coverage", "one_error"]
)
def test_pair_by_pair(name: str) -> None:
    for seed in range(60):
        truth, scores = case(seed)
        truth, scores = truth[:12], scores[:12]
        same(getattr(evaluation, name)(truth, scores), getattr(slow_metrics, name)(truth, scores))


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [evaluate(*case(seed)) for seed in range(30)]
    for block in (1, 17, 64):
        monkeypatch.setattr("d2ace.evaluation.ranking.BLOCK", block)
        for seed, expected in enumerate(whole):
            np.testing.assert_equal(evaluate(*case(seed)).values, expected.values)


def test_evaluate_is_all_metrics_at_once() -> None:
    for seed in range(100):
        truth, scores = case(seed)
        limits = np.linspace(0.2, 0.8, truth.shape[1])
        found = evaluate(truth, scores, undefined="half", threshold=0.25, thresholds=limits)
        assert list(found.values) == list(METRICS)
        for name, metric in METRICS.items():
            options: dict[str, Any] = {"threshold": 0.25} if name in SETS else {}
            options |= {"undefined": "half"} if name in LABEL_WISE else {}
            options |= {"thresholds": limits} if metric.needs_thresholds else {}
            value = metric.function(truth, scores, **options)
            assert found.values[name] == value
            assert type(value) is float
        constant = truth.all(axis=0) | ~truth.any(axis=0)
        assert found.undefined == constant.sum()


SETS = {"macro_f1", "micro_f1", "hamming_loss", "subset_accuracy"}
LABEL_WISE = {"macro_auc", "mean_average_precision"}


def test_by_hand() -> None:
    truth = [[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]]
    scores = [[0.9, 0.2, 0.1], [0.4, 0.8, 0.6], [0.7, 0.3, 0.7], [0.6, 0.1, 0.2]]
    # Column 0 has the positives 0.9, 0.4 and the negatives 0.7, 0.6: 2 of 4 pairs are right, and
    # precision is 1 at the first and 2/4 at the second. Columns 1 and 2: the positive is on top.
    # Column 2: 0.7 above 0.6, 0.2 and 0.1.
    # Row 1: one of two relevant labels below the irrelevant one. Row 2: a tie at the top.
    expected = {
        "macro_auc": (0.5 + 1 + 1) / 3,
        "mean_average_precision": (0.75 + 1 + 1) / 3,
        # Predicted: column 0 in rows 0, 2, 3 (one right), column 1 in row 1, column 2 in 1 and 2.
        "macro_f1": (2 / 5 + 1 + 2 / 3) / 3,
        "micro_f1": 2 * 3 / (4 + 6),
        "hamming_loss": 4 / 12,
        "subset_accuracy": 1 / 4,
        "ranking_loss": (0 + 1 / 2 + 1 / 2 + 0) / 4,
        "one_error": (0 + 0 + 1 / 2 + 1) / 4,
        "coverage": (0 + 2 + 1 + 0) / 4,
    }
    found = evaluate(truth, scores).values
    assert found == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
def test_direction(metric: evaluation.Metric) -> None:
    truth = np.eye(5, dtype=bool)
    best, worst = (metric.function(truth, scores) for scores in (truth, ~truth))
    assert (best > worst) == metric.higher_is_better
    assert best == (1 if metric.higher_is_better else 0)
