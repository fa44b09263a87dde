"""The part of CLIF that costs: one layer for all labels, each behind its gate, as one operation.

For B instances and q labels it is B·q·h² multiplications forward and twice as many backward, at
the speed of a matrix product. Left to the graph of single operations, what lies between the
products takes half as long again: tensors of B·q·h numbers are written and read a dozen times.
Here labels are taken a few at a time, so that what is written is still in the cache when it is
read, and of the inner tensors a single one is kept for the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_ELEMENTS = 2**20
"""How many numbers a tensor of one chunk of labels may hold (4 MiB in float32: in the cache)."""
KEPT_ELEMENTS = 2**25
"""How many numbers are kept for the backward pass; beyond, they are computed again there."""


def gated_logits(
    features: Tensor, gates: Tensor, weight: Tensor, bias: Tensor, classifier: Tensor, slope: float
) -> Tensor:
    """Logits [B, q] without their biases: s_bj = v_j · LeakyReLU(W (f_b ⊙ g_j) + b).

    ``features`` f is [B, h], ``gates`` g [q, h], ``weight`` W [h', h], ``bias`` b [h'] and
    ``classifier`` v [q, h']. All are brought to the precision of the features.
    """
    others = (tensor.to(features.dtype) for tensor in (gates, weight, bias, classifier))
    keep = torch.is_grad_enabled() and len(features) * classifier.numel() <= KEPT_ELEMENTS
    return _GatedLogits.apply(features, *others, slope, keep).T  # type: ignore[no-untyped-call]


class _GatedLogits(torch.autograd.Function):
    """Tensors carry the label first, [labels, B, h]: a chunk of labels is one matrix."""

    @staticmethod
    def forward(
        ctx: Any,
        f: Tensor,
        gates: Tensor,
        weight: Tensor,
        bias: Tensor,
        v: Tensor,
        slope: float,
        keep: bool,
    ) -> Tensor:
        q, width = v.shape
        size = _labels_at_once(len(f), max(width, weight.shape[1]), q)
        hidden = f.new_empty(q if keep else size, len(f), width)
        space = f.new_empty(size, *f.shape)
        logits = f.new_empty(q, len(f))
        for start in range(0, q, size):
            labels = slice(start, min(start + size, q))
            place = labels if keep else slice(labels.stop - labels.start)
            _hidden(f, gates[labels], weight, bias, slope, space, hidden[place])
            torch.bmm(hidden[place], v[labels, :, None], out=logits[labels, :, None])
        ctx.save_for_backward(f, gates, weight, bias, v, hidden if keep else None)
        ctx.slope, ctx.size = slope, size
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_logits: Tensor) -> tuple[Tensor | None, ...]:
        f, gates, weight, bias, v, kept = ctx.saved_tensors
        q, size = len(v), ctx.size
        precision = torch.promote_types(f.dtype, torch.float32)  # of sums over the chunks
        d_f, d_weight, d_bias = (
            torch.zeros_like(tensor, dtype=precision) for tensor in (f, weight, bias)
        )
        d_gates, d_v = torch.empty_like(gates), torch.empty_like(v)
        d_logits = d_logits.contiguous()
        gated_space = f.new_empty(size, *f.shape)
        hidden_space = f.new_empty(size, len(f), v.shape[1])
        again = None if kept is not None else torch.empty_like(hidden_space)
        for start in range(0, q, size):
            labels = slice(start, min(start + size, q))
            count = labels.stop - labels.start
            gated, d_hidden, d_chunk = gated_space[:count], hidden_space[:count], d_logits[labels]
            if again is None:
                hidden = kept[labels]
                torch.mul(f, gates[labels, None], out=gated)
            else:
                hidden = again[:count]
                _hidden(f, gates[labels], weight, bias, ctx.slope, gated, hidden)
            torch.bmm(d_chunk[:, None], hidden, out=d_v[labels, None])
            torch.mul(d_chunk[:, :, None], v[labels, None], out=d_hidden)
            torch.ops.aten.leaky_relu_backward.grad_input(
                d_hidden, hidden, ctx.slope, True, grad_input=d_hidden
            )
            flat = d_hidden.flatten(0, 1)
            d_bias += flat.sum(0)
            d_weight += flat.T @ gated.flatten(0, 1)
            d_gated = torch.mm(flat, weight, out=gated.flatten(0, 1)).view_as(gated)
            d_gates[labels] = (d_gated * f).sum(1)
            d_f += d_gated.mul_(gates[labels, None]).sum(0)
        d_f, d_weight, d_bias = (total.to(f.dtype) for total in (d_f, d_weight, d_bias))
        return d_f, d_gates, d_weight, d_bias, d_v, None, None


def _hidden(
    f: Tensor, gates: Tensor, weight: Tensor, bias: Tensor, slope: float, space: Tensor, out: Tensor
) -> None:
    """LeakyReLU(W (f_b ⊙ g_j) + b) of a few labels, into ``out`` [labels, B, h']."""
    gated = torch.mul(f, gates[:, None], out=space[: len(gates)])
    torch.addmm(bias, gated.flatten(0, 1), weight.T, out=out.flatten(0, 1))
    F.leaky_relu_(out, slope)


def _labels_at_once(rows: int, width: int, n_labels: int) -> int:
    """How many labels a chunk takes, all chunks about as many."""
    most = max(1, CHUNK_ELEMENTS // max(1, rows * width))
    return -(-n_labels // -(-n_labels // most))
