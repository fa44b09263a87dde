"""Networks of one cell, trained side by side: same initialisation, dropout masks and row order.

Rules differ in the loss weights of (row, label) pairs alone. As long as a rule weighs nothing, its
network is that of Random, so both are one; it gets a copy of its own when it starts.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy
from trim.cells import Batch, Cell

from d2ace.evaluation import (
    macro_auc,
    macro_f1_tuned,
    mean_average_precision,
    ranking_loss,
    tune_thresholds,
)

HIDDEN, DROPOUT = 256, 0.5


@dataclass
class Epoch:
    """What is known of a network after an epoch; losses are means over rows."""

    train: float
    """Over the batches as they were trained, with dropout and without weights."""
    validation: Tensor
    """Of every label [q]."""
    macro_auc: float


class Rule(Protocol):
    """What one network does with its batches."""

    name: str

    def start(self, epoch: int, network: Network) -> Hashable | None:
        """What names its network in this epoch; None as long as it weighs nothing."""

    def draw(self, rows: list[int]) -> None:
        """Receive the batch that is trained next."""

    def weights(self, rows: Tensor, network: Network) -> Tensor:
        """Loss weights [b, q], asked once :meth:`start` gave a name."""

    def observe(self, rows: Tensor, logits: Tensor) -> None: ...

    def validated(self, epoch: Epoch) -> None: ...


@dataclass
class Network:
    """Weights, optimiser, and everything a rule may look at."""

    parameters: list[Tensor]
    optimiser: Any
    residuals: Tensor
    """Sum over visits of |p - y| [n, q]."""
    labels: Tensor
    history: list[Epoch] = field(default_factory=list)
    best: tuple[float, int, list[Tensor]] = (-math.inf, 0, [])
    notes: dict[Any, Any] = field(default_factory=dict)
    """Of the rule that trains it."""

    @classmethod
    def new(cls, cell: Cell, seed: int, rate: float) -> Network:
        random = torch.Generator().manual_seed(seed)
        d, (n, q) = cell.train.X.shape[1], cell.train.Y.shape
        drawn = [
            (2 * torch.rand(shape, generator=random) - 1) / math.sqrt(fan)
            for shape, fan in (
                ((d, HIDDEN), d),
                ((HIDDEN,), d),
                ((HIDDEN, q), HIDDEN),
                ((q,), HIDDEN),
            )
        ]
        parameters = [value.requires_grad_() for value in drawn]
        optimiser = torch.optim.Adam(parameters, lr=rate, fused=True)
        return cls(parameters, optimiser, torch.zeros(n, q), torch.from_numpy(cell.train.Y))

    def fork(self) -> Network:
        parameters = [value.detach().clone().requires_grad_() for value in self.parameters]
        optimiser = torch.optim.Adam(
            parameters, lr=self.optimiser.param_groups[0]["lr"], fused=True
        )
        optimiser.load_state_dict(copy.deepcopy(self.optimiser.state_dict()))
        return Network(
            parameters,
            optimiser,
            self.residuals.clone(),
            self.labels,
            list(self.history),
            self.best,
        )

    @property
    def scores(self) -> Tensor:
        """Mean |p - y| over visits [n, q]; every row is visited once an epoch."""
        return self.residuals / max(1, len(self.history))

    def step(
        self, batch: Batch, rows: Tensor, mask: Tensor, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Train a batch; its logits, and the loss without weights."""
        W, b, V, c = self.parameters
        logits = ((batch.times(W) + b).relu() * mask) @ V + c
        targets = self.labels[rows]
        losses = cross_entropy(logits, targets, reduction="none")
        loss = losses.mean()
        self.optimiser.zero_grad()
        (loss if weights is None else (losses * weights).mean()).backward()
        self.optimiser.step()
        seen = logits.detach()
        self.residuals[rows] += (seen.sigmoid() - targets).abs()
        return seen, loss.detach()

    @torch.no_grad()
    def predict(self, X: Any, parameters: Sequence[Tensor] | None = None) -> Tensor:
        """Probabilities [n, q]."""
        W, b, V, c = parameters or self.parameters
        return ((X.take(slice(None)).times(W) + b).relu() @ V + c).sigmoid()

    def validate(self, cell: Cell, train_loss: float) -> None:
        scores = self.predict(cell.validation.X)
        targets = torch.from_numpy(cell.validation.Y)
        p = scores.clamp(1e-7, 1 - 1e-7)
        losses = -(targets * p.log() + (1 - targets) * (1 - p).log()).mean(0)
        auc = macro_auc(cell.validation.Y, scores.numpy())
        self.history.append(Epoch(train_loss, losses, auc))
        if auc > self.best[0]:
            kept = [value.detach().clone() for value in self.parameters]
            self.best = (auc, len(self.history), kept)

    def tested(self, cell: Cell, at: tuple[int, list[Tensor]] | None = None) -> dict[str, float]:
        """Test scores of the weights with the best validation Macro-AUC, or of an epoch's."""
        epoch, kept = at or self.best[1:]
        thresholds = tune_thresholds(
            cell.validation.Y, self.predict(cell.validation.X, kept).numpy()
        )
        Y, scores = cell.test.Y, self.predict(cell.test.X, kept).numpy()
        return {
            "macro_auc": macro_auc(Y, scores),
            "map": mean_average_precision(Y, scores),
            "macro_f1_tuned": macro_f1_tuned(Y, scores, thresholds=thresholds),
            "ranking_loss": ranking_loss(Y, scores),
            "best_epoch": epoch,
        }


