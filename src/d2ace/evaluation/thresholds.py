"""Thresholds per label, from validation rows: where a score counts as a yes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .inputs import Array, checked

_METRICS = ("f1",)
_SHRINKAGE = 5.0  # positives at which a label's own threshold and the common one weigh alike


def tune_thresholds(
    Y_true: Any, scores: Any, metric: str = "f1", *, shrinkage: float = _SHRINKAGE
) -> npt.NDArray[np.float64]:
    """One threshold per label [q] that makes the label's F1 on these rows as large as possible.

    Give validation rows, never the rows you report on. Hand the result to the metrics that take
    ``threshold``, or compare ``scores >= thresholds`` yourself.

    A label with few positives has a best threshold that is mostly noise. It is pulled towards
    the common threshold, the one that is best for all labels together (Micro-F1), with weight
    ``shrinkage / (positives + shrinkage)``. A label without positives gets the common one.
    ``shrinkage=0`` turns this off.
    """
    if metric not in _METRICS:
        raise ValueError(f"metric must be 'f1', got {metric!r}; no other can be tuned.")
    if not isinstance(shrinkage, int | float | np.number) or not 0 <= shrinkage < np.inf:
        raise ValueError(f"shrinkage must be a number from 0 on, got {shrinkage!r}.")
    truth, values = checked(Y_true, scores)
    positives = np.count_nonzero(truth, axis=0)
    if not positives.any():
        raise ValueError(
            "Y_true has no positive in any label, so no threshold can be tuned; give more rows."
        )
    common = _best_threshold(truth.reshape(-1, 1), values.reshape(-1, 1))
    own = np.where(positives > 0, _best_threshold(truth, values), common)
    share = np.divide(
        positives, positives + shrinkage, out=np.zeros(own.shape), where=positives > 0
    )
    return share * own + (1 - share) * common


def _best_threshold(truth: Array, scores: Array) -> npt.NDArray[np.float64]:
    """Of every column: halfway between the two scores between which F1 is largest.

    Among equal values of F1, the highest threshold.
    """
    order = np.argsort(-scores, axis=0, kind="stable")
    ordered = np.take_along_axis(scores, order, axis=0).astype(np.float64)
    hits = np.cumsum(np.take_along_axis(truth, order, axis=0), axis=0, dtype=np.float64)
    chosen = np.arange(1, len(truth) + 1)[:, None]
    f1 = 2 * hits / (chosen + hits[-1])
    f1[:-1][ordered[1:] == ordered[:-1]] = -1  # equal scores stand on one side of a threshold
    last = f1.argmax(axis=0)[None]
    low = np.take_along_axis(ordered, np.minimum(last + 1, len(truth) - 1), axis=0)[0]
    high = np.take_along_axis(ordered, last, axis=0)[0]
    return np.where(low < high, _between(low, high), high)


def _between(low: Array, high: Array) -> npt.NDArray[np.float64]:
    """Above ``low``, at most ``high``: neighbouring numbers have no middle."""
    middle = low / 2 + high / 2  # which cannot overflow
    return np.where((middle > low) & (middle <= high), middle, high)
