"""How good scores [n, q] are for labels [n, q]: metrics, each one function with one decorator.

All take ``(Y_true, scores)`` as numpy, torch or scipy.sparse and return a float64 number.
Rows are instances x_i with the relevant labels Y_i, columns are labels. `METRICS` holds them in
the order in which they stand here, and so do the tables and columns of results.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .inputs import Array, Undefined, checked, checked_policy, checked_threshold
from .ranking import Ranking
from .scored import Scored, scored


@dataclass(frozen=True)
class Metric:
    """A metric as tables and training loops need it."""

    name: str
    title: str
    higher_is_better: bool
    function: Callable[..., float]

    @property
    def definition(self) -> str:
        """What it is, in the first paragraph of its function's documentation."""
        return " ".join((self.function.__doc__ or "").split("\n\n")[0].split())

    @cached_property
    def takes(self) -> frozenset[str]:
        """The names of its parameters."""
        return frozenset(inspect.signature(self.function).parameters)

    @property
    def needs_thresholds(self) -> bool:
        """Whether it takes ``thresholds`` tuned on other rows, as test rows alone have them."""
        return "thresholds" in self.takes


@dataclass(frozen=True)
class Evaluation:
    """All metrics of one set of scores, and how many labels have one class only (no AUC)."""

    values: dict[str, float]
    undefined: int


METRICS: dict[str, Metric] = {}
_Function = TypeVar("_Function", bound=Callable[..., float])


def metric(title: str, *, higher_is_better: bool) -> Callable[[_Function], _Function]:
    """Make a function of ``(Y_true, scores)`` one of `METRICS`, under its own name.

    A function that counts decisions takes ``threshold``, one that may be undefined for a label
    ``undefined``, one that is only defined at tuned thresholds ``thresholds``; `evaluate` hands
    them on to those who take them.
    """

    def register(function: _Function) -> _Function:
        name = function.__name__
        METRICS[name] = Metric(name, title, higher_is_better, function)
        return function

    return register


def evaluate(
    Y_true: Any,
    scores: Any,
    undefined: Undefined = "skip",
    threshold: Any = 0.5,
    *,
    thresholds: Any = None,
) -> Evaluation:
    """All of `METRICS` at once, from two sorts.

    ``undefined``, ``threshold`` and ``thresholds`` as in `macro_auc`, `macro_f1` and
    `macro_f1_tuned`. The result's ``undefined`` is the number of labels with one class only,
    whatever the policy. A metric that needs ``thresholds`` is left out without them.
    """
    found = Scored(checked(Y_true, scores))
    options = {
        "undefined": checked_policy(undefined),
        "threshold": checked_threshold(threshold, found.labels),
        "thresholds": thresholds,
    }
    values = {}
    for name, one in METRICS.items():
        if one.needs_thresholds and thresholds is None:
            continue
        chosen: dict[str, Any] = {key: options[key] for key in options.keys() & one.takes}
        values[name] = one.function(found, found, **chosen)
    return Evaluation(values, int(np.count_nonzero(found.columns.pairs == 0)))


# Values of every label, of which some metrics are means.


def label_auc(Y_true: Any, scores: Any) -> Array:
    """Area under the ROC curve of every label [q]; NaN where the label has one class only.

    The share of (positive, negative) pairs of instances in which the positive one scores higher;
    a tie counts half.
    """
    columns: Ranking = scored(Y_true, scores).columns
    return 1 - _quotient(columns.reversed + columns.tied / 2, columns.pairs, math.nan)


def label_average_precision(Y_true: Any, scores: Any) -> Array:
    """Average precision of every label [q]; NaN where the label has no positive instance.

    The mean over the positive instances of the precision among the instances that score at least
    as high (not interpolated).
    """
    columns: Ranking = scored(Y_true, scores).columns
    return _quotient(columns.precision, columns.relevant, math.nan)


def label_f1(Y_true: Any, scores: Any, threshold: Any = 0.5) -> Array:
    """F1 of every label [q], 2 TP / (2 TP + FP + FN); 0 where the label is neither true nor
    predicted anywhere.

    ``threshold`` as in `macro_f1`, which is the mean of these.
    """
    counts = scored(Y_true, scores).counts(threshold)
    return _quotient(2 * counts.hits, counts.true + counts.predicted, 0.0)


# The metrics. A set-based one predicts a label where its score reaches the threshold.


