"""Building blocks the models share: layers, means over a batch, labels in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CHUNK_ELEMENTS = 2**21
"""How many numbers a tensor of one chunk of labels may hold (8 MiB in float32: near the cache)."""
KEPT_ELEMENTS = 2**24
"""How many numbers such a tensor may hold over all chunks before it is computed twice instead."""


class FeedForward(nn.Module):
    """A chain of Lin -> [BatchNorm] -> LeakyReLU(slope) -> [Dropout] for every layer.

    ``widths`` are those of the input and of every layer. ``slope=0`` is a ReLU. With
    ``last_act=False`` the last layer is the bare affine map. Every weight starts as
    U(±sqrt(6 / ((1 + slope²) fan_in))), every bias as U(0, 0.1).
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        slope: float = 0.0,
        dropout: float = 0.0,
        last_act: bool = True,
        norm: bool = False,
    ) -> None:
        super().__init__()
        self.slope, self.dropout, self.last_act = slope, dropout, last_act
        linears = [nn.Linear(fan_in, width) for fan_in, width in pairwise(widths)]
        for linear in linears:
            bound = math.sqrt(6 / ((1 + slope**2) * linear.in_features))
            nn.init.uniform_(linear.weight, -bound, bound)
            nn.init.uniform_(linear.bias, 0.0, 0.1)
        self.layers = nn.ModuleList(linears)
        acting = widths[1:] if last_act else widths[1:-1]
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in acting if norm)

    def forward(self, x: Tensor) -> Tensor:
        """All layers on x [..., widths[0]]."""
        return self.after_first(self.layers[0](x))

    @property
    def first_weight(self) -> Tensor:
        """Weight [widths[1], widths[0]] of the first affine map."""
        return cast(nn.Linear, self.layers[0]).weight

    def after_first(self, hidden: Tensor) -> Tensor:
        """What follows the first affine map, given its result, which is overwritten."""
        hidden = self._act(0, hidden)
        for index in range(1, len(self.layers)):
            hidden = self._act(index, self.layers[index](hidden))
        return hidden

    def _act(self, index: int, hidden: Tensor) -> Tensor:
        if index == len(self.layers) - 1 and not self.last_act:
            return hidden
        if self.norms:
            hidden = self.norms[index](hidden)
        hidden = F.leaky_relu_(hidden, self.slope) if self.slope else F.relu_(hidden)
        return F.dropout(hidden, self.dropout, self.training) if self.dropout else hidden


class LabelwiseLinear(nn.Module):
    """One linear classifier per label: s_bj = Σ_k u_bjk v_jk + c_j, with v [q, h] and c [q].

    The same map as a grouped ``Conv1d(q, q, kernel_size=h, groups=q)`` of weight v[:, None, :].
    """

    def __init__(self, n_labels: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_labels, width))
        self.bias = nn.Parameter(torch.empty(n_labels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw v and c from U(±1/sqrt(h))."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, u: Tensor, labels: slice = slice(None)) -> Tensor:
        """Logits [B, labels] of u [B, labels, h]: label-specific vectors of a range of labels."""
        return torch.einsum("bqh,qh->bq", u, self.weight[labels]) + self.bias[labels]

    def shared(self, u: Tensor) -> Tensor:
        """Logits [B, q] where all labels look at the same vector u [B, h]."""
        return F.linear(u, self.weight, self.bias)


def over_labels(
    function: Callable[[slice], Tensor],
    n_labels: int,
    elements_per_label: int,
    limit: int | None = None,
    keep: int | None = None,
) -> Tensor:
    """``function(labels)`` [B, labels] over all labels, in chunks that bound its memory.

    A chunk takes as many labels as fit into ``limit`` elements (default: CHUNK_ELEMENTS). Its
    inner tensors are kept for the backward pass as long as those of all labels fit into ``keep``
    elements (default: KEPT_ELEMENTS); beyond, each chunk is computed again in the backward pass
    (dropout included: the random state is restored).
    """
    limit = CHUNK_ELEMENTS if limit is None else limit
    keep = KEPT_ELEMENTS if keep is None else keep
    size = max(1, limit // max(1, elements_per_label))
    count = -(-n_labels // size)
    size = -(-n_labels // count)  # even chunks
    chunks = [slice(start, min(start + size, n_labels)) for start in range(0, n_labels, size)]
    again = torch.is_grad_enabled() and n_labels * elements_per_label > keep
    parts = [
        checkpoint(function, chunk, use_reentrant=False) if again else function(chunk)
        for chunk in chunks
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def batch_mean(values: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean of values [B] over the batch, each multiplied by its weight [B] where there is one."""
    return values.mean() if weight is None else (values * weight).mean()


def full_precision(tensor: Tensor) -> Tensor:
    """Half-precision tensors as float32; others as they are."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def bounded_logvar(logvar: Tensor) -> Tensor:
    """A log-variance clamped to [-15, 15], so that its exponential is finite and not zero."""
    return logvar.clamp(-15.0, 15.0)
