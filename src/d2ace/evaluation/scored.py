"""Labels and scores of one evaluation, and what metrics count in them, each counted once."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .inputs import Array, Pairs, checked, checked_threshold
from .ranking import Ranking, rank_columns, rank_rows


class Counts(NamedTuple):
    """Of every label [q] in float64: hits, true and predicted ones; and of all rows."""

    hits: Array
    true: Array
    predicted: Array
    rows: int
    right_rows: int


class Scored:
    """Checked labels ``truth`` [n, q] and ``scores`` [n, q]; whatever is counted is kept."""

    def __init__(self, pairs: Pairs) -> None:
        self.truth, self.scores = pairs
        self._pairs = pairs
        self._counts: dict[bytes, Counts] = {}

    @property
    def labels(self) -> int:
        """Number of labels q."""
        return int(self.truth.shape[1])

    @cached_property
    def columns(self) -> Ranking:
        """Every label's instances, ordered by score."""
        return rank_columns(self._pairs)

    @cached_property
    def rows(self) -> Ranking:
        """Every instance's labels, ordered by score."""
        return rank_rows(self._pairs)

    def counts(self, threshold: Any) -> Counts:
        """Hits and misses where a label is predicted if its score reaches the threshold."""
        limit = checked_threshold(threshold, self.labels)
        key = limit.tobytes()
        if key not in self._counts:
            self._counts[key] = _count(self._pairs, limit)
        return self._counts[key]


def scored(Y_true: Any, scores: Any) -> Scored:
    """Both arguments of a metric, checked; `evaluate` hands the same to all metrics."""
    return Y_true if isinstance(Y_true, Scored) else Scored(checked(Y_true, scores))


def decided(scores: Array, threshold: Array) -> Array:
    """Which scores [n, q] reach a checked threshold, [] or [q]."""
    # One number is compared in the precision of the scores: 0.7 reaches 0.7.
    return scores >= (threshold if threshold.ndim else float(threshold))


def _count(pairs: Pairs, threshold: Array) -> Counts:
    predicted = decided(pairs.scores, threshold)
    hits, true, positive = (
        np.count_nonzero(which, axis=0).astype(np.float64)
        for which in (pairs.truth & predicted, pairs.truth, predicted)
    )
    right_rows = int(np.count_nonzero((pairs.truth == predicted).all(axis=1)))
    return Counts(hits, true, positive, len(predicted), right_rows)
