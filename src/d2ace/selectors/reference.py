"""Where the authors' public code differs from their papers: ``preset="reference"``.

Schedules, constants and quirks of all methods are here; docs/explanation/paper-vs-code.md says
where each was found. A method sets its :class:`Reference` and calls the functions below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ._engine.kept_rows import KeptRows
from .compact import Blocks
from .correlation import BINS, LocalCorrelation, segment_sums
from .probability import GUARD, normalise, quantised_probability

MIX_EPOCHS = (10.0, 70.0)
"""The epochs between which D2ACE's code moves from uncertainty to hardness."""

HARD_IMB_WARMUP = 3

_EPSILON = 1e-8  # added to norms and to row sums of D2ACE's correlation
_BINS_FROM = 7  # the epoch from which ML-Unc's code bins U: its epoch index 5
_LEAST = 1e-300


@dataclass(frozen=True)
class Reference:
    """How the authors' code differs for a method; the defaults follow the paper."""

    pressure: float = 100.0
    """s0."""
    schedule: Callable[[float, int, int], float] | None = None
    """s(t) from s0, the epoch and the number of epochs; None: as in the paper."""
    stored_order: bool = False
    """Whether warm-up visits the rows in stored order."""
    full_batches: bool = False
    """Whether the last batch of a selective epoch has b rows too."""


def _notebook(start: float, epoch: int, epochs: int) -> float:
    """s0^(1 - e/100) with e = t - 2, the 0-based epoch that ended before this one."""
    return float(start ** (1.0 - (epoch - 2) / 100.0))


def _held_then_falling(start: float, epoch: int, epochs: int) -> float:
    finished = epoch - 2
    if finished < 10:
        return start
    return float(start ** (1.0 - (finished - 10) / max(epochs - 10, 1)))


def _rising(start: float, epoch: int, epochs: int) -> float:
    return float(start ** ((epoch - 2 - 10) / 90.0))


def _constant(start: float, epoch: int, epochs: int) -> float:
    return start


RANDOM = Reference(stored_order=True)
NOTEBOOK = Reference(10.0, _notebook, full_batches=True)
"""Active and Recent, which are known from the authors' comparison notebook."""
HARD_IMB = Reference(8.0, _constant, full_batches=True)
ML_UNC = Reference(8.0, _rising, full_batches=True)
D2ACE = Reference(8.0, _held_then_falling, stored_order=True)


def quantisation_index(weights: Tensor, kept: KeptRows | None = None) -> Tensor:
    """D2ACE's Q_i in 1..n, without a guard against rounding."""
    kept = kept or KeptRows(len(weights))
    steps = torch.ceil((1.0 - normalise(weights, kept)) / (1.0 / kept.n)).clamp_(1, kept.n)
    return kept.whole_steps(steps)


def quantised(weights: Tensor, pressure: float, kept: KeptRows | None = None) -> Tensor:
    """D2ACE's P_i, from its quantisation index."""
    return quantised_probability(quantisation_index(weights, kept), pressure)


def cosines(local: LocalCorrelation, masked: Tensor) -> Tensor:
    """D2ACE's C, each row divided by its sum."""
    correlation = local.cosines(masked, epsilon=_EPSILON)
    return correlation / (correlation.sum(dim=1, keepdim=True) + _EPSILON)


def enhancement(local: LocalCorrelation, matrix: Tensor | Blocks, v: Tensor) -> Tensor:
    """D2ACE's phi, of M v instead of M."""
    masked = local.masked(matrix)
    correlation = cosines(local, masked)
    masked = masked * v.index_select(0, local.columns)
    sums = local.local_sums(correlation.T.to(matrix.dtype).contiguous())
    return segment_sums(masked * sums, local.row_starts)


def binned(uncertainty: Tensor, epoch: int) -> Tensor:
    """ML-Unc's U: each value replaced by the middle of its bin, but for the first epochs."""
    if epoch < _BINS_FROM:
        return uncertainty
    return (uncertainty * BINS).floor_().clamp_(0, BINS - 1).add_(0.5).div_(BINS)


def table_entries(weights: Tensor, index: Tensor, pressure: float) -> Tensor:
    """Hard-Imb's s^(index/n) of rows just trained, relative to the largest weight now."""
    n = len(weights)
    share = weights.index_select(0, index) / weights.amax().clamp_min(_LEAST)
    steps = torch.ceil(n * share - GUARD).clamp_(0, n) / n
    return torch.pow(pressure, steps)
