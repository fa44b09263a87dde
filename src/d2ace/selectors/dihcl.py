"""DIHCL: prefer instances whose loss or prediction keeps changing (dynamic instance hardness)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from d2ace._util import validation as inputs
from d2ace.selectors._engine.options import CommonOptions

from . import probability
from .base import Selector
from .episodes import episode_of, inverse_temperature, subset_size
from .history import LastPrediction, binary
from .scores import cross_entropy

if TYPE_CHECKING:
    from typing_extensions import Unpack

_FLOORS = {"mean": -50.0, "literal": -300.0}  # keep 1/P finite, in later updates too
_NO_HARDNESS = 1e-300
_LEAST_RATE = 1e-12
# Constants of the public code
_LARGEST_CHANGE = 10.0
_CHANGES, _PACE_POWER = 1e4, 0.01
_LEAST_CHANCE = 1e-8
_SMALL_RATE = 0.01  # the code is for rates near 0.1
_OUTWEIGHED = 100.0  # how many times a visit in the warm-up may weigh as much as a later one
_BY_EPISODE = "by episode"  # what stands for rows_per_epoch unless it is given


class DIHCL(Selector):
    """How much the loss or the decision of a row changes between its visits.

    ``preset="paper"`` averages changes per unit of learning rate and draw probability, and draws
    every batch anew. It visits very few rows; compare with ``preset="original"``, which follows
    the public code of DIHCL's authors: changes add up, and each epoch trains a subset of rows,
    each of them once. The subset shrinks and the softmax flattens from episode to episode.

    Set :attr:`learning_rate` before each step where the rate varies. A constant rate cancels in
    the r / mean(r) of ``"paper"`` once the initial r = 1 has faded, so that its default of 1 does
    then as well.

    Parameters
    ----------
    metric : "dloss", "flip" or "loss"
        Change of the loss or of the binary prediction since the last visit, or the loss itself,
        summed over labels.
    gamma : float, optional
        Factor of the moving average in [0, 1], 0.95; in ``"original"`` what is left of r at the
        start of an episode, 0.9.
    gamma_on : "new", "old" or "episode", optional
        Whether gamma multiplies the new value (the paper's equation) or the past one at a visit,
        or the past one at the start of an episode (``"original"``).
    scale : "mean" or "literal"
        Softmax of r / mean(r), or of sqrt(2 ln n / n) r as printed.
    pace : "rate" or "steps"
        Whether Lambda adds up the learning rates of steps, or counts steps. With ``"original"``
        and rates far below 0.1, count steps: the code's constants are absolute, and the scores
        would hardly change after the warm-up.
    """

    name: ClassVar[str] = "dihcl"
    title: ClassVar[str] = "DIHCL"
    uses_features: ClassVar[bool] = False
    presets: ClassVar[tuple[str, ...]] = ("paper", "reference", "original")
    compared: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"preset": "original", "pace": "steps"}  # runs train with Adam, at rates far below 0.1
    )

    def __init__(
        self,
        labels: inputs.Labels,
        features: inputs.Features = None,
        *,
        metric: str = "dloss",
        gamma: float | None = None,
        gamma_on: str | None = None,
        scale: str = "mean",
        pace: str = "rate",
        **common: Unpack[CommonOptions],
    ) -> None:
        original = common.get("preset") == "original"
        if original and common.get("draw") is None:
            common["draw"] = "once"
        super().__init__(labels, features, **common)
        if self.predictions == "full_pass":
            raise ValueError(
                "predictions='full_pass' is not possible for DIHCL, whose update needs the "
                "probability with which each row was drawn; use predictions='train'."
            )
        self.metric = inputs.choice("metric", metric, ("dloss", "flip", "loss"))
        usual, usual_on = (0.9, "episode") if original else (0.95, "new")
        gamma_on = usual_on if gamma_on is None else gamma_on
        self.gamma_on = inputs.choice("gamma_on", gamma_on, ("new", "old", "episode"))
        least = 0.01 if gamma_on == "episode" else 0.0  # its powers divide
        self.gamma = inputs.real_number("gamma", usual if gamma is None else gamma, least, 1.0)
        self.scale = inputs.choice("scale", scale, ("mean", "literal"))
        self.pace = inputs.choice("pace", pace, ("rate", "steps"))
        if original and "rows_per_epoch" not in common:
            self.row_schedule = replace(self.row_schedule, given=_BY_EPISODE)
        self._rate_sum = 0.0  # Lambda: learning rates of all steps so far, or their number
        self._dated_epoch, self._epoch_start = 0, 0.0  # the epoch of the last step; its Lambda

    @property
    def is_original(self) -> bool:
        """Whether the method follows the public code of DIHCL's own authors."""
        return self.preset == "original"

    def episode_at(self, epoch: int) -> int:
        """The episode of an epoch: 0 in warm-up, then 1 to 10."""
        return episode_of(epoch, self.warmup, self.epochs)

    def make_memory(self) -> LastPrediction:
        memory = LastPrediction(self.n, self.q, self.dtype)
        start = 0.0 if self.is_original else 1.0
        memory.register_buffer("hardness", torch.full((self.n,), start, dtype=torch.float64))
        memory.register_buffer("rate_sum", torch.zeros(self.n, dtype=torch.float64))
        return memory

    def update(self, index: Tensor, probs: Tensor) -> None:
        memory, now = self.memory, self._clock()
        spent = now - memory.rate_sum.index_select(0, index)  # quicker than [index]
        new = self._scaled(self._feedback(index, probs), spent, index)
        old = memory.hardness.index_select(0, index)
        if self.gamma_on == "episode":
            # r <- gamma r at the start of an episode, for all rows, is r / gamma^episode here
            renewed = old + new / self.gamma ** self.episode_at(self.drawn_epoch)
        else:
            share = self.gamma if self.gamma_on == "new" else 1.0 - self.gamma
            renewed = share * new + (1.0 - share) * old
        counts = memory.visits.index_select(0, index) > 0
        if self.is_original:
            counts &= spent > 0
        memory.hardness.index_copy_(0, index, torch.where(counts, renewed, old))
        memory.rate_sum.index_fill_(0, index, now)
        memory.update(index, probs)
        self._rate_sum += self._rate()

    def _rate(self) -> float:
        """What a step adds to Lambda."""
        if self.pace == "steps":
            return 1.0
        return float(self.learning_rate)  # NumPy's and torch's numbers are welcome

    def _clock(self) -> float:
        """Lambda by which a visit is dated: of its step or, in the public code, of its epoch."""
        if not self.is_original:
            return self._rate_sum
        if self._dated_epoch != self.drawn_epoch:
            self._dated_epoch, self._epoch_start = self.drawn_epoch, self._rate_sum
        return self._epoch_start

    def _feedback(self, index: Tensor, probs: Tensor) -> Tensor:
        """a_i: how much a row has moved since its last visit, or its loss."""
        last = self.memory.last.index_select(0, index)
        if self.metric == "flip":
            pairs = (binary(probs) - binary(last)).abs_()
        else:
            truth = self.labels_at(index)
            pairs = cross_entropy(probs, truth)
            if self.metric == "dloss":
                pairs = (pairs - cross_entropy(last, truth)).abs_()
                if self.is_original:
                    pairs = pairs.clamp_max_(_LARGEST_CHANGE)
        return pairs.sum(dim=1, dtype=torch.float64)

    def _scaled(self, amount: Tensor, spent: Tensor, index: Tensor) -> Tensor:
        """a_i per learning rate spent, and by how likely the row was to be drawn."""
        chance = self.drawn_probability(index)
        spent = spent.clamp_min(_LEAST_RATE)
        if self.is_original and self.selects(self.drawn_epoch):
            chance = chance + _LEAST_CHANCE
            if self.metric == "loss":
                return amount / chance
            return amount / (_CHANGES * spent**_PACE_POWER * chance)
        if self.metric == "loss":  # no change since the last visit: the rate of this step
            return amount / max(self._rate(), _LEAST_RATE) / (self.n * chance)
        return amount / spent / (self.n * chance)

    @property
    def warning(self) -> str | None:
        if not self.is_original or not self.warmup or not self._rate_sum > 0:
            return None
        pace = self._rate_sum / self.warmup  # of an epoch
        rate = pace / math.ceil(self.n / self.batch_size)
        if self.metric == "loss":
            ratio = 1.0 / (rate * self.n)  # to a later visit of a row with P = 1/n
        else:
            ratio = _CHANGES * pace**_PACE_POWER / (pace * self.n)
        if rate >= _SMALL_RATE or ratio <= _OUTWEIGHED:  # at larger ones steps count as little
            return None
        return (
            f"A visit in the warm-up of DIHCL weighs {ratio:,.0f} times as much as a later one, "
            f"because learning rates add up to {pace:.2g} an epoch, so probabilities will hardly "
            'change: pass pace="steps" to count steps instead.'
        )

    def instance_weights(self) -> dict[str, Tensor]:
        return {"hardness": self.memory.hardness}

    def distribution(self, epoch: int) -> Tensor:
        hardness = self.memory.hardness
        mean = hardness.mean()
        if float(mean) < _NO_HARDNESS:
            return probability.uniform(self.n, hardness.device)
        episode = self.episode_at(epoch)
        if self.scale == "literal":
            scaled = hardness * math.sqrt(2.0 * math.log(self.n) / self.n)
            if self.gamma_on == "episode":
                scaled = scaled * self.gamma**episode
        else:
            scaled = hardness / mean
            if self.is_original:
                scaled = scaled * inverse_temperature(episode)
        return probability.softmax(scaled, floor=_FLOORS[self.scale])

    def epoch_rows(self, epoch: int) -> int:
        if self.row_schedule.given == _BY_EPISODE:
            return subset_size(self.n, self.episode_at(epoch))
        return super().epoch_rows(epoch)

    def most_rows(self, epoch: int) -> int:
        return self.epoch_rows(epoch)  # by the number of the epoch alone

    def extra_state(self) -> dict[str, float]:
        return {
            "rate_sum": self._rate_sum,
            "dated_epoch": self._dated_epoch,
            "epoch_start": self._epoch_start,
        }

    def load_extra_state(self, state: dict[str, float]) -> None:
        self._rate_sum = float(state["rate_sum"])
        self._dated_epoch = int(state["dated_epoch"])
        self._epoch_start = float(state["epoch_start"])
