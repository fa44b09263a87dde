"""The history in 16 and 8 bits, and U and H from it: the state of ``state="compact"``.

A prediction is stored as its logit in 65,535 steps over [-17, 17] (the loss is cut at 16.1). Its
side of 0.5 is exact. A difference is stored as its root in 255 steps, the moving average of flips
in 32,767. So a prediction is off by at most STEP in its logit, a difference by
0.0042, and U and H by at most :func:`uncertainty_bound` and :func:`hardness_bound`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .history import Memory
from .scores import CLAMP, LEAST, LOSS_ABOVE, MOST, Positives, row_blocks

_REACH, _STEPS = 17.0, 32767
_CHANGES = 255
STEP = _REACH / _STEPS
"""The largest error of a stored logit: that of one just above 0; elsewhere half of it."""


def uncertainty_bound(trade_off: float) -> float:
    """The largest distance of U from the full one: in entropy, and in the mean difference."""
    entropy = 0.324 * STEP  # the steepest slope of entropy over the logit, in bits
    root = 0.5 / _CHANGES
    change = STEP / 4 + 2 * root + root**2  # of the prediction before, and of the root
    return trade_off * entropy + (1.0 - trade_off) * change + 1e-6


def hardness_bound(flip_smoothing: float) -> float:
    """The largest distance of H = l (1 - fbar) from the full one, l being at most 16.12."""
    return STEP - LEAST * 0.5 / _STEPS / flip_smoothing + 1e-5


def _coded(probs: Tensor) -> Tensor:
    """Predictions as whole numbers: their logits, above 0 where p > 0.5."""
    code = probs.logit().mul_(1.0 / STEP).clamp_(-_STEPS, _STEPS).round_()
    code = torch.where(probs > 0.5, code.clamp_min(1.0), code.clamp_max(0.0))
    return code.to(torch.int16)


class CompactHistory(Memory):
    """As PredictionHistory, in at most 8 bytes a pair for a window of 5.

    ``logits`` [n, q] and ``averages`` [n, q], the moving average of flips, take 2 bytes a pair
    each, ``changes`` [n, n_t - 1, q] one byte a difference.
    """

    logits: Tensor
    averages: Tensor
    changes: Tensor
    visits: Tensor

    def __init__(
        self,
        n: int,
        q: int,
        dtype: torch.dtype,
        *,
        window: int,
        flip_smoothing: float | None = None,
        soft_flips: bool = False,
    ) -> None:
        super().__init__(
            logits=torch.zeros((n, q), dtype=torch.int16),
            averages=torch.zeros((n, 0 if flip_smoothing is None else q), dtype=torch.int16),
            changes=torch.zeros((window - 1, n, q), dtype=torch.uint8).transpose(0, 1),
            visits=torch.zeros(n, dtype=torch.int64),
        )
        self.slots = window - 1
        self.dtype = dtype
        self.flip_smoothing = flip_smoothing
        self.soft_flips = soft_flips
        self._workspace: Tensor | None = None

    def last_logits(self, chosen: Tensor | slice) -> Tensor:
        """Logits of the last predictions of rows."""
        return self.logits[chosen].to(self.dtype).mul_(STEP)

    def flips(self, chosen: Tensor | slice) -> Tensor:
        """Fbar of rows."""
        return self.averages[chosen].to(self.dtype).div_(_STEPS)

    def last_known(self, index: Tensor, like: Tensor) -> Tensor:
        last = self.last_logits(index).to(torch.float64)  # so that near 1 it is the number given
        return last.sigmoid_().to(like.dtype)

    def update(self, index: Tensor, probs: Tensor) -> None:
        visits = self.visits.index_select(0, index)
        visited = (visits > 0).to(probs.dtype).unsqueeze(1)  # a first visit changes nothing
        last = self.last_logits(index)
        change = (probs - last.sigmoid()).abs_().mul_(visited)
        slot = (visits - 1) % self.slots
        n, _, q = self.changes.shape
        ring = self.changes.transpose(0, 1).view(-1, q)
        root = change.sqrt().mul_(_CHANGES).round_().to(torch.uint8)
        ring.index_copy_(0, slot * n + index, root)
        if self.flip_smoothing is not None:
            flip = change
            if not self.soft_flips:
                flip = torch.ne(last > 0, probs > 0.5).to(probs.dtype).mul_(visited)
            average = self.flips(index).lerp_(flip, self.flip_smoothing)
            self.averages.index_copy_(0, index, average.mul_(_STEPS).round_().to(torch.int16))
        self.logits.index_copy_(0, index, _coded(probs))
        self.visits.index_copy_(0, index, visits + 1)

    @property
    def workspace(self) -> Tensor:
        """Room for one [n, q] matrix, kept because fresh memory costs more than filling it."""
        if self._workspace is None or self._workspace.device != self.logits.device:
            self._workspace = self.logits.new_empty(self.logits.shape, dtype=self.dtype)
        return self._workspace


def uncertainty(history: CompactHistory, trade_off: float) -> Tensor:
    """U [n, q], as in scores; the entropy of a logit x is ln(1 + e^-|x|) + |x| / (1 + e^|x|)."""
    n, q = history.logits.shape
    result = history.workspace
    count = (history.visits - 1).clamp(1, history.slots).to(result.dtype).unsqueeze(1)
    per_change = (1.0 - trade_off) / count / _CHANGES**2
    for rows in row_blocks(n, q, result.device):
        distance = history.last_logits(rows).abs_()
        odds = torch.exp(-distance)
        entropy = odds.log1p().add_(distance.mul_(odds).div_(odds + 1.0))
        out = result[rows].zero_()
        for slot in range(history.slots):
            out.add_(history.changes[rows, slot].to(out.dtype).square_())
        out.mul_(per_change[rows]).add_(entropy, alpha=trade_off / math.log(2.0))
    return result


def hardness(history: CompactHistory, positives: Positives, loss: str = "bce") -> Tensor:
    """H = l (1 - fbar) [n, q], as in scores; l = ln(1 + e^z), z the logit of the wrong state."""
    n, q = history.logits.shape
    result = history.workspace
    for rows in row_blocks(n, q, result.device):
        against, place = history.last_logits(rows), positives.within(rows)
        flat = against.view(-1)
        flat[place] = -flat[place]
        if loss == "bce":
            above = against.clamp_min(0.0)
            pairs = against.abs_().neg_().exp_().log1p_().add_(above).clamp_(-MOST, -LEAST)
        else:
            pairs = against.sigmoid_().clamp_(CLAMP, 1.0 - CLAMP).add_(LOSS_ABOVE[loss])
        torch.mul(pairs, 1.0 - history.flips(rows), out=result[rows])
    return result
