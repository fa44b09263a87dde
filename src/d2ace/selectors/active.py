"""Active: prefer instances whose predictions varied most over the whole training so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from d2ace._util import validation as inputs
from d2ace.selectors._engine.options import CommonOptions

from . import reference
from .base import Selector
from .history import PredictionMoments
from .probability import level

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Active(Selector):
    """Variance of all predictions plus its confidence term, summed over labels.

    Parameters
    ----------
    ddof : 0 or 1
        The variance over c visits divides by c - ddof.
    pressure : float, optional
        s0; 100, or 10 with ``preset="reference"``.
    """

    name: ClassVar[str] = "active"
    title: ClassVar[str] = "Active"
    reference = reference.NOTEBOOK
    uses_features: ClassVar[bool] = False
    merges_updates: ClassVar[bool] = True

    def __init__(
        self,
        labels: inputs.Labels,
        features: inputs.Features = None,
        *,
        ddof: int = 1,
        pressure: float | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(labels, features, **common)
        self.pressure = self.start_pressure(pressure)
        self.ddof = inputs.whole_number("ddof", ddof, 0)
        if self.ddof > 1:
            raise ValueError(f"ddof must be 0 or 1, got {ddof}.")

    @property
    def shardable(self) -> bool:
        return True

    def make_memory(self) -> PredictionMoments:
        return PredictionMoments(self.kept.count, self.q, self.dtype)

    def update(self, index: Tensor, probs: Tensor) -> None:
        self.memory.update(index, probs)

    def instance_weights(self) -> dict[str, Tensor]:
        visits = self.memory.visits.unsqueeze(1)
        others = (visits - 1).clamp_min(1)
        variance = self.memory.squares / (visits - self.ddof).clamp_min(1).to(self.dtype)
        score = torch.addcdiv(variance, variance.square(), others.to(variance.dtype)).sqrt_()
        score *= visits > 1  # one prediction has no variance
        weights = self.kept.whole(score.sum(dim=1, dtype=torch.float64))
        return {"variance": level(weights, self.dtype)}
