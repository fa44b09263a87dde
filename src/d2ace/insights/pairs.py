"""What was predicted for each (row, label) pair, summed over its visits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from d2ace._util.row_items import put_rows

_LEAST = 1e-7  # the loss is cut at this probability, near float32's distance from 1


class PairSums(nn.Module):
    """Sums over visits, as buffers: 8 bytes per pair, or 4 without the loss.

    ``probability`` [n, q] sums p; its sign is negative if the last decision was positive (such a
    sum is above 0.5, so the sign is never ambiguous). ``loss`` [n, q] sums the binary
    cross-entropy. The others are per row: ``visits``, ``flips`` (decisions that changed) and the
    first two moments of the row's confidence, the mean probability of its given values.
    """

    probability: Tensor
    visits: Tensor
    flips: Tensor
    confidence: Tensor
    confidence_squares: Tensor

    def __init__(self, n: int, q: int, *, with_loss: bool) -> None:
        super().__init__()
        self.loss: Tensor | None
        self.register_buffer("probability", torch.zeros(n, q))
        self.register_buffer("loss", torch.zeros(n, q) if with_loss else None)
        self.register_buffer("visits", torch.zeros(n, dtype=torch.int64))
        self.register_buffer("flips", torch.zeros(n, dtype=torch.int64))
        self.register_buffer("confidence", torch.zeros(n, dtype=torch.float64))
        self.register_buffer("confidence_squares", torch.zeros(n, dtype=torch.float64))

    def update(self, index: Tensor, probs: Tensor, given: Tensor) -> None:
        """Add one visit of the rows ``index`` [b], with their labels ``given`` [b, q]."""
        probs = probs.to(torch.float32)
        before = self.probability.index_select(0, index)
        decided = probs > 0.5
        known = (self.visits.index_select(0, index) > 0).unsqueeze(1)
        flipped = (decided != before.signbit()) & known
        total = before.abs() + probs
        put_rows(self.probability, index, torch.where(decided, -total, total))
        right = torch.where(given, probs, 1.0 - probs)
        if self.loss is not None:
            loss = self.loss.index_select(0, index)
            put_rows(self.loss, index, loss.sub_(right.clamp_min(_LEAST).log_()))
        sure = right.mean(dim=1, dtype=torch.float64)
        self.confidence.index_add_(0, index, sure)
        self.confidence_squares.index_add_(0, index, sure * sure)
        self.flips.index_add_(0, index, flipped.sum(dim=1))
        self.visits.index_add_(0, index, torch.ones_like(index))

    def last_known(self, index: Tensor, like: Tensor) -> Tensor:
        """The replacement for an invalid prediction: the pair's mean so far, or 0.5."""
        visits = self.visits.index_select(0, index).unsqueeze(1)
        mean = self.probability.index_select(0, index).abs() / visits.clamp_min(1)
        return torch.where(visits > 0, mean, 0.5).to(like.dtype)

    def mean_probability(self) -> Tensor:
        """[n, q]; 0 for rows never visited."""
        return self.probability.abs() / self.visits.clamp_min(1).unsqueeze(1)

    def mean_loss(self, given: Tensor) -> Tensor:
        """[n, q]: mean cross-entropy, or |p - y| if no loss is kept."""
        if self.loss is not None:
            return self.loss / self.visits.clamp_min(1).unsqueeze(1)
        return (self.mean_probability() - given.to(torch.float32)).abs()
