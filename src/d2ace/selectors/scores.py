"""How uncertain and how hard each (instance, label) pair is.

A matrix is filled a block of rows at a time, so that the dozen element-wise steps run in cache. It
lies in the history's workspace: use it before the next one is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .history import PredictionHistory

CLAMP = 1e-7  # probabilities enter the loss clamped to [CLAMP, 1 - CLAMP]
LEAST, MOST = math.log(CLAMP), math.log1p(-CLAMP)
LOSS_ABOVE = {"prob": 0.0, "reference": 1.0}  # plus the probability of the wrong state
_BLOCK = {"cpu": 1 << 19}  # pairs a block; other devices take the whole matrix in a few blocks
_BLOCK_ELSEWHERE = 1 << 26


def row_blocks(n: int, q: int, device: torch.device) -> Iterator[slice]:
    """Slices of rows that hold about a block of pairs each."""
    height = max(1, _BLOCK.get(device.type, _BLOCK_ELSEWHERE) // q)
    return (slice(start, min(start + height, n)) for start in range(0, n, height))


def cross_entropy(probs: Tensor, labels: Tensor) -> Tensor:
    """l_ij = -ln of the probability given to the true state; ``labels`` is boolean."""
    true = labels.logical_not().to(probs.dtype).sub_(probs).abs_()  # quicker than to choose
    return true.log_().clamp_(LEAST, MOST).neg_()


def row_loss(probs: Tensor, labels: Tensor) -> Tensor:
    """L_i = sum_j l_ij, float64 [b]."""
    return cross_entropy(probs, labels).sum(dim=1, dtype=torch.float64)


def binary_entropy(share: Tensor) -> Tensor:
    """-(f log2 f + (1 - f) log2(1 - f)) in bits, 0 at 0 and 1."""
    return (torch.special.entr(share) + torch.special.entr(1.0 - share)) / math.log(2.0)


class Positives:
    """The places of the ones of Y in a flattened [n, q] matrix, block by block of rows."""

    def __init__(self, flat: Tensor, row_pointer: np.ndarray[Any, Any], q: int) -> None:
        self.flat = flat
        self.row_pointer = row_pointer
        self.q = q

    def within(self, rows: slice) -> Tensor:
        first, last = int(self.row_pointer[rows.start]), int(self.row_pointer[rows.stop])
        return self.flat[first:last] - rows.start * self.q


def scratch_blocks(like: Tensor, rows: slice, count: int) -> list[Tensor]:
    shape = (rows.stop - rows.start, like.shape[1])
    return [torch.empty(shape, dtype=like.dtype, device=like.device) for _ in range(count)]


def uncertainty(history: PredictionHistory, trade_off: float) -> Tensor:
    """U = lambda_1 E + (1 - lambda_1) D [n, q].

    E is the entropy of the last prediction in bits, D the mean of the differences in the window.
    """
    last, result = history.last, history.workspace
    n, q = last.shape
    per_change = (1.0 - trade_off) / history.change_count().to(last.dtype).unsqueeze(1)
    tiny = torch.finfo(last.dtype).tiny  # x ln x is then exactly 0 at 0
    scratch: list[Tensor] = []
    for rows in row_blocks(n, q, last.device):
        p, out = last[rows], result[rows]
        scratch = scratch or scratch_blocks(last, rows, 3)
        log_p, rest, log_rest = (buffer[: len(p)] for buffer in scratch)
        torch.clamp_min(p, tiny, out=log_p).log_()
        torch.sub(1.0, p, out=rest)
        torch.clamp_min(rest, tiny, out=log_rest).log_()
        changes = history.changes[rows]
        out.copy_(changes[:, 0])
        for slot in range(1, changes.shape[1]):  # twice as fast as a sum over the slots
            out.add_(changes[:, slot])
        negative_entropy = log_p.mul_(p).addcmul_(rest, log_rest)
        out.mul_(per_change[rows]).add_(negative_entropy, alpha=-trade_off / math.log(2.0))
    return result


def hardness(history: PredictionHistory, positives: Positives, loss: str = "bce") -> Tensor:
    """H = l (1 - fbar) [n, q], with l the loss of the last prediction against Y.

    ``loss`` is "bce", "prob" (one minus the probability of the true state) or "reference" (two
    minus it).
    """
    last, result = history.last, history.workspace
    n, q = last.shape
    scratch: list[Tensor] = []
    for rows in row_blocks(n, q, last.device):
        p, out = last[rows], result[rows]
        place = positives.within(rows)
        scratch = scratch or scratch_blocks(last, rows, 1)
        negative_loss = torch.neg(p, out=scratch[0][: len(p)])
        flat = negative_loss.view(-1)
        if loss == "bce":  # ln(1 - p) and, at the positives, ln p: both exact in p
            at_positives = flat[place].neg_().log_()
            negative_loss.log1p_()
            flat[place] = at_positives
            negative_loss.clamp_(LEAST, MOST)
        else:
            flat[place] = -1.0 - flat[place]
            negative_loss.clamp_(CLAMP - 1.0, -CLAMP).sub_(LOSS_ABOVE[loss])
        torch.mul(negative_loss, history.flips[rows], out=out).sub_(negative_loss)
    return result
