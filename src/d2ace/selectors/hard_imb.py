"""Hard-Imb: prefer instances with a high loss, more so around locally rare labels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from d2ace._util import validation as inputs

from . import probability
from .history import Memory
from .labels import imbalance_ratio, local_imbalance
from .neighbors import is_number, named_neighbors, nearest, neighbor_index
from .reference import QuantisedOptions, QuantisedSelector
from .scores import cross_entropy

if TYPE_CHECKING:
    from typing_extensions import Unpack


class HardImb(QuantisedSelector):
    """Last instance loss times a static weight of local imbalance.

    ``preset="reference"`` keeps a table of s^(index/n) at constant pressure 8, whose entries are
    renewed only for rows just trained, relative to the largest loss at that moment; warm-up 3.

    Parameters
    ----------
    neighbors : int or index array [n, K]
        K nearest neighbours by ``features``, or ready ones.
    pressure : float, optional
        s0.
    """

    name: ClassVar[str] = "hard_imb"
    reference_pressure: ClassVar[float] = 8.0
    full_reference_batches: ClassVar[bool] = True

    def __init__(
        self,
        labels: inputs.Labels,
        features: inputs.Features = None,
        *,
        neighbors: int | Any = 5,
        **common: Unpack[QuantisedOptions],
    ) -> None:
        if common.get("preset") == "reference":
            common.setdefault("warmup", 3)
        super().__init__(labels, features, **common)
        if not is_number(neighbors):
            around = neighbor_index(neighbors, self.n)
        else:
            k = inputs.whole_number("neighbors", neighbors, 0)
            none = torch.empty(self.n, 0, dtype=torch.int64)
            around = none if self.features is None else nearest(self.features, k)
        self.neighbors = named_neighbors(neighbors)
        self.features = None  # they have served to find neighbours
        self._imbalance = torch.from_numpy(local_imbalance(self.labels, around))

    def reference_schedule(self, epoch: int) -> float:
        return self.pressure

    def make_memory(self) -> Memory:
        loss = self.q * math.log(2.0)  # of a prediction never made
        return Memory(
            loss=torch.full((self.n,), loss, dtype=torch.float64),
            table=torch.ones(self.n, dtype=torch.float64),
        )

    def update(self, index: Tensor, probs: Tensor) -> None:
        loss = cross_entropy(probs, self.labels_at(index)).sum(dim=1, dtype=torch.float64)
        self.memory.loss.index_copy_(0, index, loss)
        if self.preset == "reference":
            weights = self.instance_weights()["hardness"]
            share = weights.index_select(0, index) / weights.amax().clamp_min(1e-300)
            steps = torch.ceil(self.n * share - probability.GUARD).clamp_(0, self.n) / self.n
            self.memory.table.index_copy_(0, index, self.pressure**steps)

    def instance_weights(self) -> dict[str, Tensor]:
        scale = self.q if self.preset == "reference" else 1
        self._imbalance = self._imbalance.to(self._home)
        hardness = self._imbalance * self.memory.loss / scale
        return {"hardness": probability.level(hardness, self.dtype)}

    def label_importance(self) -> dict[str, Tensor]:
        """IR_j; 0 for a label without positives."""
        ratio = torch.from_numpy(np.nan_to_num(imbalance_ratio(self.labels), nan=0.0))
        return {"imbalance": ratio.to(self._home)}

    def distribution(self, epoch: int) -> Tensor:
        if self.preset == "reference" and epoch <= self.epochs:
            return self.memory.table / self.memory.table.sum()
        return super().distribution(epoch)