@metric("Macro-AUC", higher_is_better=True)
def macro_auc(Y_true: Any, scores: Any, undefined: Undefined = "skip") -> float:
    """Mean over labels of the share of (positive, negative) pairs of instances with the positive
    one scored higher; a tie counts half.

    ``undefined`` is what becomes of labels with one class only: ``"skip"`` takes the mean over the
    others (NaN if there are none), ``"nan"`` returns NaN, ``"half"`` counts them as chance, 0.5,
    ``"error"`` raises a ValueError that names them. `label_auc` has the values of the labels.
    """
    policy = checked_policy(undefined)
    return _mean(label_auc(Y_true, scores), policy, "macro_auc", "one class only", chance=0.5)


@metric("Macro-F1", higher_is_better=True)
def macro_f1(Y_true: Any, scores: Any, threshold: Any = 0.5) -> float:
    """Mean over labels of 2 TP / (2 TP + FP + FN); 0 for a label that is neither true nor
    predicted anywhere.

    A label is predicted where its score is at least ``threshold``, one number or one for each
    label [q]; predictions of 0 and 1 work too. `label_f1` has the values of the labels.
    """
    return float(label_f1(Y_true, scores, threshold).mean())


@metric("Ranking loss", higher_is_better=False)
def ranking_loss(Y_true: Any, scores: Any) -> float:
    """Mean over instances of the share of (relevant, irrelevant) pairs of labels in the wrong
    order; a tie counts as wrong, an instance with no or all labels as 0.
    """
    rows = scored(Y_true, scores).rows
    return float(_quotient(rows.reversed + rows.tied, rows.pairs, 0.0).mean())


@metric("mAP", higher_is_better=True)
def mean_average_precision(Y_true: Any, scores: Any, undefined: Undefined = "skip") -> float:
    """Mean over labels of the average precision: the precision down to each positive instance (and
    its ties), averaged, not interpolated.

    ``undefined`` as in `macro_auc`, for labels without a positive instance. Under ``"half"`` they
    count as chance too, which for average precision is the rate of positives: 0.
    `label_average_precision` has the values of the labels.
    """
    policy = checked_policy(undefined)
    values = label_average_precision(Y_true, scores)
    return _mean(values, policy, "mean_average_precision", "no positive instance", chance=0.0)


@metric("Micro-F1", higher_is_better=True)
def micro_f1(Y_true: Any, scores: Any, threshold: Any = 0.5) -> float:
    """2 TP / (2 TP + FP + FN) over all pairs; 0 if nothing is true or predicted.

    ``threshold`` as in `macro_f1`.
    """
    counts = scored(Y_true, scores).counts(threshold)
    either = float(counts.true.sum() + counts.predicted.sum())
    return 2 * float(counts.hits.sum()) / either if either else 0.0


@metric("Hamming loss", higher_is_better=False)
def hamming_loss(Y_true: Any, scores: Any, threshold: Any = 0.5) -> float:
    """Share of wrong (instance, label) pairs.

    ``threshold`` as in `macro_f1`.
    """
    counts = scored(Y_true, scores).counts(threshold)
    wrong = (counts.true + counts.predicted - 2 * counts.hits).sum()
    return float(wrong) / (counts.rows * counts.hits.size)


@metric("One-error", higher_is_better=False)
def one_error(Y_true: Any, scores: Any) -> float:
    """Share of instances whose highest-scored label is not relevant; among tied highest labels the
    expected value of picking one at random.
    """
    return float(1 - scored(Y_true, scores).rows.top.mean())


@metric("Coverage", higher_is_better=False)
def coverage(Y_true: Any, scores: Any) -> float:
    """Mean number of steps down the ranked labels until all relevant ones are covered, from 0;
    ties are stepped over, an instance without labels needs 0.
    """
    return float(np.maximum(scored(Y_true, scores).rows.depth - 1, 0).mean())


@metric("Subset accuracy", higher_is_better=True)
def subset_accuracy(Y_true: Any, scores: Any, threshold: Any = 0.5) -> float:
    """Share of instances with every label right.

    ``threshold`` as in `macro_f1`.
    """
    counts = scored(Y_true, scores).counts(threshold)
    return counts.right_rows / counts.rows


@metric("Macro-F1 tuned", higher_is_better=True)
def macro_f1_tuned(Y_true: Any, scores: Any, thresholds: Any = 0.5) -> float:
    """Macro-F1 where a label is predicted if its score reaches the label's own threshold, tuned on
    other rows.

    ``thresholds`` [q] come from `tune_thresholds` and validation rows: tuned on the evaluated rows,
    they would flatter the scores. Without them it is `macro_f1`.
    """
    return macro_f1(Y_true, scores, thresholds)


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


if not TYPE_CHECKING:  # type checkers see what is public by its name
    __all__ = [
        *("METRICS", "Evaluation", "Metric", "evaluate"),
        *("label_auc", "label_average_precision", "label_f1"),
        *METRICS,
    ]
