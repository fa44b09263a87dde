"""A selector's place in training: saved, loaded, copied, forgotten."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

import scipy.sparse as sp
from torch import Tensor

from d2ace._util.checksum import labels_checksum
from d2ace._util.isolation import isolated
from d2ace.insights import Insights
from d2ace.selectors._engine.cursor import Cursor
from d2ace.selectors._engine.kept_rows import KeptRows
from d2ace.selectors._engine.reminders import Reminders, warn_of_going_back
from d2ace.selectors._engine.state import refuse_unfit, state_of

from .method import MethodHooks

if TYPE_CHECKING:
    from typing_extensions import Self


class Resumable(MethodHooks):
    """The part of a :class:`~d2ace.Selector` that keeps its place."""

    labels: sp.csr_array
    batch_size: int
    seed: int
    predictions: str
    learning_rate: float
    restarts: int
    insights: Insights | None
    kept: KeptRows
    _marks: Tensor
    _reminders: Reminders
    _initial_extra: dict[str, float] | None

    @isolated
    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume with the same batches: tensors and plain values.

        Take it after :meth:`observe`, or between epochs. A loader with workers draws ahead of the
        training loop, and only observed batches show how far training came: observe every batch (of
        Random too; it costs nothing) in the order drawn, whole or in consecutive parts, or, where
        a loop leaves an epoch early, :meth:`end_epoch` before saving.
        """
        self._tensors.settle()
        self._warn_of_skipping()
        return state_of(self)

    @isolated
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where :meth:`state_dict` was taken.

        A state that is damaged, or of a selector made otherwise, is refused, and changes nothing.
        """
        refuse_unfit(self, state)
        cursor = Cursor(self.batch_size)
        cursor.load_state_dict(state["progress"])
        if cursor.rows > self.n:
            raise ValueError(f"The state's epoch has {cursor.rows} rows, but there are {self.n}.")
        tensors = self._tensors.restored(state["device"], state["drawn"])
        rate = float(state["learning_rate"])
        warn_of_going_back(self._cursor, cursor)
        cursor.follow(self._cursor)
        self._keep_initial()
        if self.insights is not None:
            self._tensors.flush()  # nothing may reach them behind the state
        before = self.__dict__.copy()
        try:
            self._cursor, self._tensors = cursor, tensors
            self.seed, self.learning_rate = int(state["seed"]), rate
            self.load_extra_state(state["extra"])
            if self.insights is not None:
                self.insights.load_state_dict(state["insights"])
        except Exception:
            self.__dict__ = before
            raise
        self.restarts += 1
        self._reminders.trust()
        memory = state["memory"].items()
        tensors.load_memory({name: self.kept.loaded(value) for name, value in memory})

    def reset(self) -> None:
        """Forget everything drawn, observed and loaded but the seed: training begins anew."""
        self._cursor, self._reminders = Cursor(self.batch_size), Reminders()
        self.restarts += 1
        if self.insights is not None:
            self.insights.reset()
        self._tensors.forget()
        if self._initial_extra is not None:
            self.load_extra_state(self._initial_extra)

    @property
    def has_observed(self) -> bool:
        """Whether predictions were observed since the selector was made, reset or restored."""
        return self._reminders.observed

    @property
    def is_restored(self) -> bool:
        """Whether a state was loaded, with a place in training, and nothing drawn since."""
        return self._cursor.restored

    def _keep_initial(self) -> None:
        """Before anything changes what :meth:`extra_state` gives."""
        if self._initial_extra is None:
            self._initial_extra = self.extra_state()

    @cached_property
    def _labels_checksum(self) -> int:
        return labels_checksum(self.labels)

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles, which resume at the current place, as a loaded state does."""
        self._warn_of_skipping()
        return {**self.__dict__, "_cursor": self._cursor.resumable()}

    def __copy__(self) -> Self:
        """A whole copy: a shallow one would go on writing into the original's memory."""
        return copy.deepcopy(self)

    def _warn_of_skipping(self) -> None:
        full_pass = self.predictions == "full_pass"
        self._reminders.warn_of_skipping(self._cursor, full_pass=full_pass)
