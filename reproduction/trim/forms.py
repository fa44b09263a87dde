"""Candidates and controls: when a rule starts (triggers), and what it weighs then (forms)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from trim.networks import Epoch, Network

SHARE, WEIGHT = 0.2, 0.25

History = list[Epoch]
Trigger = Callable[[History], bool]


# Triggers: asked before an epoch, of what happened up to then ----------------------------------


def _losses(history: History) -> Tensor:
    """Validation losses [epochs, q]."""
    return torch.stack([epoch.validation for epoch in history])


def _risen(values: Tensor, by: float) -> bool:
    return len(values) > 0 and bool(values[-1] > (1 + by) * values.min())


def rise(by: float) -> Trigger:
    """The mean validation loss is above its minimum by this share."""
    return lambda history: bool(history) and _risen(_losses(history).mean(1), by)


def smoothed(history: History) -> bool:
    """The exponential mean (1/2) of the mean validation loss is above its minimum."""
    if not history:
        return False
    values = _losses(history).mean(1)
    for t in range(1, len(values)):
        values[t] = (values[t] + values[t - 1]) / 2
    return _risen(values, 0.0)


def patient(history: History) -> bool:
    """The mean validation loss has had no new minimum for three epochs."""
    return len(history) > 3 and len(history) - 1 - int(_losses(history).mean(1).argmin()) >= 3


def half(history: History) -> bool:
    """At least half of the labels have a validation loss above their own minimum."""
    if not history:
        return False
    losses = _losses(history)
    return bool((losses[-1] > losses.amin(0)).float().mean() >= 0.5)


def fair(history: History) -> bool:
    """The mean over labels of loss, relative to that of the first epoch, has risen by 1 %.

    So frequent labels do not decide alone.
    """
    if not history:
        return False
    losses = _losses(history)
    return _risen((losses / losses[0].clamp_min(1e-9)).mean(1), 0.01)


def gap(history: History) -> bool:
    """The training loss has fallen below 0.9 of the mean validation loss."""
    return bool(history) and history[-1].train < 0.9 * float(history[-1].validation.mean())


def fall(by: float) -> Trigger:
    """Risen by 1 %, and the training loss is this share below that of the minimum's epoch."""

    def overfits(history: History) -> bool:
        if not rise(0.01)(history):
            return False
        least = history[int(_losses(history).mean(1).argmin())]
        return history[-1].train < (1 - by) * least.train

    return overfits


def risen_gap(share: float) -> Trigger:
    """Risen by 1 %, and the training loss is below this share of the validation loss."""

    def overfits(history: History) -> bool:
        last = history[-1:]
        return rise(0.01)(history) and last[0].train < share * float(last[0].validation.mean())

    return overfits


def score(history: History) -> bool:
    """Risen by 1 %, and the best Macro-AUC is old: a quarter of its epoch, at least three."""
    if not rise(0.01)(history):
        return False
    best = 1 + int(np.argmax([epoch.macro_auc for epoch in history]))
    return len(history) - best >= max(3, best / 4)


def epoch_four(history: History) -> bool:
    return len(history) >= 3


def any_label(history: History) -> bool:
    return bool(history) and bool(labels_turned(history).any())


def labels_turned(history: History) -> Tensor:
    """Labels [q] whose own loss was once above its minimum up to then by 1 %."""
    losses = _losses(history)
    return (losses > 1.01 * losses.cummin(0).values).any(0)


# Forms: pairs to weigh, from mean |p - y| over visits -------------------------------------------


def hardest(scores: Tensor, positive: Tensor, count: Tensor) -> Tensor:
    """Of every label, the ``count`` [q] hardest positives, and the hardest negatives whose summed
    score is at most that of these. A mask [n, q]."""
    order = np.argsort(-scores.numpy().T, axis=1)
    values = np.take_along_axis(scores.numpy().T, order, 1)
    given = np.take_along_axis(positive.numpy().T, order, 1)
    of_positives = given & (given.cumsum(1) <= count.numpy()[:, None])
    room = np.where(of_positives, values, 0).sum(1, dtype=np.float64)
    taken = np.where(given, 0, values).cumsum(1, dtype=np.float64)
    chosen = of_positives | (~given & (taken <= room[:, None]))
    mask = np.empty_like(chosen)
    np.put_along_axis(mask, order, chosen, 1)
    return torch.from_numpy(np.ascontiguousarray(mask.T))


