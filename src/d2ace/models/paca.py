"""PACA: every label has a density of its positive and one of its negative instances."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from d2ace._util import validation as inputs

from .base import ModelOutput, MultiLabelModel
from .layers import FeedForward, batch_mean, bounded_logvar, full_precision
from .paca_flow import ConditionalFlow

_PAPER = {
    "alpha": 2.0,
    "gamma": 10.0,
    "D": "min(ceil(d/2), Hf)",
    "Hf": 256,
    "T": 16,
    "p": 0.1,
    "p_dec": 0.0,
    "binary_features": False,
    "clamp_logvar": True,
}


class PACA(MultiLabelModel):
    """Probabilistic label-specific densities, conditioned on the label by normalising flows.

    An instance is encoded as N(mu, exp(logvar)), sampled, and mapped to z. Two conditional flows
    give the density of z among the positives and among the negatives of label j; the logit is
    the difference of their logarithms. An autoencoder of the labels pulls the code of x towards
    that of y, and a decoder keeps x recoverable from z; both serve training only. Hang, Zhang,
    Feng and Song, AAAI 2022.

    Parameters
    ----------
    n_features, Y_train, preset
        As for every model, see :class:`~d2ace.models.MultiLabelModel`. Features are expected in
        [0, 1], where the reconstruction lives.
    alpha : float
        α, the weight of the classification loss (2).
    gamma : float
        γ, the weight of the label autoencoder and of the divergence between both codes (10).
    D : int
        Width of the codes and of z, at most Hf (half the features, rounded up, and at most Hf).
    Hf : int
        Width of the hidden layer of a flow (256).
    T : int
        Sigmoids in a mixture of a flow; d_τ in the D2ACE paper (16).
    p, p_dec : float
        Dropout in the encoders (0.1), and in the decoders and the instance map (0; reference:
        0.2).
    binary_features : bool
        Features are zeros and ones: reconstruct them by cross-entropy instead of least squares.
    clamp_logvar : bool
        Clamp log-variances to [-15, 15] (True; reference: False, where they may overflow).
    """

    name: ClassVar[str] = "paca"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": _PAPER,
        "reference": {**_PAPER, "p_dec": 0.2, "clamp_logvar": False},
    }

    def __init__(
        self,
        n_features: int,
        Y_train: inputs.Labels,
        *,
        preset: str = "paper",
        alpha: float | None = None,
        gamma: float | None = None,
        D: int | None = None,
        Hf: int | None = None,
        T: int | None = None,
        p: float | None = None,
        p_dec: float | None = None,
        binary_features: bool | None = None,
        clamp_logvar: bool | None = None,
    ) -> None:
        given = {
            "alpha": alpha,
            "gamma": gamma,
            "D": D,
            "Hf": Hf,
            "T": T,
            "p": p,
            "p_dec": p_dec,
            "binary_features": binary_features,
            "clamp_logvar": clamp_logvar,
        }
        super().__init__(n_features, Y_train, preset, given)
        chosen, d, q = self.hparams, self.n_features, self.n_labels
        self.alpha = inputs.real_number("alpha", chosen["alpha"], 0)
        self.gamma = inputs.real_number("gamma", chosen["gamma"], 0)
        flow_width = inputs.whole_number("Hf", chosen["Hf"], 1)
        if D is None:
            chosen["D"] = min(math.ceil(d / 2), flow_width)
        latent = inputs.whole_number("D", chosen["D"], 1)
        if latent > flow_width:
            raise ValueError(
                f"D must be at most Hf = {flow_width}, got {latent}: the hidden layer of a flow "
                f"has to be as wide as z; take a smaller D or a larger Hf."
            )
        mixture = inputs.whole_number("T", chosen["T"], 1)
        dropout = inputs.real_number("p", chosen["p"], 0, 1)
        decoder_dropout = inputs.real_number("p_dec", chosen["p_dec"], 0, 1)
        self.binary_features = chosen["binary_features"]
        if not isinstance(self.binary_features, bool):
            raise TypeError(f"binary_features must be True or False, got {self.binary_features!r}.")
        self.clamp_logvar = inputs.truth("clamp_logvar", chosen["clamp_logvar"])

        self.encoder = FeedForward([d, 256, 512, 256], dropout=dropout)
        self.mu = nn.Linear(256, latent)
        self.logvar = nn.Linear(256, latent)
        self.instance_map = FeedForward(
            [d + latent, 256, 256, latent], dropout=decoder_dropout, last_act=False
        )
        self.decoder = FeedForward(
            [latent, 256, 512, 256, d], dropout=decoder_dropout, last_act=False
        )
        self.label_encoder = FeedForward([q, 512, 256], dropout=dropout)
        self.label_mu = nn.Linear(256, latent)
        self.label_logvar = nn.Linear(256, latent)
        self.label_decoder = FeedForward([latent, 256, 512], dropout=decoder_dropout)
        self.label_logits = nn.Linear(512, q)
        self.positive = ConditionalFlow(q, latent, flow_width, mixture)
        self.negative = ConditionalFlow(q, latent, flow_width, mixture)
        self._reconstructs = True

    def forward(self, x: Tensor) -> ModelOutput:
        """Logits of instances x [B, d]: s_bj = log p(z_b | j positive) - log p(z_b | j negative).

        In training the code of x is sampled; in evaluation it is its mean.
        """
        self.check_features(x)
        hidden = self.encoder(x)
        mu = full_precision(self.mu(hidden))
        logvar = self._bounded(self.logvar(hidden))
        z = self.instance_map(torch.cat([x, self._sample(mu, logvar).to(x.dtype)], 1))
        aux = {"x": x, "mu": mu, "logvar": logvar}
        if self._reconstructs:
            aux["recon"] = self.decoder(z)
        return ModelOutput(self.positive(z) - self.negative(z), aux)

    def predict_proba(self, x: Tensor) -> Tensor:
        """Probabilities [B, q] in evaluation mode, without the reconstruction nobody looks at."""
        self._reconstructs = False
        try:
            return super().predict_proba(x)
        finally:
            self._reconstructs = True

    def terms(
        self, output: ModelOutput, y: Tensor, pairs: Tensor, weight: Tensor | None
    ) -> dict[str, Tensor]:
        """Reconstruction + γ (divergence + label autoencoder) + α classification.

        The label branch runs here: nothing but the loss reads it.
        """
        aux = output.aux
        dtype = self.label_mu.weight.dtype
        hidden = self.label_encoder(y.to(dtype))
        label_mu = full_precision(self.label_mu(hidden))
        label_logvar = self._bounded(self.label_logvar(hidden))
        code = self.label_decoder(self._sample(label_mu, label_logvar).to(dtype))
        autoencoded = F.binary_cross_entropy_with_logits(
            full_precision(self.label_logits(code)), y, reduction="none"
        )
        divergence = normal_divergence(aux["mu"], aux["logvar"], label_mu, label_logvar)
        reconstruction = self._reconstruction_error(aux["recon"], aux["x"])
        return {
            "reconstruction": batch_mean(reconstruction.sum(1), weight),
            "divergence": self.gamma * batch_mean(divergence, weight),
            "label_autoencoder": self.gamma * batch_mean(autoencoded.sum(1), weight),
            "classification": self.alpha * batch_mean(pairs.sum(1), weight),
        }

    def _bounded(self, logvar: Tensor) -> Tensor:
        """A log-variance in full precision, clamped unless ``clamp_logvar`` is off."""
        logvar = full_precision(logvar)
        return bounded_logvar(logvar) if self.clamp_logvar else logvar

    def _sample(self, mu: Tensor, logvar: Tensor) -> Tensor:
        """One draw of N(mu, exp(logvar)) in training, mu in evaluation."""
        if not self.training:
            return mu
        return mu + torch.exp(logvar / 2) * torch.randn_like(mu)

    def _reconstruction_error(self, recon: Tensor, x: Tensor) -> Tensor:
        if self.binary_features:
            return F.binary_cross_entropy_with_logits(recon, x, reduction="none")
        return (torch.sigmoid(recon) - x).square()


def normal_divergence(mu: Tensor, logvar: Tensor, to_mu: Tensor, to_logvar: Tensor) -> Tensor:
    """KL(N(mu, exp(logvar)) || N(to_mu, exp(to_logvar))) [B], summed over the D coordinates."""
    distance = (to_mu - mu).square() / (to_logvar.exp() + 1e-8)
    spread = to_logvar - logvar - 1.0 + (logvar - to_logvar).exp()
    return 0.5 * (spread + distance).sum(1)
