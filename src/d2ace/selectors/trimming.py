"""Which (row, label) pairs to trust less: per label, the pairs that training predicts worst.

The form of Trim is here: :func:`has_risen` says when it starts, :func:`worst_pairs` whom it takes.
"""

from __future__ import annotations

from collections.abc import Iterator

import scipy.sparse as sp
import torch
from torch import Tensor

from .probability import GUARD

_PAIRS = 1 << 21  # pairs sorted together: bounds memory, however many labels there are


def has_risen(loss: float, least: float, rise: float) -> bool:
    """Whether a validation loss lies more than the share ``rise`` above the least one so far."""
    return loss > (1.0 + rise) * least


def worst_pairs(score: Tensor, labels: Tensor, share: float) -> Tensor:
    """The pairs [n, c] to weigh down, of scores and boolean labels [n, c], label by label.

    Positives: the share of them with the largest scores, rounded down. Negatives: those with the
    largest scores, as many as sum up to no more than the chosen positives do. Of equal scores the
    one in the first row comes first. A label of one class has none.
    """
    ordered, rows = score.T.sort(dim=1, descending=True, stable=True)
    positive = labels.T.gather(1, rows)
    positives = positive.sum(dim=1, keepdim=True)
    quota = (share * positives.double() + GUARD).floor() * (positives < len(score))
    chosen = positive & (positive.cumsum(dim=1) <= quota)
    wide = ordered.double()
    budget = torch.where(chosen, wide, 0.0).sum(dim=1, keepdim=True) * (1.0 + GUARD)
    taken = torch.where(positive, 0.0, wide).cumsum(dim=1)
    chosen |= ~positive & (wide > 0) & (taken <= budget)
    return torch.zeros_like(chosen).scatter_(1, rows, chosen).T


def label_blocks(labels: sp.csr_array) -> Iterator[tuple[slice, Tensor]]:
    """Columns of Y a few at a time: which ones, and their values as booleans [n, c]."""
    n, q = labels.shape
    columns, width = labels.tocsc(), max(1, _PAIRS // n)
    for first in range(0, q, width):
        block = slice(first, min(first + width, q))
        yield block, torch.from_numpy(columns[:, block].toarray() != 0)
