"""The mixture of sigmoids of PACA's flow: both of its sides, and the logarithm of its slope.

For every point z_i, with α = softplus(a), w = softmax(v) and t = α z_i + β,

    above = Σ w σ(t),    below = Σ w σ(-t),    log slope = log Σ w α σ(t) σ(-t).

These are the widest tensors of the model, so this is one operation with a backward pass of its
own: everything is computed on linear scale with one logarithm per sum instead of one per term,
which halves the time. The slope alone can leave the range of float32. As σ(t) σ(-t) is
exp(-|t|) max(σ(t), σ(-t))², its terms are taken relative to the largest exp(v - |t|).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

LEAST_SLOPE = 1e-30  # softplus underflows to 0 far left, and the logarithm of a sum is needed


def sigmoid_mixture(
    raw_slope: Tensor, offset: Tensor, raw_weight: Tensor, z: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Above, below and log slope [D, labels, B], for a, β, v [T, D, labels, B] and z [D, B]."""
    return _Mixture.apply(raw_slope, offset, raw_weight, z)  # type: ignore[no-untyped-call]


class _Mixture(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, raw_slope: Tensor, offset: Tensor, raw_weight: Tensor, z: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        slope = F.softplus(raw_slope).clamp_min_(LEAST_SLOPE)  # α
        largest = raw_weight.amax(0)
        weight = (raw_weight - largest).exp_()
        total = weight.sum(0)
        weight.div_(total)  # w
        t = torch.addcmul(offset, slope, z[:, None])
        relative = raw_weight - t.abs()
        scale = relative.amax(0)
        up = torch.sigmoid(t)
        down = torch.sigmoid(t.neg_(), out=t)
        room = torch.maximum(up, down)
        share = relative.sub_(scale).exp_().mul_(room).mul_(room)
        relative_slope = torch.mul(share, slope, out=room).sum(0)
        above = torch.mul(weight, up, out=room).sum(0)
        below = torch.mul(weight, down, out=room).sum(0)
        share.div_(relative_slope)  # of a term in the slope, divided by its α
        log_slope = relative_slope.log() + (scale - largest) - total.log()
        ctx.save_for_backward(raw_slope, slope, weight, up, down, share, log_slope, z)
        return above, below, log_slope

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, by_above: Tensor, by_below: Tensor, by_log_slope: Tensor
    ) -> tuple[Tensor, ...]:
        raw_slope, slope, weight, up, down, share, log_slope, z = ctx.saved_tensors
        term = (share * slope).mul_(by_log_slope)
        by_raw_weight = (up * by_above).addcmul_(down, by_below).mul_(weight).add_(term)
        by_raw_weight.addcmul_(weight, by_raw_weight.sum(0), value=-1)  # through the softmax
        by_t = (down - up).mul_(term)
        by_t.addcmul_(share, (by_above - by_below) * log_slope.exp())  # times w σ(t) σ(-t)
        by_z = torch.mul(by_t, slope, out=term).sum((0, 2))
        by_slope = (share * by_log_slope).addcmul_(by_t, z[:, None])
        return by_slope.mul_(torch.sigmoid(raw_slope)), by_t, by_raw_weight, by_z
