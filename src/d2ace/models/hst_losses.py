"""The losses HST adds to the cross-entropy: of label pairs, image pairs, prototypes, margins."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

TINY = 1e-9
"""The least length of a vector that has a direction."""


def unit(vectors: Tensor) -> Tensor:
    """Vectors of length 1 along the last axis; a zero vector stays zero and gets no gradient."""
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return torch.where(length > TINY, vectors / length.clamp_min(TINY), 0.0)


def cooccurrence_loss(cooc: Tensor, together: Tensor) -> Tensor:
    """L_co of each image [B]: the asymmetric loss of its pairs' logits [B, P], averaged.

    ``together`` τ [B, P] is 1 where both labels are present. With s = σ(cooc) and π = s for τ = 1,
    min(1 − s + 0.05, 1) otherwise, a pair costs −log π (1 − π)^γ, γ = 1 for τ = 1, else 2. The
    gradient flows through the power too.
    """
    s = torch.sigmoid(cooc)
    present = together > 0.5
    right = torch.where(present, s, (1.05 - s).clamp_max(1.0))
    wrong = 1 - right
    losses = -right.clamp_min(1e-8).log() * torch.where(present, wrong, wrong * wrong)
    return losses.sum(1) / max(1, losses.shape[1])


def instance_loss(semantic: Tensor, y: Tensor) -> Tensor:
    """L_inst: what a label saw in two images is alike where both have it, and unlike otherwise.

    ``semantic`` F [B, q, h]. Every pair of images costs, for every label, 1 − κ where both are
    positive and 1 + κ otherwise, κ = cos(F_aj, F_bj). With k both-positive entries (k > 0), the
    mixed and the both-negative ones are each replaced by min(2k, size) random members and their
    min(k, size) largest. The mean over all that is left; 0 where nothing is (a single image).
    """
    directions = unit(semantic)
    first, second = torch.triu_indices(len(y), len(y), 1, device=y.device)
    cosines = torch.einsum("aqd,bqd->qab", directions, directions)[:, first, second].flatten()
    positives = (y[first] + y[second]).T.flatten()
    both, mixed, neither = (positives == number for number in (2, 1, 0))
    k = both.sum()
    weights = both.to(cosines) + _drawn(mixed, cosines, k) + _drawn(neither, cosines, k)
    losses = torch.where(both, 1 - cosines, 1 + cosines)
    return (weights * losses).sum() / weights.sum().clamp_min(1)


def _drawn(members: Tensor, losses: Tensor, k: Tensor) -> Tensor:
    """How often each entry counts: 2k random members and the k largest, or all for k = 0.

    Made of ranks, so that nothing is read back from an accelerator.
    """
    chance = torch.rand(losses.shape, device=losses.device).masked_fill(~members, -1.0)
    large = losses.detach().masked_fill(~members, -torch.inf)
    chosen = ((_rank(chance) < 2 * k).to(losses) + (_rank(large) < k).to(losses)) * members
    return torch.where(k > 0, chosen, members.to(losses))


def _rank(values: Tensor) -> Tensor:
    """The place of every value in descending order, from 0."""
    order = values.argsort(descending=True)
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))


def prototype_loss(semantic: Tensor, prototypes: Tensor, y: Tensor, sign: float = 1.0) -> Tensor:
    """L_proto of each image [B]: mean over labels of 1 − t mean_k cos(F_j, Π_jk), t = 2y − 1.

    ``prototypes`` π̄ [q, h] is the mean over k of Π_jk/|Π_jk|. ``sign=-1`` is the authors' code,
    which pushes positives away from their prototypes.
    """
    cosines = prototype_evidence(semantic, prototypes)
    return (1 - sign * (2 * y - 1) * cosines).mean(1)


# Evidence for a label beside its logit, from which the authors make pseudo-labels ------------


def pair_evidence(cooc: Tensor, y: Tensor, pairs: Tensor) -> Tensor:
    """[B, q]: the mean of σ(cooc_ij) over the labels j an image has; a label with itself is 1."""
    first, second = pairs
    s = torch.sigmoid(cooc)
    total = y.index_add(1, first, s * y[:, second]).index_add(1, second, s * y[:, first])
    return total / y.sum(1, keepdim=True).clamp_min(1)


def prototype_evidence(semantic: Tensor, prototypes: Tensor) -> Tensor:
    """[B, q]: mean_k cos(F_j, Π_jk), of F [B, q, h] and the mean directions π̄ [q, h]."""
    return torch.einsum("bqd,qd->bq", unit(semantic), prototypes)


def margin_loss(evidence: Tensor, theta: Tensor, y: Tensor) -> Tensor:
    """Of each image [B]: the mean cross-entropy of y, where evidence above θ is the logit.

    What is below θ is cut off at 0 and costs log 2, without a gradient.
    """
    logits = (evidence - theta).clamp(0, 1)
    return F.binary_cross_entropy_with_logits(logits, y, reduction="none").mean(1)
