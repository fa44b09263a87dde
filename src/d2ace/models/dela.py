"""DELA: each label learns which latent features it can do without, by putting noise on them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from d2ace._util import validation as inputs

from .base import ModelOutput, MultiLabelModel, trainable
from .layers import (
    FeedForward,
    LabelwiseLinear,
    batch_mean,
    bounded_logvar,
    full_precision,
    over_labels,
)

ENCODER = (256, 512, 256)
HEAD = (256, 512)

_PAPER = {
    "D": "ceil(d/2)",
    "tau": 2 / 3,
    "omega": 0.5,
    "p": 0.2,
    "p_dec": 0.0,
    "beta": 1e-4,
    "gate_lr_ratio": 1.0,
    "clamp_logvar": True,
}


class DELA(MultiLabelModel):
    """Dual perturbation: label-specific gates decide where noise enters the latent features.

    An instance has a latent mean and noise level; label j has stochastic binary gates a_j. The
    classifier of label j sees mean + a_j ⊙ noise, so that only features it does not need stay
    noisy. In evaluation there is no noise. Hang and Zhang, ICML 2022.

    Parameters
    ----------
    n_features, Y_train, preset
        As for every model, see :class:`~d2ace.models.MultiLabelModel`.
    D : int
        Latent width (ceil(d/2)).
    tau : float
        τ, temperature of the relaxed gates (2/3).
    omega : float
        ω, what a closed gate still lets through (0.5; reference: 0, see the guide's warning).
    p, p_dec : float
        Dropout in the encoder (0.2) and in the classifier head (0; reference: 0.2).
    beta : float
        β, weight of the divergence from the prior; λ in the D2ACE paper (1e-4).
    gate_lr_ratio : float
        ρ, learning rate of the gates as a multiple of that of everything else (1).
    clamp_logvar : bool
        Clamp log-variances to [-15, 15] (True; reference: False, where they may overflow).
    """

    name: ClassVar[str] = "dela"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": _PAPER,
        "reference": {**_PAPER, "omega": 0.0, "p_dec": 0.2, "clamp_logvar": False},
    }

    def __init__(
        self,
        n_features: int,
        Y_train: inputs.Labels,
        *,
        preset: str = "paper",
        D: int | None = None,
        tau: float | None = None,
        omega: float | None = None,
        p: float | None = None,
        p_dec: float | None = None,
        beta: float | None = None,
        gate_lr_ratio: float | None = None,
        clamp_logvar: bool | None = None,
    ) -> None:
        given = {
            "D": D,
            "tau": tau,
            "omega": omega,
            "p": p,
            "p_dec": p_dec,
            "beta": beta,
            "gate_lr_ratio": gate_lr_ratio,
            "clamp_logvar": clamp_logvar,
        }
        super().__init__(n_features, Y_train, preset, given)
        chosen = self.hparams
        if D is None:
            chosen["D"] = math.ceil(self.n_features / 2)
        self.latent = inputs.whole_number("D", chosen["D"], 1)
        self.tau = inputs.real_number("tau", chosen["tau"], 0, open_low=True)
        self.omega = inputs.real_number("omega", chosen["omega"], 0, 1)
        self.beta = inputs.real_number("beta", chosen["beta"], 0)
        self.gate_lr_ratio = inputs.real_number("gate_lr_ratio", chosen["gate_lr_ratio"], 0)
        self.clamp_logvar = inputs.truth("clamp_logvar", chosen["clamp_logvar"])
        dropout = inputs.real_number("p", chosen["p"], 0, 1)
        head_dropout = inputs.real_number("p_dec", chosen["p_dec"], 0, 1)

        self.encoder = FeedForward([self.n_features, *ENCODER], dropout=dropout)
        self.mu = nn.Linear(ENCODER[-1], self.latent)
        self.logvar = nn.Linear(ENCODER[-1], self.latent)
        self.R = nn.Parameter(torch.empty(self.n_labels, self.latent).uniform_(-10, 10))
        self.gate = nn.Linear(self.latent, self.latent)
        nn.init.constant_(self.gate.bias, 2.0)
        self.head = FeedForward([self.n_features + self.latent, *HEAD], dropout=head_dropout)
        self.classifier = LabelwiseLinear(self.n_labels, HEAD[-1])

    def forward(self, x: Tensor) -> ModelOutput:
        """Logits of instances x [B, d]; in training with sampled gates and noise."""
        self.check_features(x)
        hidden = self.encoder(x)
        mu = full_precision(self.mu(hidden))
        logvar = full_precision(self.logvar(hidden))
        if self.clamp_logvar:
            logvar = bounded_logvar(logvar)
        aux = {"mu": mu, "logvar": logvar}
        if not self.training:  # all labels see the same latent vector
            logits = self.classifier.shared(self.head(torch.cat([x, mu.to(x.dtype)], 1)))
            return ModelOutput(logits, aux)
        aux["gates"] = gates = self.sample_gates()
        noise = torch.exp(logvar / 2) * torch.randn_like(logvar)
        return ModelOutput(self.perturbed_logits(x, mu, noise, gates), aux)

    def sample_gates(self) -> Tensor:
        """Gates a [q, D], one sample per batch: in {ω, 1}, with the gradient of their soft form."""
        with torch.autocast(self.R.device.type, enabled=False):
            logits = self.gate(self.R)
            eps = torch.finfo(logits.dtype).eps
            u = torch.rand_like(logits).clamp(eps, 1 - eps)
            soft = torch.sigmoid((torch.log(u) - torch.log1p(-u) + logits) / self.tau)
            value = (soft > 0.5).to(soft.dtype).clamp(min=self.omega)
            return value + (soft - soft.detach())

    def perturbed_logits(self, x: Tensor, mu: Tensor, noise: Tensor, gates: Tensor) -> Tensor:
        """Logits [B, q] where label j sees [x_b, mu_b + gates_j ⊙ noise_b].

        The first layer of the head is linear, so that it splits into a part per instance and a
        part per pair: W [x; z] + b = (W [x; mu] + b) + W_z (gates ⊙ noise).
        """
        common = self.head.layers[0](torch.cat([x, mu.to(x.dtype)], 1))
        on_noise = self.head.first_weight[:, self.n_features :]

        def logits(labels: slice) -> Tensor:
            codes = (noise[:, None] * gates[labels]).to(on_noise.dtype)
            perturbation = F.linear(codes, on_noise)
            return self.classifier(self.head.after_first(perturbation + common[:, None]), labels)

        return over_labels(logits, self.n_labels, len(x) * max(self.latent, HEAD[-1]))

    def terms(
        self, output: ModelOutput, y: Tensor, pairs: Tensor, weight: Tensor | None
    ) -> dict[str, Tensor]:
        """Cross-entropy summed over labels and, of a training output, β times the divergence."""
        terms = {"classification": batch_mean(pairs.sum(1), weight)}
        if "gates" in output.aux:
            divergence = mean_divergence(**output.aux)
            terms["divergence"] = self.beta * batch_mean(divergence, weight)
        return terms

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        """The gates with learning rate lr·ρ, everything else with lr."""
        gates = [self.R, *self.gate.parameters()]
        others = [p for p in self.parameters() if all(p is not gate for gate in gates)]
        return [
            {"params": trainable(others), "lr": lr},
            {"params": trainable(gates), "lr": lr * self.gate_lr_ratio},
        ]


def mean_divergence(mu: Tensor, logvar: Tensor, gates: Tensor) -> Tensor:
    """KL(N(mu_b, (a_j σ_b)²) || N(0, I)) [B], averaged over labels j without a [B, q, D] tensor."""
    closing = torch.log(gates + 1e-6).sum(1).mean()
    per_feature = mu.square() - 1 - logvar + logvar.exp() * gates.square().mean(0)
    return per_feature.sum(1) / 2 - closing
