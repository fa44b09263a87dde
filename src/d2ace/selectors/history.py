"""What was predicted, lately: the per-instance state that observations advance.

Each class is a module of buffers, so that saving, loading and moving between devices come from
torch. ``update`` touches only the rows it is given; rows of one call are distinct.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from d2ace._util.row_items import put_rows, take_rows

from ._engine.scratch import Scratch

_UNSEEN = 0.5  # the prediction that stands for "never predicted"


class Memory(nn.Module):
    """State of a method as named buffers: ``Memory(loss=torch.zeros(n))`` has ``.loss``."""

    def __init__(self, **buffers: Tensor) -> None:
        super().__init__()
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def last_known(self, index: Tensor, like: Tensor) -> Tensor:
        """What stands in for an invalid prediction: here, a prediction never made."""
        return torch.full_like(like, _UNSEEN)


def binary(probs: Tensor) -> Tensor:
    """1[p > 0.5] in the dtype of ``probs`` (comparing in place is several times faster)."""
    return torch.gt(probs, 0.5, out=torch.empty_like(probs))


class LastPrediction(Memory):
    """The last probabilities and the number of visits."""

    last: Tensor
    visits: Tensor

    def __init__(self, n: int, q: int, dtype: torch.dtype) -> None:
        super().__init__(
            last=torch.full((n, q), _UNSEEN, dtype=dtype),
            visits=torch.zeros(n, dtype=torch.int64),
        )

    def update(self, index: Tensor, probs: Tensor) -> None:
        put_rows(self.last, index, probs)
        self.visits.index_add_(0, index, torch.ones_like(index))

    def last_known(self, index: Tensor, like: Tensor) -> Tensor:
        return self.last.index_select(0, index)


class LastLoss(Memory):
    """The last loss of each row, summed over its labels; at first that of 0.5 everywhere."""

    loss: Tensor

    def __init__(self, n: int, q: int) -> None:
        super().__init__(loss=torch.full((n,), -q * math.log(_UNSEEN), dtype=torch.float64))

    def update(self, index: Tensor, loss: Tensor) -> None:
        self.loss.index_copy_(0, index, loss)


class PredictionHistory(Memory):
    """The last prediction, the last n_t - 1 absolute differences, and optionally the flip EMA.

    ``latest`` [n, 1 or 2, q] holds the last prediction and, with ``flip_smoothing`` (lambda_2),
    the moving average of flips. ``changes`` [n, n_t - 1, q] is a ring; its order does not matter,
    only its sum is used. In memory the [n, q] matrices lie one after the other: a pass over all
    of them reads in order. With ``compiles``, torch compiles what is done to each pair.
    """

    latest: Tensor
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
        latest = torch.zeros((1 if flip_smoothing is None else 2, n, q), dtype=dtype)
        latest[0] = _UNSEEN
        super().__init__(
            latest=latest.transpose(0, 1),
            changes=torch.zeros((window - 1, n, q), dtype=dtype).transpose(0, 1),
            visits=torch.zeros(n, dtype=torch.int64),
        )
        self.slots = window - 1
        self.flip_smoothing = flip_smoothing
        self.soft_flips = soft_flips
        self.compiles = compiles
        self.scratch = Scratch()
        self._workspace: Tensor | None = None

    @property
    def last(self) -> Tensor:
        return self.latest[:, 0]

    @property
    def flips(self) -> Tensor:
        """Fbar [n, q]."""
        return self.latest[:, 1]

    def last_known(self, index: Tensor, like: Tensor) -> Tensor:
        return self.last.index_select(0, index)

    def update(self, index: Tensor, probs: Tensor) -> None:
        n, _, q = self.changes.shape
        visits = self.visits.index_select(0, index)
        visited = (visits > 0).to(probs.dtype).unsqueeze(1)  # a first visit changes nothing
        last, change, flips = self.scratch.take(3, len(index), q, probs.device, probs.dtype)
        take_rows(self.last, index, last)
        torch.sub(probs, last, out=change).abs_().mul_(visited)
        put_rows(
            self.changes.transpose(0, 1).view(-1, q),
            (visits - 1).remainder_(self.slots).mul_(n).add_(index),
            change,
        )
        put_rows(self.last, index, probs)
        if self.flip_smoothing is not None:
            flip = change
            if not self.soft_flips:  # comparing in place is several times faster
                torch.gt(probs, 0.5, out=flip)
                torch.sub(last.gt_(0.5), flip, out=flip).abs_().mul_(visited)
            take_rows(self.flips, index, flips).lerp_(flip, self.flip_smoothing)
            put_rows(self.flips, index, flips)
        self.visits.index_copy_(0, index, visits + 1)

    @property
    def workspace(self) -> Tensor:
        """Room for one [n, q] matrix, kept because fresh memory costs more than filling it."""
        if self._workspace is None or self._workspace.device != self.latest.device:
            n, _, q = self.latest.shape
            with torch.inference_mode(False):  # to be filled outside it, too
                self._workspace = self.latest.new_empty((n, q))
        return self._workspace

    def change_count(self) -> Tensor:
        """How many differences the ring of each row holds, at least 1 so as to divide by: [n]."""
        return (self.visits - 1).clamp(1, self.slots)


class PredictionMoments(Memory):
    """Running mean and sum of squared deviations of all predictions (Welford)."""

    mean: Tensor
    squares: Tensor
    visits: Tensor

    def __init__(self, n: int, q: int, dtype: torch.dtype) -> None:
        super().__init__(
            mean=torch.zeros((n, q), dtype=dtype),
            squares=torch.zeros((n, q), dtype=dtype),
            visits=torch.zeros(n, dtype=torch.int64),
        )

    def last_known(self, index: Tensor, like: Tensor) -> Tensor:
        """The mean itself: it leaves mean and squares as they are."""
        unseen = (self.visits.index_select(0, index) == 0).unsqueeze(1)
        return self.mean.index_select(0, index).masked_fill_(unseen, _UNSEEN)

    def update(self, index: Tensor, probs: Tensor) -> None:
        visits = self.visits.index_select(0, index) + 1
        mean = self.mean.index_select(0, index)
        before = probs - mean
        mean.addcdiv_(before, visits.to(probs.dtype).unsqueeze(1))
        squares = self.squares.index_select(0, index).addcmul_(before, probs - mean)
        put_rows(self.mean, index, mean)
        put_rows(self.squares, index, squares)
        self.visits.index_copy_(0, index, visits)


class PredictionMean(Memory):
    """The mean of all predictions of each pair, and which pairs are marked by it: 5 bytes each."""

    mean: Tensor
    visits: Tensor
    marked: Tensor

    def __init__(self, n: int, q: int, dtype: torch.dtype) -> None:
        super().__init__(
            mean=torch.full((n, q), _UNSEEN, dtype=dtype),
            visits=torch.zeros(n, dtype=torch.int64),
            marked=torch.zeros((n, q), dtype=torch.bool),
        )

    def last_known(self, index: Tensor, like: Tensor) -> Tensor:
        """The mean itself, which it leaves as it is."""
        return self.mean.index_select(0, index)

    def update(self, index: Tensor, probs: Tensor) -> None:
        visits = self.visits.index_select(0, index) + 1
        mean = self.mean.index_select(0, index)
        mean.addcdiv_(probs - mean, visits.to(probs.dtype).unsqueeze(1))
        put_rows(self.mean, index, mean)
        self.visits.index_copy_(0, index, visits)


class BinaryHistory(Memory):
    """The last n_t binary predictions of each pair as the low bits of one small integer."""

    bits: Tensor
    visits: Tensor

    def __init__(self, n: int, q: int, *, window: int) -> None:
        dtype = torch.uint8 if window <= 8 else torch.int16 if window <= 15 else torch.int64
        super().__init__(
            bits=torch.zeros((n, q), dtype=dtype), visits=torch.zeros(n, dtype=torch.int64)
        )
        self.window = window

    def last_known(self, index: Tensor, like: Tensor) -> Tensor:
        return (self.bits.index_select(0, index) & 1).to(like.dtype)

    def update(self, index: Tensor, probs: Tensor) -> None:
        kept = self.bits.index_select(0, index) & ((1 << (self.window - 1)) - 1)
        put_rows(self.bits, index, kept * 2 + (probs > 0.5).to(kept.dtype))
        self.visits.index_add_(0, index, torch.ones_like(index))

    def ones(self, rows: slice) -> Tensor:
        """How many of the stored bits of each pair are set."""
        bits = self.bits[rows]
        count = bits & 1
        for shift in range(1, self.window):
            count += (bits >> shift) & 1
        return count
