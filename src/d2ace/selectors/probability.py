"""From instance weights to sampling probabilities, and their schedules."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ._engine.kept_rows import KeptRows

_FLAT = 1e-12  # weights that differ by less count as equal
_ROUNDING = 16  # units in the last place of the largest weight; sums over labels lose up to four
GUARD = 1e-9  # keeps exact multiples of 1/n in their own bin despite rounding


def uniform(n: int, device: torch.device | str | None = None) -> Tensor:
    """P_i = 1/n."""
    return torch.full((n,), 1.0 / n, dtype=torch.float64, device=device)


def level(weights: Tensor, precision: torch.dtype, kept: KeptRows | None = None) -> Tensor:
    """The weights, or the least one for all rows if ``precision`` explains their spread.

    Identical rows can differ in the last bits, depending on their place in a batch or a matrix
    product; min-max would stretch such a difference to full pressure.
    """
    low, high = (kept or KeptRows(len(weights))).extent(weights)
    noise = _ROUNDING * torch.finfo(precision).eps * torch.maximum(-low, high)
    return torch.where(high - low > noise, weights, low)


def normalise(weights: Tensor, kept: KeptRows | None = None) -> Tensor:
    """Min-max of the weights in float64; zeros where all are equal."""
    weights = weights.to(torch.float64)
    low, high = (kept or KeptRows(len(weights))).extent(weights)
    spread = high - low
    # a product with a 0/1 factor instead of an `if`: no wait for the device
    return (weights - low) * (spread > _FLAT) / spread.clamp_min(_FLAT)


def quantisation_index(weights: Tensor, kept: KeptRows | None = None) -> Tensor:
    """Q_i = ceil((1 - w_i) n) in 0..n, with w scaled to [0, 1]."""
    kept = kept or KeptRows(len(weights))
    return kept.whole_steps(steps_below_one(normalise(weights, kept), kept.n))


def steps_below_one(weights: Tensor, n: int | None = None) -> Tensor:
    """Q_i = ceil((1 - w_i) n) in 0..n, for weights already in [0, 1]."""
    n = weights.numel() if n is None else n
    return torch.ceil((1.0 - weights) * n - GUARD).clamp_(0, n)


def rank(weights: Tensor) -> Tensor:
    """Ranks 1..n [n], 1 the largest weight; equal weights share the mean of their ranks."""
    _, place, count = torch.unique(weights, return_inverse=True, return_counts=True)
    mean = count.cumsum(0) - (count - 1) / 2  # counted from the smallest weight
    return (weights.numel() + 1 - mean.to(torch.float64)).index_select(0, place)


def quantised(weights: Tensor, pressure: float, kept: KeptRows | None = None) -> Tensor:
    """P_i proportional to s^(-Q_i/n): a larger weight never has a smaller probability.

    P is that of all rows, the weights those of the rows ``kept``.
    """
    return quantised_probability(quantisation_index(weights, kept), pressure)


def quantised_probability(index: Tensor, pressure: float) -> Tensor:
    """P_i proportional to s^(-Q_i/n), from the quantisation index or the rank Q_i."""
    z = torch.exp(index * (-math.log(pressure) / len(index)))
    return z / z.sum()


def softmax(scaled: Tensor, *, floor: float) -> Tensor:
    """Softmax whose exponents fall at most ``floor`` below the largest, so that P > 0."""
    exponent = scaled.to(torch.float64)
    z = (exponent - exponent.amax()).clamp_min(floor).exp()
    return z / z.sum()


def decaying_pressure(start: float, epoch: int, warmup: int, epochs: int) -> float:
    """s(t) = s0 (1/s0)^((t - T_w - 1)/(T - T_w - 1)): s0 in the first selective epoch, 1 at T."""
    return float(max(1.0, start ** (1.0 - progress(epoch, warmup, epochs))))


def progress(epoch: int, warmup: int, epochs: int) -> float:
    """From 0 in the first selective epoch (and before) to 1 in the last, T (and after)."""
    if epoch > epochs:
        return 1.0
    span = epochs - warmup - 1
    return min(max((epoch - warmup - 1) / span, 0.0), 1.0) if span > 0 else 0.0


def summary(p: Tensor) -> dict[str, float]:
    """How even P is: effective rows 1 / sum P^2, entropy in nats, least and largest value."""
    return {
        "effective_rows": float(1.0 / (p * p).sum()),
        "entropy": float(-(p * p.log()).sum()),
        "p_min": float(p.min()),
        "p_max": float(p.max()),
    }


def stage_mix(
    mix: tuple[float, float], span: tuple[float, float], epoch: int, schedule: str = "linear"
) -> float:
    """p_beta(t): the share of uncertainty, from mix[0] before span[0] to mix[1] after span[1]."""
    (start, end), (first, last) = mix, span
    if first == last:
        return end if epoch >= last else start
    progress = (min(max(epoch, first), last) - first) / (last - first)
    if schedule == "exp":
        return float(start ** (1.0 - progress) * end**progress)
    return start + progress * (end - start)
