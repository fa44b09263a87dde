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

from . import fused
from ._engine.compiling import ran
from .fused import CLAMP, LEAST, MOST
from .history import PredictionHistory

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

    def among(self, rows: slice) -> Tensor:
        """The places of those in a block of rows, in the whole matrix."""
        return self.flat[int(self.row_pointer[rows.start]) : int(self.row_pointer[rows.stop])]

    def within(self, rows: slice) -> Tensor:
        """The same in the block."""
        return self.among(rows) - rows.start * self.q


def uncertainty(history: PredictionHistory, trade_off: float) -> Tensor:
    """U = lambda_1 E + (1 - lambda_1) D [n, q].

    E is the entropy of the last prediction in bits, D the mean of the differences in the window.
    """
    last, result = history.last, history.workspace
    n, q = last.shape
    per_change = (1.0 - trade_off) / history.change_count().to(last.dtype).unsqueeze(1)
    per_nat = trade_off / math.log(2.0)
    tiny = torch.finfo(last.dtype).tiny  # x ln x is then exactly 0 at 0
    for rows in row_blocks(n, q, last.device):
        p, out, changes = last[rows], result[rows], history.changes[rows].unbind(1)
        given = out, p, changes, per_change[rows], per_nat
        if history.compiles and ran(fused.uncertainty, *given):
            continue
        log_p, rest, log_rest = history.scratch.take(3, len(p), q, p.device, p.dtype)
        torch.clamp_min(p, tiny, out=log_p).log_()
        torch.sub(1.0, p, out=rest)
        torch.clamp_min(rest, tiny, out=log_rest).log_()
        out.copy_(changes[0])
        for change in changes[1:]:  # twice as fast as a sum over the slots
            out.add_(change)
        negative_entropy = log_p.mul_(p).addcmul_(rest, log_rest)
        out.mul_(per_change[rows]).add_(negative_entropy, alpha=-per_nat)
    return result


def hardness(history: PredictionHistory, positives: Positives, loss: str = "bce") -> Tensor:
    """H = l (1 - fbar) [n, q], with l the loss of the last prediction against Y.

    ``loss`` is "bce", "prob" (one minus the probability of the true state) or "reference" (two
    minus it).
    """
    last, flips, result = history.last, history.flips, history.workspace
    n, q = last.shape
    for rows in row_blocks(n, q, last.device):
        p, out = last[rows], result[rows]
        given = out, p, flips[rows], LOSS_ABOVE.get(loss)
        if history.compiles and ran(fused.hardness, *given):
            place = positives.among(rows)
            p, shares = (each.view(-1).index_select(0, place) for each in (last, flips))
            present = present_loss(p, loss).mul_(1.0 - shares)
            result.view(-1).scatter_(0, place.to(torch.int64), present)
            continue
        place = positives.within(rows)
        (negative_loss,) = history.scratch.take(1, len(p), q, p.device, p.dtype)
        flat = torch.neg(p, out=negative_loss).view(-1)
        if loss == "bce":  # ln(1 - p) and, at the positives, ln p: both exact in p
            at_positives = flat.index_select(0, place).neg_().log_()
            negative_loss.log1p_()
            flat.scatter_(0, place.to(torch.int64), at_positives)
            negative_loss.clamp_(LEAST, MOST)
        else:
            flat[place] = -1.0 - flat[place]
            negative_loss.clamp_(CLAMP - 1.0, -CLAMP).sub_(LOSS_ABOVE[loss])
        torch.mul(negative_loss, flips[rows], out=out).sub_(negative_loss)
    return result


def present_loss(probs: Tensor, loss: str) -> Tensor:
    """The loss where the label is present."""
    if loss == "bce":
        return probs.log().clamp_(LEAST, MOST).neg_()
    return (1.0 - probs).clamp_(CLAMP, 1.0 - CLAMP).add_(LOSS_ABOVE[loss])
