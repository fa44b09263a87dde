"""DIHCL: prefer instances whose loss or prediction keeps changing (dynamic instance hardness)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from d2ace._util import validation as inputs
from d2ace.selectors._engine.options import CommonOptions

from . import probability
from .base import Selector
from .history import LastPrediction, binary
from .scores import cross_entropy

if TYPE_CHECKING:
    from typing_extensions import Unpack

_FLOORS = {"mean": -50.0, "literal": -300.0}  # keep 1/P finite, in later updates too
_NO_HARDNESS = 1e-300


class DIHCL(Selector):
    """Moving average of changes between visits, per unit of learning rate and draw probability.

    Set :attr:`learning_rate` before each step where the rate varies. A constant rate cancels in
    r / mean(r) once the initial r = 1 has faded, so that its default of 1 does then as well.

    Parameters
    ----------
    metric : "dloss" or "flip"
        Change of the loss, or of the binary prediction, summed over labels.
    gamma : float
        Smoothing factor in [0, 1].
    gamma_on : "new" or "old"
        Whether gamma multiplies the new value (the paper's equation) or the past one.
    scale : "mean" or "literal"
        Softmax of r / mean(r), or of sqrt(2 ln n / n) r as printed.
    """

    name: ClassVar[str] = "dihcl"
    title: ClassVar[str] = "DIHCL"
    uses_features: ClassVar[bool] = False

    def __init__(
        self,
        labels: inputs.Labels,
        features: inputs.Features = None,
        *,
        metric: str = "dloss",
        gamma: float = 0.95,
        gamma_on: str = "new",
        scale: str = "mean",
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(labels, features, **common)
        if self.predictions == "full_pass":
            raise ValueError(
                "predictions='full_pass' is not possible for DIHCL, whose update needs the "
                "probability with which each row was drawn; use predictions='train'."
            )
        self.metric = inputs.choice("metric", metric, ("dloss", "flip"))
        self.gamma = inputs.real_number("gamma", gamma, 0.0, 1.0)
        self.gamma_on = inputs.choice("gamma_on", gamma_on, ("new", "old"))
        self.scale = inputs.choice("scale", scale, ("mean", "literal"))
        self._rate_sum = 0.0  # Lambda: learning rates of all steps so far

    def make_memory(self) -> LastPrediction:
        memory = LastPrediction(self.n, self.q, self.dtype)
        memory.register_buffer("hardness", torch.ones(self.n, dtype=torch.float64))
        memory.register_buffer("rate_sum", torch.zeros(self.n, dtype=torch.float64))
        return memory

    def update(self, index: Tensor, probs: Tensor) -> None:
        memory = self.memory
        last = memory.last.index_select(0, index)
        if self.metric == "flip":
            change = binary(probs) - binary(last)
        else:
            truth = self.labels_at(index)
            change = cross_entropy(probs, truth) - cross_entropy(last, truth)
        amount = change.abs_().sum(dim=1, dtype=torch.float64)
        rates = (self._rate_sum - memory.rate_sum[index]).clamp_min(1e-12)
        new = amount / rates / (self.n * self.drawn_probability(index))
        old = memory.hardness[index]
        share = self.gamma if self.gamma_on == "new" else 1.0 - self.gamma
        smoothed = torch.where(memory.visits[index] > 0, share * new + (1.0 - share) * old, old)
        memory.hardness.index_copy_(0, index, smoothed)
        memory.rate_sum.index_fill_(0, index, self._rate_sum)
        memory.update(index, probs)
        self._rate_sum += float(self.learning_rate)  # NumPy's and torch's numbers are welcome

    def instance_weights(self) -> dict[str, Tensor]:
        return {"hardness": self.memory.hardness}

    def distribution(self, epoch: int) -> Tensor:
        hardness = self.memory.hardness
        mean = hardness.mean()
        if float(mean) < _NO_HARDNESS:
            return probability.uniform(self.n, hardness.device)
        if self.scale == "literal":
            scaled = hardness * math.sqrt(2.0 * math.log(self.n) / self.n)
        else:
            scaled = hardness / mean
        return probability.softmax(scaled, floor=_FLOORS[self.scale])

    def extra_state(self) -> dict[str, float]:
        return {"rate_sum": self._rate_sum}

    def load_extra_state(self, state: dict[str, float]) -> None:
        self._rate_sum = float(state["rate_sum"])
