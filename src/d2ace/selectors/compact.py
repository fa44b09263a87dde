"""The history in 16 and 8 bits, and U and H from it: the state of ``state="compact"``.

A prediction is stored as its logit in 65,535 steps over [-17, 17] (the loss is cut at 16.1). Its
side of 0.5 is exact. A difference is stored as its root in 255 steps, the moving average of flips
in 32,767. So a prediction is off by at most STEP in its logit, a difference by
0.0042, and U and H by at most :func:`uncertainty_bound` and :func:`hardness_bound`.

A matrix of U or H would take half as much as the whole history. It is never held: a block of rows
is computed whenever it is asked for. What happens to a pair is one function, which torch compiles
where that pays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from d2ace._util.row_items import put_rows

from ._engine.compiling import run
from .fused import CLAMP, LEAST, MOST
from .history import Memory
from .scores import LOSS_ABOVE, Positives, row_blocks

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


def _root(probs: Tensor, logit: Tensor, visited: Tensor) -> Tensor:
    """The root of the difference from the last prediction, in steps."""
    change = (probs - logit.mul(STEP).sigmoid()).abs() * visited
    return change.sqrt().mul(_CHANGES).round().to(torch.uint8)


def _code(probs: Tensor) -> Tensor:
    """Predictions as whole numbers: their logits in steps, above 0 where p > 0.5."""
    code = probs.logit().mul(1.0 / STEP).clamp(-_STEPS, _STEPS).round()
    return torch.where(probs > 0.5, code.clamp_min(1.0), code.clamp_max(0.0))


def _average(
    probs: Tensor, logit: Tensor, visited: Tensor, average: Tensor, smoothing: float, soft: bool
) -> Tensor:
    """The moving average of flips, in steps."""
    if soft:
        flip = (probs - logit.mul(STEP).sigmoid()).abs() * visited
    else:
        flip = torch.ne(logit > 0, probs > 0.5).to(probs.dtype) * visited
    return torch.lerp(average / _STEPS, flip, smoothing).mul(_STEPS).round()


def _uncertainty(
    logit: Tensor, changes: list[Tensor], per_change: Tensor, per_nat: float
) -> Tensor:
    """U; the entropy of a logit x is ln(1 + e^-|x|) + |x| / (1 + e^|x|)."""
    distance = logit.mul(STEP).abs()
    odds = torch.exp(-distance)
    entropy = odds.log1p() + distance * odds / (odds + 1.0)
    total = changes[0].to(logit.dtype).square()
    for change in changes[1:]:
        total = total + change.to(logit.dtype).square()
    return total * per_change + entropy * per_nat


def _hardness(against: Tensor, average: Tensor, above: float | None) -> Tensor:
    """H, from the logit of the wrong state; ``above`` is None for cross-entropy."""
    z = against.mul(STEP)
    if above is None:  # ln(1 + e^z)
        loss = torch.exp(-z.abs()).log1p().add(z.clamp_min(0.0)).clamp(-MOST, -LEAST)
    else:
        loss = z.sigmoid().clamp(CLAMP, 1.0 - CLAMP) + above
    return loss * (1.0 - average / _STEPS)


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
        compiles: bool = False,
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
        self.compiles = compiles

    def run(self, function: Callable[..., Tensor], *arguments: Any) -> Tensor:
        """A function of pairs, compiled where that pays.

        Numbers of 16 bits come as floating-point ones: torch's compiler takes those one by one.
        """
        found: Tensor = run(function, *arguments) if self.compiles else function(*arguments)
        return found

    def last_known(self, index: Tensor, like: Tensor) -> Tensor:
        last = self.logits.index_select(0, index).to(torch.float64)  # near 1 the number given
        return last.mul_(STEP).sigmoid_().to(like.dtype)

    def update(self, index: Tensor, probs: Tensor) -> None:
        visits = self.visits.index_select(0, index)
        visited = (visits > 0).to(probs.dtype).unsqueeze(1)  # a first visit changes nothing
        logit = self.logits.index_select(0, index).to(probs.dtype)
        n, _, q = self.changes.shape
        slot = (visits - 1).remainder_(self.slots).mul_(n).add_(index)
        ring = self.changes.transpose(0, 1).view(-1, q)
        put_rows(ring, slot, self.run(_root, probs, logit, visited))
        if self.flip_smoothing is not None:
            average = self.averages.index_select(0, index).to(probs.dtype)
            given = probs, logit, visited, average, self.flip_smoothing, self.soft_flips
            put_rows(self.averages, index, self.run(_average, *given).to(torch.int16))
        put_rows(self.logits, index, self.run(_code, probs).to(torch.int16))
        self.visits.index_copy_(0, index, visits + 1)


class Blocks:
    """U or H [n, q], of which a block of rows or single pairs are computed when asked for."""

    def __init__(self, history: CompactHistory) -> None:
        self.history = history
        self.shape, self.device = history.logits.shape, history.logits.device
        self.dtype = history.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Tensor:
        """[rows, q]."""
        raise NotImplementedError

    def at(self, positives: Tensor) -> Tensor:
        """At the ones of Y, given by their places in the flattened matrix."""
        raise NotImplementedError

    def whole(self) -> Tensor:
        """[n, q]."""
        found = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        for rows in row_blocks(len(self), self.shape[1], self.device):
            found[rows] = self[rows]
        return found


class UncertaintyBlocks(Blocks):
    """U, as in scores."""

    def __init__(self, history: CompactHistory, trade_off: float) -> None:
        super().__init__(history)
        count = (history.visits - 1).clamp(1, history.slots).to(self.dtype).unsqueeze(1)
        self._per_change = (1.0 - trade_off) / count / _CHANGES**2
        self._per_nat = trade_off / math.log(2.0)
        self._slots = history.changes.unbind(1)

    def __getitem__(self, rows: slice) -> Tensor:
        changes = [slot[rows] for slot in self._slots]
        logit = self.history.logits[rows].to(self.dtype)
        return self.history.run(_uncertainty, logit, changes, self._per_change[rows], self._per_nat)

    def at(self, positives: Tensor) -> Tensor:
        logit = self.history.logits.view(-1).index_select(0, positives).to(self.dtype)
        changes = [slot.view(-1).index_select(0, positives) for slot in self._slots]
        per_change = self._per_change.squeeze(1)[positives // self.shape[1]]
        return _uncertainty(logit, changes, per_change, self._per_nat)


class HardnessBlocks(Blocks):
    """H, as in scores."""

    def __init__(self, history: CompactHistory, positives: Positives, loss: str) -> None:
        super().__init__(history)
        self._positives, self._above = positives, LOSS_ABOVE.get(loss)

    def __getitem__(self, rows: slice) -> Tensor:
        history, place = self.history, self._positives.within(rows)
        against = history.logits[rows].to(self.dtype)
        flat = against.view(-1)
        flat[place] = -flat[place]
        return history.run(_hardness, against, history.averages[rows].to(self.dtype), self._above)

    def at(self, positives: Tensor) -> Tensor:
        history = self.history
        logit, average = (
            stored.view(-1).index_select(0, positives).to(self.dtype)
            for stored in (history.logits, history.averages)
        )
        return _hardness(-logit, average, self._above)


def uncertainty(history: CompactHistory, trade_off: float) -> Tensor:
    """U [n, q] as a whole."""
    return UncertaintyBlocks(history, trade_off).whole()
