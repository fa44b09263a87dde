"""How uncertain and how hard each (instance, label) pair is.

The matrices of D2ACE and ML-Unc are filled a block of rows at a time: the dozen element-wise steps
then run in cache, and the logarithms are shared by entropy and loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from .history import PredictionHistory

CLAMP = 1e-7  # probabilities enter the loss clamped to [CLAMP, 1 - CLAMP]
_LEAST, _MOST = math.log(CLAMP), math.log1p(-CLAMP)
_BLOCK = {"cpu": 1 << 19}  # pairs a block; other devices take the whole matrix in a few blocks
_BLOCK_ELSEWHERE = 1 << 26


def row_blocks(n: int, q: int, device: torch.device) -> Iterator[slice]:
    """Slices of rows that hold about a block of pairs each."""
    height = max(1, _BLOCK.get(device.type, _BLOCK_ELSEWHERE) // q)
    return (slice(start, min(start + height, n)) for start in range(0, n, height))


def cross_entropy(probs: Tensor, labels: Tensor) -> Tensor:
    """l_ij = -ln of the probability given to the true state; ``labels`` is boolean."""
    return torch.where(labels, probs, 1.0 - probs).clamp_(CLAMP, 1.0 - CLAMP).log_().neg_()


def binary_entropy(share: Tensor) -> Tensor:
    """-(f log2 f + (1 - f) log2(1 - f)) in bits, 0 at 0 and 1."""
    return (torch.special.entr(share) + torch.special.entr(1.0 - share)) / math.log(2.0)


class Positives:
    """The places of the ones of Y in a flattened [n, q] matrix, block by block of rows."""

    def __init__(self, flat: Tensor, row_pointer: Sequence[int], q: int) -> None:
        self.flat = flat
        self.row_pointer = row_pointer
        self.q = q

    def within(self, rows: slice) -> Tensor:
        first, last = self.row_pointer[rows.start], self.row_pointer[rows.stop]
        return self.flat[first:last] - rows.start * self.q


def metric_matrices(
    history: PredictionHistory,
    *,
    trade_off: float = 0.5,
    positives: Positives | None = None,
    hardness_loss: str = "bce",
    wanted: Sequence[str] = ("uncertainty", "hardness"),
) -> dict[str, Tensor]:
    """U = lambda_1 E + (1 - lambda_1) D and H = l (1 - fbar), those of them that are wanted.

    E is the entropy of the last prediction in bits, D the mean of the differences present in the
    window, l the loss of the last prediction against Y (given by ``positives``).
    """
    last = history.last
    n, q = last.shape
    result = {name: torch.empty((n, q), dtype=last.dtype, device=last.device) for name in wanted}
    per_change = (1.0 - trade_off) / history.change_count().to(last.dtype).unsqueeze(1)
    tiny = torch.finfo(last.dtype).tiny  # x ln x is exactly 0 at 0
    scratch: list[Tensor] = []
    for rows in row_blocks(n, q, last.device):
        p = last[rows]
        if not scratch:
            scratch = [torch.empty_like(p, memory_format=torch.contiguous_format) for _ in range(4)]
        log_p, rest, log_rest, work = (buffer[: len(p)] for buffer in scratch)
        torch.clamp_min(p, tiny, out=log_p).log_()
        torch.sub(1.0, p, out=rest)
        torch.clamp_min(rest, tiny, out=log_rest).log_()
        if "uncertainty" in result:
            out = result["uncertainty"][rows]
            torch.mul(p, log_p, out=work).addcmul_(rest, log_rest)
            torch.sum(history.changes[rows], dim=1, out=out)
            out.mul_(per_change[rows]).add_(work, alpha=-trade_off / math.log(2.0))
        if "hardness" in result:
            assert positives is not None  # noqa: S101  (the caller's contract, not user input)
            place = positives.within(rows)
            log_true = log_rest.view(-1).index_copy_(0, place, log_p.view(-1)[place])
            log_true = log_true.clamp_(_LEAST, _MOST).view_as(p)
            if hardness_loss != "bce":  # minus the loss: p_true - 1, or p_true - 2
                log_true = log_true.exp_().sub_(1.0 if hardness_loss == "prob" else 2.0)
            # l (1 - fbar) = log_true * fbar - log_true
            torch.mul(log_true, history.flips[rows], out=result["hardness"][rows]).sub_(log_true)
    return result