def fifth(network: Network) -> Tensor:
    """A fifth of each label's positives, and negatives of the same summed score."""
    positive = network.labels > 0
    return hardest(network.scores, positive, (SHARE * positive.sum(0)).round())


def estimated(network: Network) -> Tensor:
    """As many positives as look wrong, by the rule of ``Insights`` with a compact state.

    Suspicion is the score minus half the mean of the same label and value; above 0.35 a pair looks
    wrong. The mean of the counts among positives and negatives is taken, at most 40 %.
    """
    positive = network.labels > 0
    scores, p = network.scores, positive.float()
    of_positives = (scores * p).sum(0) / p.sum(0).clamp_min(1)
    of_negatives = (scores * (1 - p)).sum(0) / (1 - p).sum(0).clamp_min(1)
    flagged = scores - torch.where(positive, of_positives, of_negatives) / 2 > 0.35
    count = (flagged.sum(0) / 2).round().minimum((0.4 * p.sum(0)).round())
    return hardest(scores, positive, count)


def turned(network: Network) -> Tensor:
    """A fifth, of labels whose own validation loss has turned."""
    return fifth(network) & labels_turned(network.history)


def at_random(network: Network) -> Tensor:
    """As many positives and negatives of each label as ``fifth`` has, drawn anew every epoch."""
    random = torch.Generator().manual_seed(len(network.history))
    positive, wanted = network.labels > 0, fifth(network)
    drawn = torch.rand(positive.shape, generator=random)
    chosen = torch.zeros_like(positive)
    for group in (positive, ~positive):
        count = (wanted & group).sum(0)
        rank = torch.where(group, drawn, 2.0).argsort(0).argsort(0)
        chosen |= group & (rank < count)
    return chosen


@dataclass
class Form:
    """A rule: a trigger, pairs, and their loss weight."""

    name: str
    trigger: Trigger
    pairs: Callable[[Network], Tensor] = fifth
    weight: float = WEIGHT
    key: Hashable = None

    def start(self, epoch: int, network: Network) -> Hashable | None:
        if self.key is None and self.trigger(network.history):
            self.key = (self.pairs.__name__, self.weight, epoch)
        return self.key

    def draw(self, rows: list[int]) -> None:
        """Batches are the same for all."""

    def weights(self, rows: Tensor, network: Network) -> Tensor:
        epoch = len(network.history)
        if network.notes.get("epoch") != epoch:
            all_weights = torch.where(self.pairs(network), self.weight, 1.0)
            network.notes.update(epoch=epoch, weights=all_weights)
        return network.notes["weights"][rows]

    def observe(self, rows: Tensor, logits: Tensor) -> None:
        """The network sums what a form needs."""

    def validated(self, epoch: Epoch) -> None:
        """The network's history has it."""


def candidates() -> list[Form]:
    return [
        Form("rise 1 %", rise(0.01)),
        Form("any rise", rise(0.0)),
        Form("smoothed rise", smoothed),
        Form("patient", patient),
        Form("half of labels", half),
        Form("labels alike", fair),
        Form("gap", gap),
        Form("each label", any_label, turned),
        Form("estimated share", rise(0.01), estimated),
        Form("weight 0.1", rise(0.01), weight=0.1),
    ]


def triggers() -> list[Form]:
    """Of the later study, in the order of its rules."""
    return [
        Form("rise 1 %", rise(0.01)),
        Form("rise 10 %", rise(0.1)),
        *(Form(f"fall {100 * by:.0f} %", fall(by)) for by in (0.05, 0.1, 0.2)),
        *(Form(f"gap {share}", risen_gap(share)) for share in (0.9, 0.8, 0.7)),
        Form("score", score),
    ]


def controls() -> list[Form]:
    return [
        Form("fixed start", epoch_four),
        Form("random pairs", rise(0.01), at_random),
        Form("weighted up", rise(0.01), weight=1.75),
    ]
