"""The conditional flow of PACA: log p(z | label j) at one point per instance, for all labels.

Two invertible stages take z to a standard normal variable. The first bends every coordinate with
a mixture of T sigmoids whose shape depends on the coordinates before it and on the label; the
second scales and shifts every coordinate by the label alone. The density is that of the normal
variable times the stretching of both stages.

The condition is the one-hot code of a label, so a linear map of it is a column of its weight: no
product with the identity is ever made. Tensors carry label and instance last, as
[..., labels, B]: then each of the two wide maps of stage 1 is one matrix product without any
transposing, and sums over the T sigmoids run over whole contiguous planes.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import layers
from .paca_mixture import LEAST_SLOPE, sigmoid_mixture
from .recompute import recomputed

DELTA = 1e-6  # δ: the mixture is squeezed into [δ/2, 1 - δ/2] before its logit is taken
_HALF_IDENTITY = 0.5 * math.log(math.e - 1.0)  # two of them: softplus(ln(e - 1)) = 1
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


class SigmoidalStage(nn.Module):
    """z_i -> logit Σ_T w σ(α z_i + β), with α, β, w from z_1..z_{i-1} and the label.

    Input i has degree i + 1, hidden unit t degree (t mod max(D - 1, 1)) + 1. A hidden unit reads
    the inputs up to its degree; the K parameters of dimension i read the hidden units below
    theirs. Output unit r·D + i of ``conditioner`` is parameter r of dimension i.
    """

    read_mask: Tensor
    write_mask: Tensor

    def __init__(self, n_labels: int, D: int, Hf: int, T: int) -> None:
        super().__init__()
        self.D, self.K, self.T = D, 3 * (Hf // D), T
        self.instance = nn.Linear(D, Hf)
        self.label = nn.Linear(n_labels, Hf)
        self.conditioner = nn.Linear(Hf, self.K * D)
        self.mixture = nn.Linear(self.K, 3 * T)
        nn.init.zeros_(self.label.bias)  # the weight keeps U(±1/√q), the default
        degree = torch.arange(1, D + 1)
        hidden_degree = torch.arange(Hf) % max(D - 1, 1) + 1
        read = (degree <= hidden_degree[:, None]).to(self.instance.weight)
        write = (hidden_degree < degree[:, None]).to(self.instance.weight)
        self.register_buffer("read_mask", read, persistent=False)  # [Hf, D]
        self.register_buffer("write_mask", write, persistent=False)  # [D, Hf]

    def shared(self, z: Tensor) -> tuple[Tensor, ...]:
        """What all labels share, in the order in which :func:`sigmoidal_flow` takes it.

        That is z [D, B]; the hidden layer before the label is added, (W1 ⊙ Mask1) z + b1 + by
        [Hf, B]; W2 ⊙ Mask2 [K·D, Hf] and b2; the weight and bias of Lin(K -> 3T).
        """
        bias = self.instance.bias + self.label.bias
        hidden = torch.addmm(bias[:, None], self.instance.weight * self.read_mask, z.T)
        weight = self.conditioner.weight
        masked = (weight.view(self.K, self.D, -1) * self.write_mask).view_as(weight)
        return z.T, hidden, masked, self.conditioner.bias, self.mixture.weight, self.mixture.bias

    def per_label(self) -> Tensor:
        """Wyᵀ [q, Hf]: what each label adds to the hidden layer."""
        return self.label.weight.T


def sigmoidal_flow(
    z: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    mixture_weight: Tensor,
    mixture_bias: Tensor,
    label_part: Tensor,
) -> tuple[Tensor, Tensor]:
    """z1 and log |dz1_i/dz_i|, [D, labels, B] each, for the labels of ``label_part`` [labels, Hf].

    The other arguments are :meth:`SigmoidalStage.shared`.
    """
    hidden = F.elu(label_part.T[:, :, None] + hidden[:, None])  # [Hf, labels, B]
    shape = (len(mixture_bias) // 3, len(z), *hidden.shape[1:])  # [T, D, labels, B]
    common = torch.addmm(bias[:, None], weight, hidden.flatten(1))
    common = common.view(mixture_weight.shape[1], -1)  # [K, D·labels·B]
    raw_slope, offset, raw_weight = (  # never the three as one tensor
        torch.addmm(b[:, None], w, common).view(shape)
        for w, b in zip(mixture_weight.chunk(3), mixture_bias.chunk(3), strict=True)
    )
    above, below, log_slope = sigmoid_mixture(raw_slope, offset, raw_weight, z)
    # o' and 1 - o', each as its own sum: near 1 the difference would keep a few bits only
    log_above = (above * (1.0 - DELTA) + DELTA / 2).log()
    log_below = (below * (1.0 - DELTA) + DELTA / 2).log()
    log_derivative = log_slope + math.log1p(-DELTA) - log_above - log_below
    return log_above - log_below, log_derivative


class LabelMap(nn.Module):
    """R(c) = Lin2(ReLU(Lin1(c))) + Lin3(c) of the one-hot codes c of all labels: [q, D]."""

    def __init__(self, n_labels: int, D: int, bias: float) -> None:
        super().__init__()
        self.first = nn.Linear(n_labels, D)
        self.second = nn.Linear(D, D)
        self.direct = nn.Linear(n_labels, D)
        for linear in (self.second, self.direct):
            nn.init.uniform_(linear.weight, -0.001, 0.001)
            nn.init.constant_(linear.bias, bias)

    def forward(self) -> Tensor:
        """R of all labels."""
        hidden = torch.relu(self.first.weight.T + self.first.bias)
        return self.second(hidden) + self.direct.weight.T + self.direct.bias


class AffineStage(nn.Module):
    """z1 -> z1 ⊙ scale_j + shift_j, which starts out close to the identity."""

    def __init__(self, n_labels: int, D: int) -> None:
        super().__init__()
        self.scale = LabelMap(n_labels, D, bias=_HALF_IDENTITY)
        self.shift = LabelMap(n_labels, D, bias=0.0)

    def forward(self) -> tuple[Tensor, Tensor]:
        """Scale and shift of every label, [q, D] each."""
        return F.softplus(self.scale()).clamp_min(LEAST_SLOPE), self.shift()


class ConditionalFlow(nn.Module):
    """log p(z | j) for every instance z of a batch and every label j, in bounded memory.

    Parameters
    ----------
    n_labels : int
        q.
    D, Hf, T : int
        Width of z, of the hidden layer, and the number of sigmoids of a mixture; D <= Hf.
    """

    def __init__(self, n_labels: int, D: int, Hf: int = 256, T: int = 16) -> None:
        super().__init__()
        self.n_labels = n_labels
        self.sigmoidal = SigmoidalStage(n_labels, D, Hf, T)
        self.affine = AffineStage(n_labels, D)
        self.widest = max(3 * T * D, self.sigmoidal.K * D, Hf)  # numbers a pair takes at most

    def forward(self, z: Tensor) -> Tensor:
        """The log densities [B, q] for z [B, D], in the precision of the parameters always.

        These are sums over D that reach the hundreds: subtract them, never exponentiate them.
        """
        with torch.autocast(z.device.type, enabled=False):
            z = z.to(self.sigmoidal.instance.weight.dtype)
            shared = self.sigmoidal.shared(z)
            per_label = (self.sigmoidal.per_label(), *self.affine())
            elements = len(z) * self.widest  # of a label
            if self.n_labels * elements <= layers.KEPT_ELEMENTS:
                return log_density(*shared, *per_label).T
            size = max(1, layers.CHUNK_ELEMENTS // elements)
            return recomputed(log_density, shared, per_label, size).T


def log_density(*tensors: Tensor) -> Tensor:
    """The log densities [labels, B]: stage 1 on all tensors but the last two, scale and shift."""
    *arguments, scale, shift = tensors
    z1, log_derivative = sigmoidal_flow(*arguments)
    scale, shift = scale.T[:, :, None], shift.T[:, :, None]
    log_normal = -0.5 * torch.addcmul(shift, z1, scale).square() - _HALF_LOG_2PI
    return (log_normal + log_derivative + scale.log()).sum(0)
