"""Slow, obvious NumPy version of insights: the whole history of every row, plain loops."""

from __future__ import annotations

from itertools import pairwise

import numpy as np


class InsightOracle:
    """Keeps every prediction of every row, and computes everything anew."""

    def __init__(self, labels) -> None:
        self.y = np.asarray(labels, dtype=np.float64)
        self.history: list[list[np.ndarray]] = [[] for _ in self.y]

    def observe(self, index, probs) -> None:
        seen = set()
        for row, p in zip(index, np.asarray(probs, dtype=np.float64), strict=True):
            if row not in seen:
                self.history[row].append(p)
            seen.add(row)

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

    def moved(self, row: int, label: int, seen: list[int]) -> float:
        """The label's probability, moved by a ridge regression on the row's other labels."""
        others = [other for other in range(self.y.shape[1]) if other != label]
        centre = self.y[seen].mean(axis=0)
        given = (self.y[seen] - centre)[:, others]
        left = np.array([self.y[i, label] - self.probability(i, label) for i in seen])
        covariance = given.T @ given / len(seen)
        spread = np.diag(covariance).copy()
        covariance *= len(seen) / (len(seen) + self.y.shape[1])
        np.fill_diagonal(covariance, np.where(spread > 0, spread, 1.0))
        weights = np.linalg.solve(covariance, given.T @ (left - left.mean()) / len(seen))
        return self.probability(row, label) + (self.y[row] - centre)[others] @ weights

    def suspicion(self) -> np.ndarray:
        n, q = self.y.shape
        score = np.full((n, q), np.nan)
        seen = [row for row in range(n) if self.history[row]]
        for label in range(q):
            odds = {}
            for row in seen:
                both = [self.probability(row, label), self.moved(row, label, seen)]
                p = np.clip(both, 0.01, 0.99)
                away = np.log(p / (1.0 - p)) * (1.0 - 2.0 * self.y[row, label])
                odds[row] = away.max()
            for row in seen:
                group = [i for i in seen if self.y[i, label] == self.y[row, label]]
                score[row, label] = odds[row] - 0.5 * np.mean([odds[i] for i in group])
        return score

    def confidence(self, row: int) -> list[float]:
        y = self.y[row]
        return [float(np.mean(np.where(y == 1, p, 1.0 - p))) for p in self.history[row]]

    def flips(self, row: int) -> float:
        changed = [np.mean((a > 0.5) != (b > 0.5)) for a, b in pairwise(self.history[row])]
        return float(np.mean(changed)) if changed else float("nan")
