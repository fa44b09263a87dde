"""Recent: prefer instances whose recent binary predictions disagree with each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from d2ace._util import validation as inputs
from d2ace.selectors._engine.options import CommonOptions

from . import reference
from .base import Selector
from .history import BinaryHistory
from .scores import binary_entropy, row_blocks

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Recent(Selector):
    """Entropy of the last n_t binary predictions, summed over labels.

    Parameters
    ----------
    window : int
        n_t, 2 to 62.
    pressure : float, optional
        s0; 100, or 10 with ``preset="reference"``.
    """

    name: ClassVar[str] = "recent"
    title: ClassVar[str] = "Recent"
    reference = reference.NOTEBOOK
    uses_features: ClassVar[bool] = False
    merges_updates: ClassVar[bool] = True

    def __init__(
        self,
        labels: inputs.Labels,
        features: inputs.Features = None,
        *,
        window: int = 5,
        pressure: float | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(labels, features, **common)
        self.pressure = self.start_pressure(pressure)
        self.window = inputs.whole_number("window", window, 2)
        if self.window > 62:
            raise ValueError(f"window must be at most 62 (bits of one integer), got {window}.")

    @property
    def shardable(self) -> bool:
        return True

    def make_memory(self) -> BinaryHistory:
        return BinaryHistory(self.kept.count, self.q, window=self.window)

    def update(self, index: Tensor, probs: Tensor) -> None:
        self.memory.update(index, probs)

    def instance_weights(self) -> dict[str, Tensor]:
        # (number of bits, number of ones) decides the score: a small table instead of logarithms
        size = self.window + 1
        counts = torch.arange(size, dtype=torch.float64, device=self.memory.bits.device)
        table = binary_entropy((counts / counts.clamp_min(1).unsqueeze(1)).clamp_max(1.0))
        stored = self.memory.visits.clamp(max=self.window).unsqueeze(1)
        entropy = torch.empty(self.kept.count, dtype=torch.float64, device=counts.device)
        for rows in row_blocks(self.kept.count, self.q, counts.device):
            place = self.memory.ones(rows).to(torch.int64).add_(stored[rows] * size)
            torch.sum(table.view(-1)[place], dim=1, out=entropy[rows])
        return {"entropy": self.kept.whole(entropy)}
