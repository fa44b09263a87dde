"""From sums over visits to suspicion: how much harder a pair is than pairs like it."""

from __future__ import annotations

import torch
from torch import Tensor


def group_means(values: Tensor, given: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Means [q] of ``values`` over given negatives and positives, of ``rows`` only; 0 of none."""
    positive, counted = given & rows.unsqueeze(1), rows.unsqueeze(1)
    wide = values.to(torch.float64)
    all_sums = torch.where(counted, wide, 0.0).sum(dim=0)
    sums = torch.where(positive, wide, 0.0).sum(dim=0)
    positives = positive.sum(dim=0)
    negatives = rows.sum() - positives
    return (all_sums - sums) / negatives.clamp_min(1), sums / positives.clamp_min(1)


def learnt(probability: Tensor, given: Tensor, rows: Tensor) -> Tensor:
    """How far apart predictions of positives and negatives are, [q] in [0, 1]; NaN of one class.

    Tjur's coefficient of discrimination, cut at 0.
    """
    negative, positive = group_means(probability, given, rows)
    positives = (given & rows.unsqueeze(1)).sum(dim=0)
    both = (positives > 0) & (positives < rows.sum())
    return torch.where(both, (positive - negative).clamp(0.0, 1.0), torch.nan)


def suspicion(loss: Tensor, given: Tensor, rows: Tensor) -> Tensor:
    """Mean loss of a pair minus half the mean of its label and given value; NaN where unseen.

    Without the group's mean, rare positives stand first whatever is wrong; with all of it, labels
    that cannot be learnt look flawless. ``benchmarks/insights.md`` has the measurements.
    """
    negative, positive = group_means(loss, given, rows)
    usual = torch.where(given, positive, negative)
    score = (loss - 0.5 * usual).to(torch.float32)
    return score.masked_fill_(~rows.unsqueeze(1), torch.nan)
