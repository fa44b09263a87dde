"""The metrics as their definitions read, pair by pair, for small problems only."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np


def label_auc(truth: np.ndarray, scores: np.ndarray) -> list[float]:
    values = []
    for j in range(truth.shape[1]):
        right, pairs = Fraction(0), 0
        for i in range(len(truth)):
            for k in range(len(truth)):
                if truth[i, j] and not truth[k, j]:
                    pairs += 1
                    if scores[i, j] > scores[k, j]:
                        right += 1
                    elif scores[i, j] == scores[k, j]:
                        right += Fraction(1, 2)
        values.append(float(right / pairs) if pairs else math.nan)
    return values


def label_average_precision(truth: np.ndarray, scores: np.ndarray) -> list[float]:
    values = []
    for j in range(truth.shape[1]):
        precisions = []
        for i in range(len(truth)):
            if truth[i, j]:
                above = [k for k in range(len(truth)) if scores[k, j] >= scores[i, j]]
                precisions.append(Fraction(sum(bool(truth[k, j]) for k in above), len(above)))
        values.append(float(sum(precisions) / len(precisions)) if precisions else math.nan)
    return values


def ranking_loss(truth: np.ndarray, scores: np.ndarray) -> float:
    total = Fraction(0)
    for i in range(len(truth)):
        wrong = pairs = 0
        for relevant in range(truth.shape[1]):
            for other in range(truth.shape[1]):
                if truth[i, relevant] and not truth[i, other]:
                    pairs += 1
                    wrong += bool(scores[i, relevant] <= scores[i, other])
        total += Fraction(wrong, pairs) if pairs else 0
    return float(total / len(truth))


def coverage(truth: np.ndarray, scores: np.ndarray) -> float:
    steps = 0
    for i in range(len(truth)):
        deepest = 0
        for relevant in range(truth.shape[1]):
            if truth[i, relevant]:
                rank = sum(bool(score >= scores[i, relevant]) for score in scores[i])
                deepest = max(deepest, rank - 1)
        steps += deepest
    return float(Fraction(steps, len(truth)))


def one_error(truth: np.ndarray, scores: np.ndarray) -> float:
    total = Fraction(0)
    for i in range(len(truth)):
        top = [j for j in range(truth.shape[1]) if scores[i, j] == max(scores[i])]
        total += Fraction(sum(not truth[i, j] for j in top), len(top))
    return float(total / len(truth))
