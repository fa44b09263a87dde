"""Slow, obvious NumPy version of insights: the whole history of every row, plain loops."""

from __future__ import annotations

from itertools import pairwise

import numpy as np


class InsightOracle:
    """Keeps every prediction of every row, and computes everything anew."""

    def __init__(self, labels, *, compact: bool = False) -> None:
        self.y = np.asarray(labels, dtype=np.float64)
        self.compact = compact
        self.history: list[list[np.ndarray]] = [[] for _ in self.y]

    def observe(self, index, probs) -> None:
        seen = set()
        for row, p in zip(index, np.asarray(probs, dtype=np.float64), strict=True):
            if row not in seen:
                self.history[row].append(p)
            seen.add(row)

    def pair_loss(self, row: int, label: int) -> float:
        losses = []
        for p in self.history[row]:
            right = p[label] if self.y[row, label] else 1.0 - p[label]
            losses.append(1.0 - right if self.compact else -np.log(max(right, 1e-7)))
        return float(np.mean(losses))

    def probability(self, row: int, label: int) -> float:
        return float(np.mean([p[label] for p in self.history[row]]))

    def learnt(self, label: int) -> float:
        means = {0.0: [], 1.0: []}
        for row, visits in enumerate(self.history):
            if visits:
                means[self.y[row, label]].append(self.probability(row, label))
        if not means[0.0] or not means[1.0]:
            return float("nan")
        return float(np.clip(np.mean(means[1.0]) - np.mean(means[0.0]), 0.0, 1.0))

    def suspicion(self) -> np.ndarray:
        n, q = self.y.shape
        score = np.full((n, q), np.nan)
        seen = [row for row in range(n) if self.history[row]]
        for label in range(q):
            for row in seen:
                group = [i for i in seen if self.y[i, label] == self.y[row, label]]
                usual = np.mean([self.pair_loss(i, label) for i in group])
                score[row, label] = self.pair_loss(row, label) - 0.5 * usual
        return score

    def confidence(self, row: int) -> list[float]:
        y = self.y[row]
        return [float(np.mean(np.where(y == 1, p, 1.0 - p))) for p in self.history[row]]

    def flips(self, row: int) -> float:
        changed = [np.mean((a > 0.5) != (b > 0.5)) for a, b in pairwise(self.history[row])]
        return float(np.mean(changed)) if changed else float("nan")
