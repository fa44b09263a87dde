"""ML-GCN: a graph network over the labels makes the classifier of each label."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from d2ace._util import validation as inputs

from .base import ModelOutput
from .image import BACKBONE, ImageModel, label_counts, make_label_vectors
from .layers import full_precision

SLOPE = 0.2
"""Of the LeakyReLU between the graph layers."""
WINDOW = 14
"""Side of the map of an image of 448 pixels, which the authors' code pools over."""

_PAPER = {
    **BACKBONE,
    "label_vectors": "random",
    "h": 1024,
    "tau": 0.4,
    "p": 0.2,
    "pool": "global",
    "backbone_lr_factor": 1.0,
}


class MLGCN(ImageModel):
    """Multi-label image recognition with graph convolutional networks.

    Two graph layers turn the label vectors Z into classifiers Q, one per label, which are applied
    to the max-pooled feature map. Chen, Wei, Wang and Guo, CVPR 2019.

    Parameters
    ----------
    n_features, Y_train, preset
        As for every image model, see :class:`~d2ace.models.image.ImageModel`.
    backbone, weights, freeze
        The backbone, its weights, and what of it is not trained ("resnet101", "pretrained",
        "none").
    label_vectors : "random" or array [q, width]
        Z, see :func:`~d2ace.models.image.make_label_vectors`.
    h : int
        Width between the two graph layers (1024).
    tau : float
        τ, the conditional probability from which on one label points to another (0.4).
    p : float
        How much of a label's new vector comes from its neighbours (0.2).
    pool : "global" or "14x14"
        What the maximum of a channel is taken over: the whole map, or its first 14 rows and
        columns where all sides are from 14 to 27 (reference).
    backbone_lr_factor : float
        Learning rate of the backbone, relative to the rest (1.0; reference: 0.1).
    """

    name: ClassVar[str] = "ml_gcn"
    title: ClassVar[str] = "ML-GCN"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": _PAPER,
        "reference": {**_PAPER, "pool": "14x14", "backbone_lr_factor": 0.1},
    }
    clip_norm: ClassVar[float | None] = 10.0

    Z: Tensor
    M: Tensor

    def __init__(
        self,
        n_features: int,
        Y_train: inputs.Labels,
        *,
        preset: str = "paper",
        backbone: str | nn.Module | None = None,
        weights: str | None = None,
        freeze: str | Sequence[str] | None = None,
        label_vectors: Any = None,
        h: int | None = None,
        tau: float | None = None,
        p: float | None = None,
        pool: str | None = None,
        backbone_lr_factor: float | None = None,
    ) -> None:
        given = {
            "backbone": backbone,
            "weights": weights,
            "freeze": freeze,
            "label_vectors": label_vectors,
            "h": h,
            "tau": tau,
            "p": p,
            "pool": pool,
            "backbone_lr_factor": backbone_lr_factor,
        }
        super().__init__(n_features, Y_train, preset, given)
        chosen = self.hparams
        width = inputs.whole_number("h", chosen["h"], 1)
        tau = inputs.real_number("tau", chosen["tau"], 0, 1, open_low=True)
        share = inputs.real_number("p", chosen["p"], 0, 0.999)
        self.pool = inputs.choice("pool", chosen["pool"], ("global", "14x14"))
        factor = chosen["backbone_lr_factor"]
        self.backbone_lr_factor = inputs.real_number("backbone_lr_factor", factor, 0)
        vectors, chosen["label_vectors"] = make_label_vectors(
            chosen["label_vectors"], self.n_labels
        )

        counts = label_counts(Y_train)
        graph = correlation(counts, counts.diagonal(), tau, share)
        self.register_buffer("Z", vectors)
        matrix = torch.tensor(propagation(graph), dtype=vectors.dtype)
        self.register_buffer("M", matrix.contiguous())
        self.W_1 = _columns(vectors.shape[1], width)
        self.W_2 = _columns(width, self.channels)

    def forward(self, x: Tensor) -> ModelOutput:
        """Logits s = φ Qᵀ of images x [B, 3, H, W]; φ is the maximum of each channel."""
        maps = self.feature_map(x)
        # A window of 14 that moves by 14 fits these maps once; the authors' code fails on others.
        if self.pool == "14x14" and all(WINDOW <= side < 2 * WINDOW for side in maps.shape[2:]):
            maps = maps[:, :, :WINDOW, :WINDOW]
        pooled = F.adaptive_max_pool2d(maps, 1).flatten(1)
        with torch.autocast(pooled.device.type, enabled=False):  # negligible beside the backbone
            classifiers = self.once(self.label_classifiers)
            return ModelOutput(F.linear(full_precision(pooled), full_precision(classifiers)))

    def label_classifiers(self) -> Tensor:
        """Q [q, C], which does not depend on the images."""
        hidden = F.leaky_relu(self.M @ (self.Z @ self.W_1), SLOPE)
        return self.M @ (hidden @ self.W_2)

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        """The graph layers with learning rate lr, the backbone with lr·backbone_lr_factor."""
        return self.head_and_backbone(lr, self.backbone_lr_factor)


def correlation(
    together: np.ndarray[Any, Any], positives: np.ndarray[Any, Any], tau: float, p: float
) -> np.ndarray[Any, Any]:
    """A [q, q] from the counts of pairs and of labels: edges i -> j where P(j | i) ≥ τ.

    The edges into a label share the weight p/(1 − p); each label has weight 1 on itself.
    """
    conditional = together / np.maximum(positives, 1)[:, None]
    np.fill_diagonal(conditional, 0.0)
    edges = conditional >= tau
    return edges * (p / (1 - p)) / (edges.sum(0) + 1e-6) + np.eye(len(edges))


def propagation(graph: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """M = D^−½ Aᵀ D^−½ with D the row sums of A: a label collects from labels that imply it."""
    scale = graph.sum(1) ** -0.5
    return scale[:, None] * graph.T * scale[None, :]


def _columns(rows: int, columns: int) -> nn.Parameter:
    """A weight [rows, columns] from U(±1/sqrt(columns)), as the authors' graph layers start."""
    bound = 1 / math.sqrt(columns)
    return nn.Parameter(torch.empty(rows, columns).uniform_(-bound, bound))
