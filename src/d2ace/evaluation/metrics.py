"""How good scores [n, q] are for labels [n, q]: nine metrics, each with one definition.

All take ``(Y_true, scores)`` as numpy, torch or scipy.sparse and return a float64 number.
Rows are instances x_i with the relevant labels Y_i, columns are labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .inputs import Array, Pairs, Undefined, checked, checked_policy, checked_threshold
from .ranking import Ranking, rank_columns, rank_rows


@dataclass(frozen=True)
class Metric:
    """A metric as tables and training loops need it."""

    name: str
    title: str
    higher_is_better: bool
    function: Callable[..., float]


@dataclass(frozen=True)
class Evaluation:
    """All metrics of one set of scores, and how many labels have one class only (no AUC)."""

    values: dict[str, float]
    undefined: int


# Label-wise: one value per label, then their mean.


def label_auc(Y_true: Any, scores: Any) -> Array:
    """Area under the ROC curve of every label [q]; NaN where the label has one class only.

    The share of (positive, negative) pairs of instances in which the positive one scores higher;
    a tie counts half.
    """
    return _label_auc(rank_columns(checked(Y_true, scores)))


def macro_auc(Y_true: Any, scores: Any, undefined: Undefined = "skip") -> float:
    """Mean of `label_auc`.

    ``undefined`` is what becomes of labels with one class only: ``"skip"`` takes the mean over the
    others (NaN if there are none), ``"nan"`` returns NaN, ``"half"`` counts them as chance, 0.5,
    ``"error"`` raises a ValueError that names them.
    """
    policy = checked_policy(undefined)
    return _mean_auc(label_auc(Y_true, scores), policy)


def label_average_precision(Y_true: Any, scores: Any) -> Array:
    """Average precision of every label [q]; NaN where the label has no positive instance.

    The mean over the positive instances of the precision among the instances that score at least
    as high (not interpolated).
    """
    return _label_average_precision(rank_columns(checked(Y_true, scores)))


def mean_average_precision(Y_true: Any, scores: Any, undefined: Undefined = "skip") -> float:
    """Mean of `label_average_precision` (mAP).

    ``undefined`` as in `macro_auc`, for labels without a positive instance. Under ``"half"`` they
    count as chance too, which for average precision is the rate of positives: 0.
    """
    policy = checked_policy(undefined)
    return _mean_average_precision(label_average_precision(Y_true, scores), policy)


# Instance-wise: one value per row, then their mean.


def ranking_loss(Y_true: Any, scores: Any) -> float:
    """Mean over instances of the share of (relevant, irrelevant) label pairs in the wrong order.

    A tie counts as wrong; an instance with no or with all labels counts 0.
    """
    return _ranking_loss(rank_rows(checked(Y_true, scores)))


def coverage(Y_true: Any, scores: Any) -> float:
    """Mean number of steps down the ranked labels until all relevant ones are covered.

    From 0: an instance with one relevant label on top needs no step, and one without any label
    needs none. Labels tied with the last relevant one are stepped over as well.
    """
    return _coverage(rank_rows(checked(Y_true, scores)))


def one_error(Y_true: Any, scores: Any) -> float:
    """Share of instances whose highest-scored label is not relevant.

    If several labels share the highest score, the expected value of picking one of them at random.
    """
    return _one_error(rank_rows(checked(Y_true, scores)))


# Set-based: a label is predicted where its score reaches the threshold.


def macro_f1(Y_true: Any, scores: Any, threshold: float = 0.5) -> float:
    """Mean over labels of 2 TP / (2 TP + FP + FN); 0 for a label without true or predicted ones.

    A label is predicted where its score is at least ``threshold``; predictions of 0 and 1 work too.
    """
    return _macro_f1(_count(checked(Y_true, scores), threshold))


def micro_f1(Y_true: Any, scores: Any, threshold: float = 0.5) -> float:
    """2 TP / (2 TP + FP + FN) over all pairs; 0 if nothing is true or predicted.

    ``threshold`` as in `macro_f1`.
    """
    return _micro_f1(_count(checked(Y_true, scores), threshold))


def hamming_loss(Y_true: Any, scores: Any, threshold: float = 0.5) -> float:
    """Share of wrong (instance, label) pairs; ``threshold`` as in `macro_f1`."""
    return _hamming_loss(_count(checked(Y_true, scores), threshold))


def subset_accuracy(Y_true: Any, scores: Any, threshold: float = 0.5) -> float:
    """Share of instances with every label right; ``threshold`` as in `macro_f1`."""
    return _subset_accuracy(_count(checked(Y_true, scores), threshold))


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("macro_auc", "Macro-AUC", True, macro_auc),
        Metric("macro_f1", "Macro-F1", True, macro_f1),
        Metric("ranking_loss", "Ranking loss", False, ranking_loss),
        Metric("mean_average_precision", "mAP", True, mean_average_precision),
        Metric("micro_f1", "Micro-F1", True, micro_f1),
        Metric("hamming_loss", "Hamming loss", False, hamming_loss),
        Metric("one_error", "One-error", False, one_error),
        Metric("coverage", "Coverage", False, coverage),
        Metric("subset_accuracy", "Subset accuracy", True, subset_accuracy),
    )
}


def evaluate(
    Y_true: Any, scores: Any, undefined: Undefined = "skip", threshold: float = 0.5
) -> Evaluation:
    """All of `METRICS` at once, from two sorts.

    ``undefined`` and ``threshold`` as in `macro_auc` and `macro_f1`. The result's ``undefined`` is
    the number of labels with one class only, whatever the policy.
    """
    policy = checked_policy(undefined)
    pairs = checked(Y_true, scores)
    counts = _count(pairs, threshold)
    columns, rows = rank_columns(pairs), rank_rows(pairs)
    auc, precision = _label_auc(columns), _label_average_precision(columns)
    values = {
        "macro_auc": _mean_auc(auc, policy),
        "macro_f1": _macro_f1(counts),
        "ranking_loss": _ranking_loss(rows),
        "mean_average_precision": _mean_average_precision(precision, policy),
        "micro_f1": _micro_f1(counts),
        "hamming_loss": _hamming_loss(counts),
        "one_error": _one_error(rows),
        "coverage": _coverage(rows),
        "subset_accuracy": _subset_accuracy(counts),
    }
    return Evaluation(values, int(np.count_nonzero(np.isnan(auc))))


def _label_auc(columns: Ranking) -> Array:
    wrong = columns.reversed + columns.tied / 2
    return 1 - _quotient(wrong, columns.pairs, math.nan)


def _mean_auc(values: Array, policy: Undefined) -> float:
    return _mean(values, policy, "macro_auc", "one class only", chance=0.5)


def _label_average_precision(columns: Ranking) -> Array:
    return _quotient(columns.precision, columns.relevant, math.nan)


def _mean_average_precision(values: Array, policy: Undefined) -> float:
    return _mean(values, policy, "mean_average_precision", "no positive instance", chance=0.0)


def _ranking_loss(rows: Ranking) -> float:
    return float(_quotient(rows.reversed + rows.tied, rows.pairs, 0.0).mean())


def _coverage(rows: Ranking) -> float:
    return float(np.maximum(rows.depth - 1, 0).mean())


def _one_error(rows: Ranking) -> float:
    return float(1 - rows.top.mean())


class _Counts(NamedTuple):
    """Of every label [q] in float64: hits, true and predicted ones; and of all rows."""

    hits: Array
    true: Array
    predicted: Array
    rows: int
    right_rows: int


def _count(pairs: Pairs, threshold: float) -> _Counts:
    predicted = pairs.scores >= checked_threshold(threshold)
    hits, true, positive = (
        np.count_nonzero(which, axis=0).astype(np.float64)
        for which in (pairs.truth & predicted, pairs.truth, predicted)
    )
    right_rows = int(np.count_nonzero((pairs.truth == predicted).all(axis=1)))
    return _Counts(hits, true, positive, len(predicted), right_rows)


def _macro_f1(counts: _Counts) -> float:
    return float(_quotient(2 * counts.hits, counts.true + counts.predicted, 0.0).mean())


def _micro_f1(counts: _Counts) -> float:
    either = float(counts.true.sum() + counts.predicted.sum())
    return 2 * float(counts.hits.sum()) / either if either else 0.0


def _hamming_loss(counts: _Counts) -> float:
    wrong = (counts.true + counts.predicted - 2 * counts.hits).sum()
    return float(wrong) / (counts.rows * counts.hits.size)


def _subset_accuracy(counts: _Counts) -> float:
    return counts.right_rows / counts.rows


def _quotient(numerator: Array, denominator: Array, otherwise: float) -> Array:
    """``numerator / denominator``, and ``otherwise`` where the denominator is 0."""
    filled = np.full(numerator.shape, otherwise)
    return np.divide(numerator, denominator, out=filled, where=denominator > 0)


def _mean(values: Array, policy: Undefined, name: str, lack: str, chance: float) -> float:
    """Mean over labels by the policy for undefined (NaN) ones."""
    missing = np.isnan(values)
    if not missing.any() or policy == "nan":
        return float(values.mean())
    if policy == "error":
        labels = np.flatnonzero(missing)
        shown = ", ".join(str(label) for label in labels[:5]) + (", ..." if labels.size > 5 else "")
        raise ValueError(
            f"{name} is undefined for {labels.size} of {values.size} labels ({lack} in the "
            f"evaluated rows; columns {shown}); evaluate more rows, drop these labels or pass "
            f"undefined='skip'."
        )
    if policy == "half":
        return float(np.where(missing, chance, values).mean())
    return float(values[~missing].mean()) if not missing.all() else math.nan
