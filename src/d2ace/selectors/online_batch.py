"""Online batch selection: prefer instances whose last loss ranks high."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from d2ace._util import validation as inputs
from d2ace.selectors._engine.options import CommonOptions

from . import probability
from .base import Selector
from .history import LastLoss
from .scores import row_loss

if TYPE_CHECKING:
    from typing_extensions import Unpack


class OnlineBatch(Selector):
    """Rank of the last loss: probability falls by the same factor from rank to rank.

    Parameters
    ----------
    pressure : float, optional
        s0: how much likelier the largest loss is than the smallest; 100.
    """

    name: ClassVar[str] = "online_batch"
    title: ClassVar[str] = "Online-Batch"
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

    def make_memory(self) -> LastLoss:
        return LastLoss(self.kept.count, self.q)

    def update(self, index: Tensor, probs: Tensor) -> None:
        self.memory.update(index, row_loss(probs, self.labels_at(index)))

    def instance_weights(self) -> dict[str, Tensor]:
        return {"loss": probability.level(self.kept.whole(self.memory.loss), self.dtype)}

    def distribution(self, epoch: int) -> Tensor:
        rank = probability.rank(self.instance_weights()["loss"])
        return probability.quantised_probability(rank, self.selection_pressure(epoch))
