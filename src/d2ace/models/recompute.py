"""A function of many labels in the memory of a few: computed in chunks, twice in training.

``torch.utils.checkpoint`` around every chunk bounds the live tensors as well, but leaves small
objects behind between the large ones, and with hundreds of chunks the heap falls to pieces: at
q = 1,000 PACA then holds 11 GiB where this takes less than one. Here all chunks are one node of
the graph and nothing is left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def recomputed(
    function: Callable[..., Tensor],
    shared: Sequence[Tensor],
    per_label: Sequence[Tensor],
    size: int,
) -> Tensor:
    """``function(*shared, *per_label)``, whose rows are labels, ``size`` labels at a time.

    The rows of every tensor of ``per_label`` and of the result belong to labels, and a row of
    the result depends on no other label. Backward computes each chunk again. The function must
    read nothing that needs a gradient but its arguments, and draw no random numbers.
    """
    return _Chunks.apply(function, size, len(shared), *shared, *per_label)  # type: ignore[no-untyped-call]


class _Chunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Any, size: int, count: int, *tensors: Tensor) -> Any:
        ctx.function, ctx.size, ctx.count = function, size, count
        ctx.save_for_backward(*tensors)
        shared, per_label = tensors[:count], tensors[count:]
        n_labels, result = len(per_label[0]), None
        for start in range(0, n_labels, size):
            labels = slice(start, start + size)
            part = function(*shared, *(rows[labels] for rows in per_label))
            if result is None:
                result = part.new_empty(n_labels, *part.shape[1:])
            result[labels] = part
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        tensors, needed = ctx.saved_tensors, ctx.needs_input_grad[3:]
        sums = [
            torch.zeros_like(t) if need else None for t, need in zip(tensors, needed, strict=True)
        ]
        for start in range(0, len(gradient), ctx.size):
            labels = slice(start, start + ctx.size)
            places = [slice(None)] * ctx.count + [labels] * (len(tensors) - ctx.count)
            inputs = [
                tensor[place].detach().requires_grad_(need)
                for tensor, place, need in zip(tensors, places, needed, strict=True)
            ]
            with torch.enable_grad():
                part = ctx.function(*inputs)
            wanted = [tensor for tensor in inputs if tensor.requires_grad]
            gradients = iter(torch.autograd.grad(part, wanted, gradient[labels]))
            for total, place in zip(sums, places, strict=True):
                if total is not None:
                    total[place] += next(gradients)
        return None, None, None, *sums
