"""Hard-Imb: prefer instances with a high loss, more so around locally rare labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from d2ace._util import validation as inputs
from d2ace.selectors._engine.options import CommonOptions

from . import probability, reference
from .base import Selector
from .history import LastLoss
from .labels import imbalance_ratio, local_imbalance
from .neighbors import asked_neighbors, named_neighbors
from .scores import row_loss

if TYPE_CHECKING:
    from typing_extensions import Unpack


class HardImb(Selector):
    """Last instance loss times a static weight of local imbalance.

    ``preset="reference"`` keeps a table of s^(index/n) at constant pressure 8, whose entries are
    renewed only for rows just trained, relative to the largest loss at that moment; warm-up 3.

    Parameters
    ----------
    neighbors : int or index array [n, K]
        K nearest neighbours by ``features``, or ready ones.
    neighbors_method : "auto", "exact", "tree" or "approximate"
        How they are found; see :func:`d2ace.selectors.neighbors.search`.
    pressure : float, optional
        s0.
    """

    name: ClassVar[str] = "hard_imb"
    title: ClassVar[str] = "Hard-Imb"
    reference = reference.HARD_IMB

    def __init__(
        self,
        labels: inputs.Labels,
        features: inputs.Features = None,
        *,
        neighbors: int | Any = 5,
        neighbors_method: str = "auto",
        pressure: float | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        if common.get("preset") == "reference":
            common.setdefault("warmup", reference.HARD_IMB_WARMUP)
        super().__init__(labels, features, **common)
        self.pressure = self.start_pressure(pressure)
        found = asked_neighbors(neighbors, self.features, self.n, neighbors_method)
        around = torch.empty(self.n, 0, dtype=torch.int64) if found is None else found.rows
        self.neighbors = named_neighbors(neighbors, found)
        self.neighbor_method = "none" if found is None else found.method
        """How they were found: "exact", "approximate", "given" or "none"."""
        self.neighbor_recall = 1.0 if found is None else found.recall
        """Share of true neighbours that the search found, measured on a sample; 1.0 if exact."""
        self.features = None  # they have served to find neighbours
        self.imbalance = torch.from_numpy(local_imbalance(self.labels, around))
        """The static weight [n] of local imbalance."""

    @property
    def merges_updates(self) -> bool:  # type: ignore[override]
        return not self.is_reference  # its table asks for the largest loss in every batch

    @property
    def shardable(self) -> bool:
        return not self.is_reference

    def make_memory(self) -> LastLoss:
        memory = LastLoss(self.kept.count, self.q)
        memory.register_buffer("table", torch.ones(self.kept.count, dtype=torch.float64))
        return memory

    def update(self, index: Tensor, probs: Tensor) -> None:
        self.memory.update(index, row_loss(probs, self.labels_at(index)))
        if self.is_reference:
            weights = self.instance_weights()["hardness"]
            s0 = self.start_pressure(self.pressure)
            entries = reference.table_entries(weights, index, s0)
            self.memory.table.index_copy_(0, index, entries)

    def instance_weights(self) -> dict[str, Tensor]:
        scale = self.q if self.is_reference else 1
        self.imbalance = self.imbalance.to(self.state_device)
        hardness = self.imbalance * self.kept.whole(self.memory.loss) / scale
        return {"hardness": probability.level(hardness, self.dtype)}

    def label_importance(self) -> dict[str, Tensor]:
        """IR_j; 0 for a label without positives."""
        ratio = torch.from_numpy(np.nan_to_num(imbalance_ratio(self.labels), nan=0.0))
        return {"imbalance": ratio.to(self.state_device)}

    def distribution(self, epoch: int) -> Tensor:
        if self.is_reference and epoch <= self.epochs:
            return self.memory.table / self.memory.table.sum()
        return super().distribution(epoch)
