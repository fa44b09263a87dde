"""What a method says to the machinery that draws and watches for it, and what it may ask."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.data import Sampler

from d2ace._util import validation as inputs
from d2ace._util.label_rows import LabelRows
from d2ace.selectors._engine.cursor import Cursor
from d2ace.selectors._engine.device import DeviceState
from d2ace.selectors._engine.inputs import named_weights
from d2ace.selectors._engine.row_schedule import RowSchedule

from . import probability
from .history import Memory
from .reference import Reference


class MethodHooks(Sampler[list[int]]):
    """The part of a :class:`~d2ace.Selector` that a method of your own overrides or asks."""

    name: ClassVar[str] = ""
    """In the registry, files and commands."""
    title: ClassVar[str] = ""
    """In tables and figures; the name of the class unless given."""
    pressure: float | None = None
    """s0, of the methods that have one."""
    reference: ClassVar[Reference] = Reference()
    """What ``preset="reference"`` changes."""
    presets: ClassVar[tuple[str, ...]] = ("paper", "reference")
    """What ``preset`` may be."""
    compared: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """The options with which grids that name no methods compare it."""
    default_draw: ClassVar[str] = "batch"
    """What ``draw`` is unless given."""
    uses_features: ClassVar[bool] = True
    """Whether the method looks at ``features``; those of images cost a pass to make."""
    merges_updates: ClassVar[bool] = False
    """Whether rows of several batches may reach :meth:`update` in one call (faster)."""
    has_compact_state: ClassVar[bool] = False
    """Whether :meth:`make_memory` keeps less with ``state="compact"``."""
    draws_by_position: ClassVar[bool] = False
    """Whether random numbers of its own go to rows or labels by number, so that order matters."""

    n: int
    q: int
    epochs: int
    warmup: int
    preset: str
    state: str
    importance_weighting: bool
    row_schedule: RowSchedule
    _tensors: DeviceState
    _cursor: Cursor
    _label_rows: LabelRows

    def __init_subclass__(cls, **options: Any) -> None:
        """A class has its own title: it is another method than the one it extends."""
        super().__init_subclass__(**options)
        cls.title = vars(cls).get("title", cls.__name__)

    # What a method provides -----------------------------------------------------------------

    def make_memory(self) -> Memory:
        """State at the start, all of it as buffers (created on the selector's device)."""
        return Memory()

    def update(self, index: Tensor, probs: Tensor) -> None:
        """Advance ``self.memory`` by predictions [b, q] for the distinct rows ``index`` [b]."""

    def instance_weights(self) -> dict[str, Tensor]:
        """Named weights [n] from ``self.memory``; more weight, more likely to be drawn."""
        return {}

    def label_importance(self) -> dict[str, Tensor]:
        """Named label weights [q], where the method has them."""
        return {}

    def selects(self, epoch: int) -> bool:
        """Whether an epoch is drawn by P; else it is a plain shuffle."""
        return epoch > self.warmup

    def epoch_rows(self, epoch: int) -> int:
        """How many rows an epoch draws, 1 to n; asked when it begins, like :meth:`distribution`."""
        return self.row_schedule.rows(probability.progress(epoch, self.warmup, self.epochs))

    def most_rows(self, epoch: int) -> int:
        """The most rows an epoch may draw, known beforehand: n for an ``epoch_rows`` of its own."""
        return self.n if self._shapes_epochs else self.epoch_rows(epoch)

    def begin_epoch(self, epoch: int) -> None:
        """Called when an epoch begins (not when it is resumed), before its first batch."""

    def weighs_loss(self, epoch: int) -> bool:
        """Whether :meth:`loss_weight` gives weights in an epoch."""
        return self.importance_weighting and self.selects(epoch)

    def pair_weights(self, rows: Tensor, epoch: int) -> Tensor:
        """Loss weights [b, 1] or [b, q] of ``rows`` in an epoch that weighs the loss: 1/(n P_i)."""
        drawn = self._tensors.drawn
        if drawn is None:  # a plain shuffle
            return torch.ones(len(rows), 1, device=rows.device)
        return 1.0 / (self.n * drawn.to(rows.device).index_select(0, rows)).unsqueeze(1)

    def selection_pressure(self, epoch: int) -> float:
        """s(t): as the paper has it, from s0 in the first selective epoch to 1 in the last."""
        start = 100.0 if self.pressure is None else self.pressure
        schedule = self.reference.schedule if self.is_reference else None
        if schedule is not None and epoch <= self.epochs:
            return max(1.0, schedule(start, epoch, self.epochs))
        return probability.decaying_pressure(start, epoch, self.warmup, self.epochs)

    def start_pressure(self, given: float | None) -> float:
        """s0: the one given, or that of the preset."""
        if given is None:
            given = self.reference.pressure if self.is_reference else 100.0
        return inputs.real_number("pressure", given, 1.0)

    def distribution(self, epoch: int) -> Tensor:
        """P [n] for a selective epoch: the one weight by quantisation index and pressure."""
        weights = list(named_weights(self, self.instance_weights()).values())
        if not weights:
            return probability.uniform(self.n)
        return probability.quantised(weights[0], self.selection_pressure(epoch))

    @property
    def warning(self) -> str | None:
        """What to warn of, in one sentence, when the first selective epoch begins."""
        return None

    @property
    def shardable(self) -> bool:
        """Whether several processes can share the state, each with the rows it keeps.

        Then all memory has ``self.kept.count`` rows, which ``update`` numbers from 0; sums over
        all rows go through ``self.kept.sum``, and weights through ``self.kept.whole``.
        """
        return False

    def extra_state(self) -> dict[str, float]:
        """Plain numbers a method keeps beside its memory."""
        return {}

    def load_extra_state(self, state: dict[str, float]) -> None:
        """Take back what :meth:`extra_state` gave."""

    # What a method may ask ------------------------------------------------------------------

    @property
    def memory(self) -> Any:
        """The method's state, created when first needed."""
        return self._tensors.memory

    @property
    def state_device(self) -> torch.device:
        """Where state is kept: as asked for, or where the first observed predictions were."""
        return self._tensors.device

    @property
    def is_reference(self) -> bool:
        """Whether the method follows its authors' code."""
        return self.preset == "reference"

    @property
    def is_compact(self) -> bool:
        """Whether the method is asked for a smaller memory, of fewer digits."""
        return self.state == "compact"

    @property
    def learns(self) -> bool:
        """Whether predictions change anything."""
        return type(self).update is not MethodHooks.update

    @property
    def epochs_vary(self) -> bool:
        """Whether epochs may differ in their number of rows."""
        return self._shapes_epochs or self.row_schedule.start != self.row_schedule.end

    @property
    def next_epoch(self) -> int:
        """The epoch that is drawn next."""
        return self._cursor.upcoming

    @property
    def drawn_epoch(self) -> int:
        """The epoch drawn last, or being drawn; 0 before the first."""
        return self._cursor.drawn_epoch

    def labels_at(self, index: Tensor) -> Tensor:
        """Rows of Y as booleans [b, q] on the device of ``index``, in the numbers of ``update``."""
        return self._label_rows.at(index)

    def drawn_probability(self, index: Tensor) -> Tensor | float:
        """The probability with which rows were drawn in the epoch drawn last."""
        drawn = self._tensors.drawn
        return 1.0 / self.n if drawn is None else drawn.index_select(0, index)

    @property
    def _shapes_epochs(self) -> bool:
        """Whether the method itself says how many rows an epoch has: it may look at its memory."""
        return type(self).epoch_rows is not MethodHooks.epoch_rows
