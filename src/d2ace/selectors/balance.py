"""Balance: uniform batches whose loss is balanced per label by selective learning."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from d2ace._util import validation as inputs
from d2ace.selectors._engine.options import CommonOptions

from .base import Selector

if TYPE_CHECKING:
    from typing_extensions import Unpack


def selective_mask(
    labels: Tensor, keys: Tensor, target: float = 0.5, cap: float | None = None
) -> Tensor:
    """V [b, q]: loss weights that give every label the target share of positives.

    Of the class in excess the pairs with the smallest ``keys`` are kept; the other class is
    weighted up. ``labels`` is boolean; the result has the sum b per label where both classes occur.
    """
    size = labels.shape[0]
    positives = labels.sum(dim=0, dtype=torch.float64)
    aim = target * size
    too_many = positives > aim + 1e-9
    too_few = positives < aim - 1e-9
    excess = torch.where(too_many, labels, ~labels)  # the class that is thinned out
    keep = torch.where(too_many, math.floor(aim + 0.5), math.floor(size - aim + 0.5))
    hidden = torch.iinfo(keys.dtype).max if not keys.is_floating_point() else torch.inf
    order = keys.masked_fill(~excess, hidden).argsort(dim=0, stable=True)
    rank = torch.empty_like(order).scatter_(
        0, order, torch.arange(size, device=order.device).unsqueeze(1).expand_as(order)
    )
    scarce = torch.where(too_many, (size - aim) / (size - positives), aim / positives)
    weight = torch.where(excess, (rank < keep).to(torch.float64), scarce)
    weight = torch.where(too_many | too_few, weight, 1.0)
    return weight if cap is None else weight.clamp_max(cap)


def pair_keys(seed: int, epoch: int, rows: Tensor, q: int) -> Tensor:
    """A random integer key for each (row, label) pair: a hash, so on any device and in any order.

    The finaliser of SplitMix64 on the pair's number; shifts are made logical by masking.
    """
    start = np.random.SeedSequence((seed, epoch)).generate_state(1, np.uint64).view(np.int64)[0]
    pairs = rows.unsqueeze(1) * q + torch.arange(q, device=rows.device)
    x = pairs * -7046029254386353131 + int(start)  # 0x9E3779B97F4A7C15
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687  # 0xBF58476D1CE4E5B9
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685  # 0x94D049BB133111EB
    return (x ^ ((x >> 31) & 0x1FFFFFFFF)) >> 1  # below the maximum, which marks hidden pairs


class Balance(Selector):
    """Selective learning: per batch and label, thin out one class and weight up the other.

    Batches are uniform shuffles; multiply the loss by :meth:`loss_weight`. ``mode="sample"`` draws
    rows by static weights instead. ``preset="reference"`` only shuffles.

    Parameters
    ----------
    mode : "mask" or "sample"
    target : float
        tau, the share of positives aimed at for every label.
    cap : float, optional
        Largest loss weight.
    pressure : float, optional
        s0 of ``mode="sample"``.
    """

    name: ClassVar[str] = "balance"
    title: ClassVar[str] = "Balance"
    uses_features: ClassVar[bool] = False

    def __init__(
        self,
        labels: inputs.Labels,
        features: inputs.Features = None,
        *,
        mode: str | None = None,
        target: float = 0.5,
        cap: float | None = None,
        pressure: float | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(labels, features, **common)
        self.pressure = self.start_pressure(pressure)
        self.masks = not self.is_reference or mode is not None
        self.mode = inputs.choice("mode", mode or "mask", ("mask", "sample"))
        self.target = inputs.real_number("target", target, 0.0, 1.0)
        self.cap = None if cap is None else inputs.real_number("cap", cap, 0.0, open_low=True)

    @property
    def shardable(self) -> bool:
        return True

    def selects(self, epoch: int) -> bool:
        return self.mode == "sample" and super().selects(epoch)

    def weighs_loss(self, epoch: int) -> bool:
        if self.mode == "mask":
            return self.masks and epoch > self.warmup
        return super().weighs_loss(epoch)

    def _shares(self) -> np.ndarray[Any, Any]:
        """pi_j, the share of positives of each label."""
        return np.bincount(self.labels.indices, minlength=self.q) / self.n

    def instance_weights(self) -> dict[str, Tensor]:
        if self.mode == "mask":
            return {}
        share = self._shares()
        mixed = (share > 0) & (share < 1)  # a constant label shifts all weights alike
        positive = np.divide(self.target, share, out=np.zeros(self.q), where=mixed)
        negative = np.divide(1.0 - self.target, 1.0 - share, out=np.zeros(self.q), where=mixed)
        weights = self.labels @ (positive - negative) + negative.sum()
        return {"imbalance": torch.from_numpy(np.asarray(weights)).to(self.state_device)}

    def label_importance(self) -> dict[str, Tensor]:
        """Tau / pi_j, the weight of a positive; 0 for a label without positives."""
        share = self._shares()
        weight = np.divide(self.target, share, out=np.zeros(self.q), where=share > 0)
        return {"imbalance": torch.from_numpy(weight).to(self.state_device)}

    def pair_weights(self, rows: Tensor, epoch: int) -> Tensor:
        if self.mode == "sample":
            return super().pair_weights(rows, epoch)
        if not len(rows):
            return torch.ones(0, self.q, device=rows.device)
        keys = pair_keys(self.seed, epoch, rows, self.q)
        return selective_mask(self.labels_at(rows), keys, self.target, self.cap)
