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
from .scores import row_blocks

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
        memory, count = self.memory, self.kept.count
        visits = memory.visits.unsqueeze(1)
        divisor = (visits - self.ddof).clamp_min(1).to(self.dtype)
        others = (visits - 1).clamp_min(1).to(self.dtype)
        score = torch.empty(count, dtype=torch.float64, device=visits.device)
        room: Tensor | None = None
        for rows in row_blocks(count, self.q, visits.device):
            squares = memory.squares[rows]
            room = squares.new_empty(2, *squares.shape) if room is None else room
            variance, pairs = room[:, : len(squares)]
            torch.div(squares, divisor[rows], out=variance)
            torch.square(variance, out=pairs)
            torch.addcdiv(variance, pairs, others[rows], out=pairs).sqrt_()
            torch.sum(pairs, dim=1, dtype=torch.float64, out=score[rows])
        score *= memory.visits > 1  # one prediction has no variance
        return {"variance": level(self.kept.whole(score), self.dtype)}
