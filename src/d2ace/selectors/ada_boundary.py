"""Ada-Boundary: prefer instances whose predictions are close to the decision boundary."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from d2ace._util import validation as inputs
from d2ace.selectors._engine.options import CommonOptions

from . import probability
from .base import Selector
from .history import Memory

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AdaBoundary(Selector):
    """Distance |p - 1/2| of the last prediction, summed over labels: the closer, the likelier.

    Parameters
    ----------
    pressure : float, optional
        s0: how much likelier a row on the boundary is than a row as far from it as possible; 100.
    """

    name: ClassVar[str] = "ada_boundary"
    title: ClassVar[str] = "Ada-Boundary"
    uses_features: ClassVar[bool] = False
    merges_updates: ClassVar[bool] = True

    def __init__(
        self,
        labels: inputs.Labels,
        features: inputs.Features = None,
        *,
        pressure: float | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(labels, features, **common)
        self.pressure = self.start_pressure(pressure)

    @property
    def shardable(self) -> bool:
        return True

    def make_memory(self) -> Memory:
        return Memory(distance=torch.zeros(self.kept.count, dtype=torch.float64))

    def update(self, index: Tensor, probs: Tensor) -> None:
        # the standard deviation of the outcomes p and 1 - p: the original's distance
        distance = (probs - 0.5).abs_().sum(dim=1, dtype=torch.float64)
        self.memory.distance.index_copy_(0, index, distance)

    def instance_weights(self) -> dict[str, Tensor]:
        """1 on the boundary of every label, 0 where all predictions are 0 or 1."""
        return {"closeness": 1.0 - self.kept.whole(self.memory.distance) / (self.q / 2)}

    def distribution(self, epoch: int) -> Tensor:
        steps = probability.steps_below_one(self.instance_weights()["closeness"])
        return probability.quantised_probability(steps, self.selection_pressure(epoch))
