"""Balance: uniform batches whose loss is balanced per label by selective learning."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from d2ace._util import validation as inputs
from d2ace.selectors._engine.options import CommonOptions

from .base import Selector

if TYPE_CHECKING:
    from typing_extensions import Unpack

_STEP = -7046029254386353131  # 0x9E3779B97F4A7C15, between the numbers of two pairs


def selective_mask(
    labels: Tensor,
    keys: Tensor,
    target: float = 0.5,
    cap: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """V [b, q]: loss weights that give every label the target share of positives.

    Of the class in excess the pairs with the smallest ``keys`` are kept, the first of equal ones;
    the other class is weighted up. ``labels`` is boolean; the result has the sum b per label where
    both classes occur.
    """
    size = labels.shape[0]
    positives = labels.sum(dim=0).to(torch.float64)
    aim = target * size
    too_many = positives > aim + 1e-9
    uneven = too_many | (positives < aim - 1e-9)
    scarce = torch.where(too_many, (size - aim) / (size - positives), aim / positives)
    scarce = torch.where(uneven, scarce, 1.0)
    lacking = labels != too_many  # pairs of the class that is weighted up
    hidden = torch.iinfo(keys.dtype).max if not keys.is_floating_point() else torch.inf
    keys = keys.masked_fill(lacking, hidden)
    many, few = math.floor(aim + 0.5), math.floor(size - aim + 0.5)
    limit = _smallest(keys, many)
    if few != many:
        limit = torch.where(too_many, limit, _smallest(keys, few))
    kept, last = keys < limit, keys == limit
    left = torch.where(too_many, many, few) - kept.sum(dim=0)
    kept |= last.logical_and_(last.cumsum(dim=0, dtype=torch.int32) <= left)
    kept |= ~uneven
    weight = torch.where(lacking, scarce.to(dtype), kept.to(dtype))
    return weight if cap is None else weight.clamp_max_(cap)


def _smallest(keys: Tensor, count: int) -> Tensor:
    """The key of that rank in each column, from 1; of rank 0 the least possible one: [q]."""
    if count == 0:
        least = -torch.inf if keys.is_floating_point() else torch.iinfo(keys.dtype).min
        return keys.new_full((keys.shape[1],), least)
    if keys.device.type == "cpu":  # NumPy takes a tenth of torch's time
        return torch.from_numpy(np.partition(keys.numpy(), count - 1, axis=0)[count - 1])
    return keys.kthvalue(count, dim=0).values


def pair_keys(seed: int, epoch: int, rows: Tensor, q: int) -> Tensor:
    """A random integer key for each (row, label) pair: a hash, so on any device and in any order.

    The finaliser of SplitMix64 on the pair's number; shifts are made logical by masking.
    """
    by_row = rows * q * _STEP + _start(seed, epoch)
    x = by_row.unsqueeze(1) + torch.arange(q, device=rows.device) * _STEP
    x.bitwise_xor_((x >> 30).bitwise_and_(0x3FFFFFFFF)).mul_(-4658895280553007687)
    x.bitwise_xor_((x >> 27).bitwise_and_(0x1FFFFFFFFF)).mul_(-7723592293110705685)
    # 0xBF58476D1CE4E5B9 and 0x94D049BB133111EB; in the end below the maximum, for hidden pairs
    return x.bitwise_xor_((x >> 31).bitwise_and_(0x1FFFFFFFF)).bitwise_right_shift_(1)


@lru_cache(maxsize=16)
def _start(seed: int, epoch: int) -> int:
    """Where the numbers of an epoch start."""
    words = np.random.SeedSequence((seed, epoch)).generate_state(1, np.uint64)
    return int(words.view(np.int64)[0])


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
        return selective_mask(self.labels_at(rows), keys, self.target, self.cap, self.dtype)
