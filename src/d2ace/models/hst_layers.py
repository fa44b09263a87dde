"""The parts of HST: attention per label, messages along the label graph, the head of pairs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers import LabelwiseLinear, over_labels

GRAPH_STEPS = 3


class Decoupling(nn.Module):
    """Attention of every label over the positions of the map: F = att X."""

    def __init__(self, width: int, vector_width: int) -> None:
        super().__init__()
        inner = width // 2
        self.of_image = nn.Linear(width, inner, bias=False)
        self.of_label = nn.Linear(vector_width, inner, bias=False)
        self.mix = nn.Linear(inner, inner)
        self.score = nn.Linear(inner, 1)

    def forward(self, X: Tensor, Z: Tensor) -> Tensor:
        """F [B, q, h] of positions X [B, S, h] and label vectors Z [q, width]."""
        image, labels = self.of_image(X), self.of_label(Z)
        # Two linear maps in a row are one; its constant cancels in the softmax over positions.
        weight = (self.score.weight @ self.mix.weight)[0]
        constant = self.score(self.mix.bias)

        def scores(chunk: slice) -> Tensor:
            joint = torch.tanh(image[:, None] * labels[chunk, None])
            return joint @ weight.to(joint.dtype) + constant.to(joint.dtype)

        eta = over_labels(scores, len(Z), image.numel())
        return torch.softmax(eta, 2).to(X.dtype) @ X


class GatedGraph(nn.Module):
    """Three rounds of messages between label vectors along G, through gates that all share."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.update, self.reset, self.candidate = (Gate(width) for _ in range(3))

    def forward(self, nodes: Tensor, G: Tensor) -> Tensor:
        """V_3 [B, q, h] of V_0 = nodes."""
        for _ in range(GRAPH_STEPS):
            message = torch.cat([G @ nodes, G.T @ nodes], 2)
            update = torch.sigmoid(self.update(message, nodes))
            reset = torch.sigmoid(self.reset(message, nodes))
            candidate = torch.tanh(self.candidate(message, reset * nodes))
            nodes = (1 - update) * nodes + update * candidate
        return nodes


class Gate(nn.Module):
    """A linear map of the message [B, q, 2h] plus one of the node [B, q, h]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message = nn.Linear(2 * width, width)
        self.node = nn.Linear(width, width)

    def forward(self, message: Tensor, node: Tensor) -> Tensor:
        """Before any activation [B, q, h]."""
        return self.message(message) + self.node(node)


class PairHead(nn.Module):
    """Logits of label pairs (i < j, row by row): do both occur in the image?"""

    def __init__(self, n_labels: int, width: int) -> None:
        super().__init__()
        self.reduce = nn.Linear(width, width // 2)
        self.join = nn.Linear(width, width)
        self.mix = nn.Linear(width, width)
        self.classifier = LabelwiseLinear(n_labels * (n_labels - 1) // 2, width)

    def forward(self, semantic: Tensor, pairs: Tensor) -> Tensor:
        """Logits [B, P] of pairs [2, P], from label vectors F [B, q, h]."""
        reduced = self.reduce(semantic)
        # A linear map of [F'_i ; F'_j] is one of F'_i plus one of F'_j, computed once per label.
        left, right = self.join.weight.chunk(2, 1)
        first, second = F.linear(reduced, left), F.linear(reduced, right, self.join.bias)
        # The last map and a pair's classifier are linear in a row: one vector per pair.
        weight = F.linear(self.classifier.weight, self.mix.weight.T)
        constant = F.linear(self.classifier.weight, self.mix.bias[None])[:, 0]
        constant = constant + self.classifier.bias

        def logits(chunk: slice) -> Tensor:
            joint = first.index_select(1, pairs[0, chunk]) + second.index_select(1, pairs[1, chunk])
            vectors = weight[chunk].to(joint.dtype)
            return torch.einsum("bph,ph->bp", F.relu_(joint), vectors) + constant[chunk]

        if not len(weight):  # a single label has no pairs
            return logits(slice(None))
        return over_labels(logits, len(weight), len(semantic) * weight.shape[1])
