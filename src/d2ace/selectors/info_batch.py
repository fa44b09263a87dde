"""InfoBatch: leave out a share of the instances with a low loss, and scale up the others' loss."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from d2ace._util import validation as inputs
from d2ace.selectors._engine.options import CommonOptions

from . import probability
from .base import Selector
from .history import LastLoss
from .scores import row_loss

if TYPE_CHECKING:
    from typing_extensions import Unpack


class InfoBatch(Selector):
    """Each epoch has all rows of at least the mean loss, and a random share of the others.

    Multiply the loss by :meth:`loss_weight`: the drawn rows below the mean also count for the ones
    left out. Epochs are shorter than n rows; the last ones are full.

    Parameters
    ----------
    prune_ratio : float
        r, the share of the rows below the mean loss that an epoch leaves out; at most 0.9.
    delta : float
        Share of the epochs that leave rows out. The epochs after delta T are full.
    """

    name: ClassVar[str] = "info_batch"
    title: ClassVar[str] = "InfoBatch"
    uses_features: ClassVar[bool] = False
    merges_updates: ClassVar[bool] = True
    default_draw: ClassVar[str] = "epoch"

    def __init__(
        self,
        labels: inputs.Labels,
        features: inputs.Features = None,
        *,
        prune_ratio: float = 0.5,
        delta: float = 0.875,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(labels, features, **common)
        self.prune_ratio = inputs.real_number("prune_ratio", prune_ratio, 0.0, 0.9)
        self.delta = inputs.real_number("delta", delta, 0.0, 1.0)
        self._refuse_common(common)

    def _refuse_common(self, given: CommonOptions) -> None:
        """Raise for common options that conflict with this method."""
        full = all(super(InfoBatch, self).epoch_rows(t) == self.n for t in (1, self.epochs))
        fits = {
            "draw": self.draw == "epoch",
            "rows_per_epoch": full,
            "importance_weighting": not self.importance_weighting,
        }
        for option, fine in fits.items():
            if not fine:
                raise ValueError(
                    f"{option}={given.get(option)!r} is not possible for InfoBatch, which chooses "
                    "the rows of an epoch and their weights; leave it out."
                )

    def make_memory(self) -> LastLoss:
        return LastLoss(self.n, self.q)

    def update(self, index: Tensor, probs: Tensor) -> None:
        self.memory.update(index, row_loss(probs, self.labels_at(index)))

    def instance_weights(self) -> dict[str, Tensor]:
        return {"loss": probability.level(self.memory.loss, self.dtype)}

    def selects(self, epoch: int) -> bool:
        return super().selects(epoch) and epoch <= self.delta * self.epochs

    def _easy(self) -> tuple[Tensor, int, int]:
        """Which rows are below the mean loss [n], how many they are, and how many of them stay."""
        loss = self.instance_weights()["loss"]
        easy = loss < loss.mean() * (1.0 - probability.GUARD)  # none if all are equal
        count = int(easy.sum())
        kept = math.floor((1.0 - self.prune_ratio) * count + probability.GUARD)
        return easy, count, min(max(kept, 1), count)  # every row keeps a chance

    def epoch_rows(self, epoch: int) -> int:
        if not self.selects(epoch):
            return super().epoch_rows(epoch)
        _, count, kept = self._easy()
        return self.n - count + kept

    def distribution(self, epoch: int) -> Tensor:
        """P such that systematic sampling takes every hard row, and ``kept`` of the easy ones."""
        easy, count, kept = self._easy()
        rows = self.n - count + kept
        p = torch.full((self.n,), 1.0 / rows, dtype=torch.float64, device=easy.device)
        return torch.where(easy, p * (kept / max(count, 1)), p)

    def weighs_loss(self, epoch: int) -> bool:
        return self.selects(epoch)

    def pair_weights(self, rows: Tensor, epoch: int) -> Tensor:
        """1/(1 - r) for rows that the epoch might have left out, 1 for the others."""
        uniform = 1.0 + probability.GUARD  # 1/(n P) is above 1 for rows less likely than 1/n
        importance = super().pair_weights(rows, epoch)
        return torch.where(importance > uniform, 1.0 / (1.0 - self.prune_ratio), 1.0)
