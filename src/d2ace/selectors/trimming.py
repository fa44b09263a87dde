"""Which (row, label) pairs to trust less: per label, the pairs that training predicts worst.

This defines Trim: :func:`overfits` says when it starts, :func:`worst_pairs` which pairs it takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import scipy.sparse as sp
import torch
from torch import Tensor

from .probability import GUARD

_PAIRS = 1 << 18  # pairs compared together: bounds memory, however many labels there are
_SMALLEST = 2.0**-24  # below it, scores are not distinguished before sorting
_HALVINGS = 6  # of the factor between the smallest score and 1; leaves one of 1.3
_CLEARLY = 1.001  # beyond the rounding of a sum in single precision


def overfits(now: tuple[float, float], then: tuple[float, float], rise: float, fall: float) -> bool:
    """Whether the validation loss has risen while the training loss has fallen.

    ``now`` and ``then`` are both losses, (validation, training), of now and of when the validation
    loss was the smallest so far. Each is compared with itself alone: they may have other units. A
    training loss that is not known is infinite.
    """
    risen = now[0] > (1.0 + rise) * then[0]
    return risen and (fall == 0.0 or now[1] < (1.0 - fall) * then[1] < math.inf)


def worst_pairs(score: Tensor, labels: Tensor, share: float) -> Tensor:
    """The pairs [n, c] to give less weight, from scores in [0, 1] and boolean labels [n, c].

    Each label is treated alone. Positives: the share of them with the largest scores, rounded down.
    Negatives: those with the largest scores, as many as sum to no more than the chosen positives.
    Of equal scores, the earlier row comes first. A label of one class has none.
    """
    score, positive = score.T.contiguous(), labels.T.contiguous()
    count = positive.sum(dim=1, keepdim=True)
    quota = (share * count.double() + GUARD).floor() * (count < positive.shape[1])
    chosen = torch.zeros_like(positive)
    worst, rows = _descending(score, positive)
    taken = torch.arange(worst.shape[1], device=rows.device) < quota
    budget = torch.where(taken, worst, 0.0).sum(dim=1, keepdim=True, dtype=torch.float64)
    _mark(chosen, rows, taken)
    budget *= 1.0 + GUARD
    rest = score.masked_fill(positive, 0.0)
    worst, rows = _descending(rest, (rest > 0) & (rest >= _floor(rest, budget)))
    _mark(chosen, rows, (worst > 0) & (worst.cumsum(dim=1, dtype=torch.float64) <= budget))
    return chosen.T


def _floor(score: Tensor, budget: Tensor) -> Tensor:
    """Per label, a score where the sum from the largest down exceeds the budget: [c, 1].

    Most scores are smaller and need no sorting; all scores that fit are larger.
    """
    floor, factor = torch.zeros_like(budget), _SMALLEST**-0.5
    for _ in range(_HALVINGS):
        trial = (floor.clamp_min(_SMALLEST) * factor).to(score.dtype)
        total = (score >= trial).to(score.dtype).mul_(score).sum(dim=1, keepdim=True)
        floor = torch.where(total > budget * _CLEARLY, trial.double(), floor)
        factor **= 0.5
    return floor.to(score.dtype)


def _descending(score: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The marked scores of each label, largest first, and their rows: [c, m], padded with -1."""
    label, row = mask.nonzero(as_tuple=True)  # rows of a label in order
    count = mask.sum(dim=1)
    first = count.cumsum(dim=0) - count
    place = torch.arange(len(label), device=label.device) - first[label]
    shape = (len(mask), int(count.max()))
    values, rows = score.new_full(shape, -1.0), row.new_zeros(shape)
    values[label, place], rows[label, place] = score[label, row], row
    values, order = values.sort(dim=1, descending=True, stable=True)
    return values, rows.gather(1, order)


def _mark(chosen: Tensor, rows: Tensor, taken: Tensor) -> None:
    label, place = taken.nonzero(as_tuple=True)
    chosen[label, rows[label, place]] = True


def label_blocks(labels: sp.csr_array) -> Iterator[tuple[slice, Tensor]]:
    """A few columns of Y at a time: their indices, and their values as booleans [n, c]."""
    n, q = labels.shape
    columns, width = labels.tocsc(), max(1, _PAIRS // n)
    for first in range(0, q, width):
        block = slice(first, min(first + width, q))
        yield block, torch.from_numpy(columns[:, block].toarray() != 0)
