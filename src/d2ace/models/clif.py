"""CLIF: label embeddings from a label graph gate the features each label looks at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from d2ace._util import validation as inputs

from .base import ModelOutput, MultiLabelModel
from .gated import gated_logits
from .layers import FeedForward, LabelwiseLinear, batch_mean

SLOPE = 0.1
"""Of every LeakyReLU in the model."""
GATES: dict[str, type[nn.Module]] = {"sigmoid": nn.Sigmoid, "linear": nn.Identity}

_PAPER = {
    "h": 512,
    "e": 128,
    "L": 3,
    "p": 0.2,
    "lam": 1e-3,
    "graph": "cooccurrence",
    "gate": "sigmoid",
}


class CLIF(MultiLabelModel):
    """Collaborative learning of label semantics and deep label-specific features.

    Two graph layers turn fixed random codes E0 of the labels into embeddings E that follow the
    label graph A; a gate g_j made from E_j selects features for label j; all labels share one
    layer behind the gate and have a linear classifier each. Hang and Zhang, TPAMI 44(12), 2021.

    Parameters
    ----------
    n_features, Y_train, preset
        As for every model, see :class:`~d2ace.models.MultiLabelModel`.
    h : int
        Feature width (512; reference: 768).
    e : int
        Width of the label embeddings (128; reference: q).
    L : int
        Layers of the feature encoder (3). A single layer has no dropout.
    p : float
        Dropout in the label encoder and the feature encoder (0.2).
    lam : float
        λ, the weight of the graph loss (1e-3).
    graph : "cooccurrence" or "identity"
        A from symmetrised conditional probabilities of the training labels, or A = I (reference).
    gate : "sigmoid" or "linear"
        How gate values are made from embeddings (reference: linear).
    """

    name: ClassVar[str] = "clif"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": _PAPER,
        "reference": {**_PAPER, "h": 768, "e": "q", "graph": "identity", "gate": "linear"},
    }

    E0: Tensor
    A: Tensor

    def __init__(
        self,
        n_features: int,
        Y_train: inputs.Labels,
        *,
        preset: str = "paper",
        h: int | None = None,
        e: int | None = None,
        L: int | None = None,
        p: float | None = None,
        lam: float | None = None,
        graph: str | None = None,
        gate: str | None = None,
    ) -> None:
        given = {"h": h, "e": e, "L": L, "p": p, "lam": lam, "graph": graph, "gate": gate}
        super().__init__(n_features, Y_train, preset, given)
        q = self.n_labels
        if self.hparams["e"] == "q":
            self.hparams["e"] = q
        width = inputs.whole_number("h", self.hparams["h"], 1)
        embedding = inputs.whole_number("e", self.hparams["e"], 1)
        depth = inputs.whole_number("L", self.hparams["L"], 1)
        dropout = inputs.real_number("p", self.hparams["p"], 0, 1)
        self.lam = inputs.real_number("lam", self.hparams["lam"], 0)
        kind = inputs.choice("graph", self.hparams["graph"], ("cooccurrence", "identity"))
        self.gate_act = GATES[inputs.choice("gate", self.hparams["gate"], tuple(GATES))]()

        self.register_buffer("E0", torch.randn(q, q))
        self.register_buffer("A", torch.eye(q) if kind == "identity" else label_graph(Y_train))
        self.label_encoder = nn.ModuleList(
            GINLayer(fan_in, embedding, dropout, norm=q > 1) for fan_in in (q, embedding)
        )
        self.encoder = FeedForward(
            [self.n_features, *[width] * depth], slope=SLOPE, dropout=dropout if depth > 1 else 0.0
        )
        self.gate = nn.Linear(embedding, width)
        bound = math.sqrt(3 / embedding)
        nn.init.uniform_(self.gate.weight, -bound, bound)
        nn.init.zeros_(self.gate.bias)
        self.specific = FeedForward([width, width], slope=SLOPE)
        self.classifier = LabelwiseLinear(q, width)

    def forward(self, x: Tensor) -> ModelOutput:
        """Logits of instances x [B, d]: s_bj = v_j · act(W_o (f_b ⊙ g_j) + b_o) + c_j."""
        self.check_features(x)
        embeddings, gates = self.once(self.encode_labels)
        features = self.encoder(x)
        specific = cast(nn.Linear, self.specific.layers[0])
        logits = gated_logits(
            features, gates, specific.weight, specific.bias, self.classifier.weight, SLOPE
        )
        return ModelOutput(logits + self.classifier.bias, {"label_embeddings": embeddings})

    def terms(
        self, output: ModelOutput, y: Tensor, pairs: Tensor, weight: Tensor | None
    ) -> dict[str, Tensor]:
        """Mean cross-entropy and, in training, λ times the graph loss."""
        terms = {"classification": batch_mean(pairs.mean(1), weight)}
        if self.training:
            terms["graph"] = self.lam * graph_loss(self.A, output.aux["label_embeddings"])
        return terms

    # The label side, which does not depend on the instances ---------------------------------

    def encode_labels(self) -> tuple[Tensor, Tensor]:
        """Embeddings E [q, e] and gates g [q, h], in full precision also under autocast."""
        with torch.autocast(self.E0.device.type, enabled=False):
            embeddings = self.E0
            for layer in self.label_encoder:
                embeddings = layer(embeddings, self.A)
            return embeddings, self.gate_act(self.gate(embeddings))


class GINLayer(nn.Module):
    """H' = MLP((1 + ε) H + A H) [+ H where the widths are equal], over the q label nodes."""

    def __init__(self, fan_in: int, width: int, dropout: float, *, norm: bool) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = FeedForward(
            [fan_in, -(-width // 2), width], slope=SLOPE, dropout=dropout, norm=norm
        )
        self.residual = fan_in == width

    def forward(self, nodes: Tensor, graph: Tensor) -> Tensor:
        """New vectors [q, width] of the nodes [q, fan_in]."""
        hidden = self.mlp((1 + self.eps) * nodes + graph @ nodes)
        return hidden + nodes if self.residual else hidden


def label_graph(Y_train: inputs.Labels) -> Tensor:
    """A = (P + Pᵀ)/2 with P_ij = C_ij / n_i for i ≠ j, C = YᵀY; zero for labels never seen."""
    labels = inputs.label_matrix(Y_train).astype(np.float64)
    together = (labels.T @ labels).toarray()
    conditional = together / np.maximum(together.diagonal(), 1e-6)[:, None]
    np.fill_diagonal(conditional, 0.0)
    graph = (conditional + conditional.T) / 2
    return torch.from_numpy(np.ascontiguousarray(graph)).to(torch.get_default_dtype())


def graph_loss(graph: Tensor, embeddings: Tensor) -> Tensor:
    """Mean over all pairs (i, j) of (A_ij + 1[i = j] − cos(E_i, E_j))²."""
    unit = embeddings / (torch.linalg.vector_norm(embeddings, dim=1, keepdim=True) + 1e-6)
    target = graph + torch.eye(len(graph), dtype=graph.dtype, device=graph.device)
    return F.mse_loss(unit @ unit.T, target)
