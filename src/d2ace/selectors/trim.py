"""Trim: give less weight to (row, label) pairs that the trained model keeps contradicting."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from d2ace._util import validation as inputs
from d2ace._util.isolation import isolated

from .base import Selector
from .finding import find_selector
from .history import LastLoss, Memory, PredictionMean
from .random import Random
from .scores import row_loss
from .trimming import label_blocks, overfits, worst_pairs


class Trim(Selector):
    """Loss weights for pairs: less weight for labels that the predictions contradict most.

    Multiply the loss by :meth:`loss_weight`, or use :meth:`loss`. Call :meth:`validated` with the
    mean validation loss once per epoch: Trim starts when the model overfits, that is, after the
    validation loss has risen while the training loss has fallen. Until then, the run is the same,
    bit for bit, as with the method that draws the batches.

    Parameters
    ----------
    share : float
        Share of every label's positives that get less weight.
    weight : float
        Their loss weight; all other pairs have 1.
    rise : float
        How far the validation loss must rise above its minimum, as a share of it, before Trim
        starts.
    fall : float
        How far the training loss must have fallen since the validation loss was at its minimum, as
        a share of what it was then. Trim measures it by what you pass to :meth:`observe`. 0: look
        at the validation loss alone.
    start : int, optional
        First epoch to trim; both losses are then ignored.
    rows : str or Selector class
        The method that draws the batches; pass its options together with Trim's. "random"
        reshuffles.
    """

    name: ClassVar[str] = "trim"
    title: ClassVar[str] = "Trim"
    uses_features: ClassVar[bool] = False

    def __new__(cls, *_: Any, rows: str | type[Selector] = "random", **__: Any) -> Trim:
        """A Trim that is also a selector of the class ``rows``, and overrides its loss weights."""
        return _blank(cls, _method(rows))

    def __init__(
        self,
        labels: inputs.Labels,
        features: inputs.Features = None,
        *,
        share: float = 0.2,
        weight: float = 0.25,
        rise: float = 0.01,
        fall: float = 0.1,
        start: int | None = None,
        rows: str | type[Selector] = "random",
        **options: Any,
    ) -> None:
        if isinstance(self, Random):
            options.setdefault("warmup", 0)  # the rows stay the same: the trigger is enough
        super().__init__(labels, features, **options)
        self.share = inputs.real_number("share", share, 0.0, 1.0)
        self.weight = inputs.real_number("weight", weight, 0.0)
        self.rise = inputs.real_number("rise", rise, 0.0)
        self.fall = inputs.real_number("fall", fall, 0.0, 1.0)
        self.start = None if start is None else inputs.whole_number("start", start, 1)
        if self.start is not None and self.start <= self.warmup:
            raise ValueError(
                f"start={start} lies within the warm-up (warmup={self.warmup}), when no loss is "
                "weighted; choose a later start or a shorter warmup."
            )
        self.rows = rows if isinstance(rows, str) else rows.name or rows.__name__
        self._least = math.inf, math.inf  # validation loss, and the training loss then
        self._first_epoch = self.start or 0  # that is trimmed; 0: not decided yet

    # When -----------------------------------------------------------------------------------

    @property
    def first_trimmed_epoch(self) -> int | None:
        """The first epoch in which pairs get less weight; None while it is not decided."""
        return max(self._first_epoch, self.warmup + 1) if self._first_epoch else None

    def trims(self, epoch: int) -> bool:
        """Whether pairs get less weight in an epoch."""
        first = self.first_trimmed_epoch
        return first is not None and epoch >= first

    def validated(self, loss: Any) -> None:
        """Report the mean validation loss of the current model, usually once per epoch.

        Trimming starts with the epoch after a loss that has risen above the smallest so far while
        the training loss has fallen, and continues to the end. If you report several losses within
        an epoch, each counts. Observe the batches trained so far before you call it.
        """
        value = inputs.scalar_loss(loss)
        if not math.isfinite(value):
            if self.on_invalid == "skip":
                return
            raise ValueError(
                f"The validation loss is {value}, but Trim needs a finite one; lower the learning "
                "rate, or make the selector with on_invalid='skip' to skip it."
            )
        self._keep_initial()
        if self._first_epoch:
            return
        now = value, self._training_loss()
        if overfits(now, self._least, self.rise, self.fall):
            self._first_epoch = self.drawn_epoch + 1
        if value < self._least[0]:
            self._least = now

    @property
    def awaits_validation(self) -> bool:
        return self.start is None and self._least[0] == math.inf

    def _training_loss(self) -> float:
        """The mean, over the rows observed so far, of the loss when a row was observed last."""
        self.flush()
        seen = self._pairs.visits > 0
        loss = float((self.memory.rows.loss * seen).sum() / seen.sum())
        return math.inf if math.isnan(loss) else loss  # not known before a row is observed

    # Which ----------------------------------------------------------------------------------

    def make_memory(self) -> Memory:
        memory = super().make_memory()
        memory.pairs = PredictionMean(self.n, self.q, self.dtype)
        memory.rows = LastLoss(self.n, self.q)
        return memory

    def update(self, index: Tensor, probs: Tensor) -> None:
        if self.fall and not self._first_epoch:  # else the training loss decides nothing
            self.memory.rows.update(index, row_loss(probs, self.labels_at(index)))
        self._pairs.update(index, probs)
        super().update(index, probs)

    def _last_known(self, index: Tensor, probs: Tensor) -> Tensor:
        """For a method without its own history, an invalid prediction does not change the mean."""
        plain = type(self.memory) is Memory
        return self._pairs.last_known(index, probs) if plain else super()._last_known(index, probs)

    @property
    def _pairs(self) -> PredictionMean:
        pairs: PredictionMean = self.memory.pairs
        return pairs

    @isolated
    def begin_epoch(self, epoch: int) -> None:
        super().begin_epoch(epoch)
        if self.trims(epoch):
            self.flush()
            self._choose()

    def _choose(self) -> None:
        """Mark the pairs to give less weight, among the rows observed so far."""
        pairs = self._pairs
        seen = pairs.visits.nonzero().squeeze(1)
        rows = slice(None) if len(seen) == self.n else seen
        for block, labels in label_blocks(self.labels):
            given = labels.to(seen.device)[rows]
            predicted = pairs.mean[:, block][rows]
            score = (predicted - given.to(predicted.dtype)).abs_()  # mean |p - y|, as y is 0 or 1
            pairs.marked[rows, block] = worst_pairs(score, given, self.share)

    # Weights --------------------------------------------------------------------------------

    def weighs_loss(self, epoch: int) -> bool:
        return self.trims(epoch) or super().weighs_loss(epoch)

    def pair_weights(self, rows: Tensor, epoch: int) -> Tensor:
        weight = torch.ones(len(rows), 1, dtype=torch.float64, device=rows.device)
        if super().weighs_loss(epoch):
            weight = super().pair_weights(rows, epoch)
        if not self.trims(epoch):
            return weight
        marked = self._pairs.marked.to(rows.device).index_select(0, rows)
        return torch.where(marked, self.weight * weight, weight)

    # Saving and resuming --------------------------------------------------------------------

    def extra_state(self) -> dict[str, float]:
        loss, training_loss = self._least
        own = {"least_loss": loss, "training_loss_then": training_loss}
        return {**super().extra_state(), **own, "first_trimmed_epoch": self._first_epoch}

    def load_extra_state(self, state: dict[str, float]) -> None:
        super().load_extra_state(state)
        self._least = float(state["least_loss"]), float(state["training_loss_then"])
        self._first_epoch = int(state["first_trimmed_epoch"])

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """For copies and pickles, which cannot find a joined class by its name."""
        return _blank, self._joined_from, self.__getstate__()

    _joined_from: ClassVar[tuple[type[Trim], type[Selector]]]


def _method(rows: Any) -> type[Selector]:
    method = rows if isinstance(rows, type) and issubclass(rows, Selector) else find_selector(rows)
    if issubclass(method, Trim):
        raise ValueError(
            f"rows={rows!r} is Trim itself, which draws no batches; name a method that does."
        )
    return method


_JOINED: dict[tuple[type[Trim], type[Selector]], type[Trim]] = {}


def _joined(cls: type[Trim], method: type[Selector]) -> type[Trim]:
    """Trim's loss weights on top of a method, which does everything else."""
    if (cls, method) not in _JOINED:
        learns = method.update is not Selector.update
        names = {
            "__doc__": cls.__doc__,
            "__module__": cls.__module__,
            "title": cls.title,
            "uses_features": method.uses_features,
            "merges_updates": method.merges_updates or not learns,
            "_joined_from": (cls, method),
        }
        _JOINED[cls, method] = type(cls.__name__, (cls, method), names)
    return _JOINED[cls, method]


def _blank(cls: type[Trim], method: type[Selector]) -> Trim:
    return object.__new__(_joined(cls, method))
