"""What must hold for any labels and scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from d2ace.evaluation import METRICS, evaluate, label_auc, label_average_precision

RANKING = ["macro_auc", "mean_average_precision", "ranking_loss", "one_error", "coverage"]


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores; few distinct scores, so that ties are common."""
    shape = draw(arrays.array_shapes(min_dims=2, max_dims=2, max_side=9))
    truth = draw(arrays.arrays(bool, shape))
    scores = draw(arrays.arrays(np.float64, shape, elements=st.integers(-4, 4).map(float)))
    return truth, scores / 4


def close(first: dict[str, float], second: dict[str, float]) -> None:
    assert first == pytest.approx(second, rel=0, abs=1e-12, nan_ok=True)


@given(problems(), st.randoms(use_true_random=False))
def test_order_of_rows_and_labels_does_not_matter(problem, random) -> None:
    truth, scores = problem
    rows, labels = list(range(len(truth))), list(range(truth.shape[1]))
    random.shuffle(rows)
    random.shuffle(labels)
    shuffled = evaluate(truth[rows][:, labels], scores[rows][:, labels])
    close(shuffled.values, evaluate(truth, scores).values)


@given(problems())
def test_only_the_order_of_scores_matters_to_ranking(problem) -> None:
    truth, scores = problem
    before = evaluate(truth, scores).values
    for transformed in (np.exp(scores), 3 * scores - 7, np.arctan(scores).astype(np.float32)):
        after = evaluate(truth, transformed).values
        assert [after[name] for name in RANKING] == pytest.approx(
            [before[name] for name in RANKING], rel=0, abs=1e-12, nan_ok=True
        )


@given(problems())
def test_reversed_scores_reverse_auc(problem) -> None:
    truth, scores = problem
    np.testing.assert_allclose(label_auc(truth, -scores), 1 - label_auc(truth, scores), atol=1e-12)
    np.testing.assert_allclose(label_auc(~truth, scores), 1 - label_auc(truth, scores), atol=1e-12)


@given(problems())
def test_negated_scores_and_labels_keep_the_ranking_loss(problem) -> None:
    truth, scores = problem
    mirrored = METRICS["ranking_loss"].function(~truth, -scores)
    assert mirrored == pytest.approx(METRICS["ranking_loss"].function(truth, scores), abs=1e-12)


@given(problems())
def test_rows_twice_change_nothing(problem) -> None:
    truth, scores = problem
    doubled = evaluate(np.vstack([truth, truth]), np.vstack([scores, scores]))
    close(doubled.values, evaluate(truth, scores).values)


@given(problems())
def test_bounds(problem) -> None:
    truth, scores = problem
    for name, value in evaluate(truth, scores).values.items():
        upper = truth.shape[1] - 1 if name == "coverage" else 1
        assert np.isnan(value) or -1e-12 <= value <= upper + 1e-12, name


@given(problems())
def test_truth_as_scores_is_perfect(problem) -> None:
    truth, _ = problem
    found = evaluate(truth, truth).values
    assert found["ranking_loss"] == found["hamming_loss"] == 0
    assert found["subset_accuracy"] == 1
    for values in (label_auc(truth, truth), label_average_precision(truth, truth)):
        assert np.all(np.isnan(values) | (values == 1))


@given(problems())
def test_average_precision_is_the_rate_of_positives_when_all_tie(problem) -> None:
    truth, scores = problem
    constant = label_average_precision(truth, np.zeros_like(scores))
    rate = truth.mean(axis=0)
    np.testing.assert_allclose(constant[rate > 0], rate[rate > 0], atol=1e-12)


@given(problems(), st.floats(-1.5, 1.5))
def test_threshold_is_the_same_as_predictions(problem, threshold: float) -> None:
    truth, scores = problem
    for name in ("macro_f1", "micro_f1", "hamming_loss", "subset_accuracy"):
        metric = METRICS[name].function
        assert metric(truth, scores, threshold=threshold) == metric(truth, scores >= threshold)