def batch_size(n: int) -> int:
    """Of n training rows: small sets need more steps an epoch."""
    return 32 if n < 3000 else 128


def shuffles(n: int, seed: int, epoch: int, *, size: int = 0) -> list[list[int]]:
    """Batches of a plain shuffle."""
    order = np.random.default_rng([seed, epoch]).permutation(n).tolist()
    size = size or batch_size(n)
    return [order[start : start + size] for start in range(0, n, size)]


def train(
    cell: Cell, rules: Iterable[Rule], *, seed: int, rate: float, epochs: int, batches: Any
) -> dict[str, tuple[Network, int]]:
    """Each rule's trained network, and the epoch in which the rule started (0: never).

    ``batches(epoch)`` gives lists of rows. The network under the name "random" weighs nothing.
    """
    networks: dict[Hashable, Network] = {None: Network.new(cell, seed, rate)}
    mine: dict[str, Hashable] = {}
    started: dict[str, int] = {}
    rules = list(rules)
    for epoch in range(1, epochs + 1):
        for rule in rules:
            key = rule.start(epoch, networks[mine.get(rule.name)])
            if key is not None and rule.name not in mine:
                if key not in networks:
                    networks[key] = networks[None].fork()
                mine[rule.name], started[rule.name] = key, epoch
        leaders = {mine[rule.name]: rule for rule in rules if rule.name in mine}
        sums = dict.fromkeys(networks, 0.0)
        masks = torch.Generator().manual_seed(1_000_003 * (seed + 1) + epoch)
        for rows_list in batches(epoch):
            rows = torch.tensor(rows_list)
            for rule in rules:
                rule.draw(rows_list)
            batch = cell.train.X.take(rows_list)
            kept = torch.rand(len(rows_list), HIDDEN, generator=masks) >= DROPOUT
            mask = kept.float() / (1 - DROPOUT)
            seen = {}
            for key, network in networks.items():
                weights = leaders[key].weights(rows, network) if key in leaders else None
                seen[key], loss = network.step(batch, rows, mask, weights)
                sums[key] += float(loss) * len(rows_list)
            for rule in rules:
                rule.observe(rows, seen[mine.get(rule.name)])
        for key, network in networks.items():
            network.validate(cell, sums[key] / len(cell.train.Y))
        for rule in rules:
            rule.validated(networks[mine.get(rule.name)].history[-1])
    found = {"random": (networks[None], 0)}
    return found | {
        rule.name: (networks[mine.get(rule.name)], started.get(rule.name, 0)) for rule in rules
    }
