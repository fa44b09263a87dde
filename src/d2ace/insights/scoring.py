"""From mean probabilities to suspicion: how much they, and the row's other labels, disagree."""

from __future__ import annotations

import torch
from torch import Tensor


def group_means(values: Tensor, given: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Means [q] of ``values`` over given negatives and positives of ``rows``; 0 without any."""
    positive, counted = given & rows.unsqueeze(1), rows.unsqueeze(1)
    wide = values.to(torch.float64)
    all_sums = torch.where(counted, wide, 0.0).sum(dim=0)
    sums = torch.where(positive, wide, 0.0).sum(dim=0)
    positives = positive.sum(dim=0)
    negatives = rows.sum() - positives
    return (all_sums - sums) / negatives.clamp_min(1), sums / positives.clamp_min(1)


def learnt(probability: Tensor, given: Tensor, rows: Tensor) -> Tensor:
    """How far apart predictions of positives and negatives are, [q] in [0, 1]; NaN for one class.

    Tjur's coefficient of discrimination, cut at 0.
    """
    negative, positive = group_means(probability, given, rows)
    positives = (given & rows.unsqueeze(1)).sum(dim=0)
    both = (positives > 0) & (positives < rows.sum())
    return torch.where(both, (positive - negative).clamp(0.0, 1.0), torch.nan)


def from_other_labels(probability: Tensor, given: Tensor, rows: Tensor) -> Tensor:
    """How much the row's other given labels move a label's probability, [n, q].

    A linear model predicts the residual y - p of a label from the given values of all other labels,
    by least squares over ``rows``. The covariance of the labels is shrunk towards its diagonal by
    q / (n + q), so that few rows and correlated labels are safe.
    """
    counted = rows.to(torch.float32).unsqueeze(1)
    n, q = rows.sum(), given.shape[1]
    y = given.to(torch.float32)
    left = (y - probability) * counted
    y = (y - (y * counted).sum(dim=0) / n) * counted
    left = (left - left.sum(dim=0) / n) * counted
    covariance = (y.T @ y).to(torch.float64) / n
    spread = covariance.diagonal()
    spread = torch.where(spread > 0, spread, 1.0)  # a label of one class predicts nothing
    shrunk = covariance * (n / (n + q))
    shrunk.diagonal().copy_(spread)
    inverse = torch.linalg.inv(shrunk)
    # Of all labels, then without the label itself: one inverse instead of q regressions.
    weights = inverse @ ((y.T @ left).to(torch.float64) / n)
    weights = weights - inverse * (weights.diagonal() / inverse.diagonal())
    return y @ weights.to(torch.float32)


def log_odds(probability: Tensor, given: Tensor) -> Tensor:
    """Log-odds of the opposite of the given value; odds beyond 99 to 1 mean little."""
    odds = torch.logit(probability, eps=0.01)
    return torch.where(given, -odds, odds)


def suspicion(probability: Tensor, given: Tensor, rows: Tensor) -> Tensor:
    """Log-odds against the given value, minus half the mean of its label and given value.

    The log-odds are those of the mean probability, or of this probability adjusted for the row's
    other labels if that is more suspicious. NaN for rows never seen. Without subtracting the
    group's mean, rare positives come first even if they are right; with all of it subtracted,
    labels that cannot be learnt look flawless. Other labels may only raise suspicion: a label
    mistaken for another leaves two errors in a row, and each would excuse the other.
    ``benchmarks/insights.md`` has the measurements.
    """
    moved = probability + from_other_labels(probability, given, rows)
    odds = torch.maximum(log_odds(probability, given), log_odds(moved, given))
    negative, positive = group_means(odds, given, rows)
    usual = torch.where(given, positive, negative)
    score = (odds - 0.5 * usual).to(torch.float32)
    return score.masked_fill_(~rows.unsqueeze(1), torch.nan)
