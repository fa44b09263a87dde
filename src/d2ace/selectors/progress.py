"""Where a selector is: which epoch, which batch, and how far training has really come."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from torch import Tensor

_AHEAD = 4096  # more batches than any loader draws ahead of the training loop


def _same(rows: Any, expected: np.ndarray[Any, Any]) -> bool:
    """Whether rows are those expected; of rows on an accelerator only their number is known."""
    if len(rows) != len(expected) or isinstance(rows, Tensor) or not len(rows):
        return len(rows) == len(expected)
    return bool(rows[0] == expected[0] and rows[-1] == expected[-1])


class Progress:
    """Counts epochs and batches.

    A loader with workers draws batches ahead of the training loop. Where drawn batches are
    observed in turn, whole or in consecutive parts, those *observed* tell how far training came,
    and a saved state goes on after the last whole one; where they are not, the batches drawn do.
    One that was observed so, in whichever epoch, tells that others will be.
    """

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self.drawn_epoch = 0  # the epoch begun last
        self.upcoming = 1  # the epoch to be begun next
        self.running = False  # batches of `drawn_epoch` are left to draw
        self.resuming = False  # ... and nobody draws them yet
        self._from_zero = False
        self._drawn = 0  # batches drawn of `drawn_epoch`
        self._observed = self._base = 0  # batches observed, of those drawn from `_base` on
        self._part = 0  # rows observed of the batch after those
        self._in_step = True
        self._told = False  # a batch was observed in step, now or before the state was saved
        self._ahead: deque[np.ndarray[Any, Any]] = deque()
        self._rows_drawn = self._rows_told = self._weighed = 0  # since `_base`, in any order
        self._passed = True  # all rows were observed since the epoch began

    @property
    def epoch(self) -> int:
        return self.drawn_epoch if self.running else self.upcoming

    def move(self, epoch: int) -> None:
        """Go to the start of ``epoch``, unless it is the one we are in."""
        self._from_zero = self._from_zero or epoch == 0
        epoch += self._from_zero
        if epoch != self.epoch:
            self.upcoming = epoch
            self.running = self.resuming = False
            self._give_up()
        elif self.running and not self.resuming:
            self.upcoming = epoch  # whoever left the epoch in its middle starts it again

    def begin(self) -> None:
        """Enter the upcoming epoch."""
        self.drawn_epoch = self.upcoming
        self.upcoming += 1
        self._drawn = 0

    def start(self) -> int:
        """Begin to draw; the number of the first batch."""
        self.running, self.resuming = True, False
        self._observed = self._base = self._drawn
        self._part = self._rows_drawn = self._rows_told = self._weighed = 0
        self._in_step, self._passed = True, False
        self._ahead.clear()
        return self._drawn

    def draws(self, epoch: int) -> bool:
        return self.running and self.drawn_epoch == epoch

    def drew(self, batch: list[int]) -> None:
        self._drawn += 1
        self._rows_drawn += len(batch)
        if self._in_step:
            self._ahead.append(np.array(batch))
            self._in_step = len(self._ahead) <= _AHEAD

    def finish(self, epoch: int) -> None:
        if self.draws(epoch):
            self.running, self.upcoming = False, epoch + 1

    def leave(self) -> None:
        """End the running epoch where it is."""
        if self.running:
            self.upcoming = self.drawn_epoch + 1
            self.running = self.resuming = False
        self._give_up()

    def _give_up(self) -> None:
        """Expect nothing any more of the epoch drawn last."""
        self._drawn, self._in_step, self._passed = self.batches, False, True
        self._rows_drawn = self._rows_told = 0

    def observed(self, rows: Any) -> None:
        """Match observed rows with the batches drawn; any others end the matching."""
        self._rows_told += len(rows)
        if not self._in_step or not len(rows):
            return
        batch = self._ahead[0] if self._ahead else np.empty(0)
        start, self._part = self._part, self._part + len(rows)
        if not _same(rows, batch[start : self._part]):
            self._in_step = False
            self._ahead.clear()
        elif self._part == len(batch):
            self._ahead.popleft()
            self._observed, self._part, self._told = self._observed + 1, 0, True

    def passed(self) -> None:
        """Rows of a pass over all of them were observed, so that the epoch has been trained."""
        self._passed = True

    def weighed(self) -> None:
        """Somebody asked for the loss weights of a batch."""
        self._weighed += 1

    @property
    def _counted(self) -> bool:
        """Whether observed batches tell how far training came."""
        return self._in_step and (self._told or self._part > 0)

    def may_skip(self, *, full_pass: bool) -> bool:
        """Whether a state goes on after batches that were drawn but perhaps not trained.

        Where nothing was ever observed, the batches drawn are taken at their word.
        """
        if full_pass:  # no batch is observed; but who asks for its loss weights trains it
            begun = not self._passed and not self.resuming
            return begun and self._weighed < self._drawn - self._base
        return not self._counted and 0 < self._rows_told < self._rows_drawn

    @property
    def place(self) -> str:
        """The batch drawn last."""
        return f"batch {self._drawn} of epoch {self.drawn_epoch}"

    def state_dict(self) -> dict[str, Any]:
        trained = self._observed if self._counted else self._drawn
        inside = self.drawn_epoch > 0 and trained < self.batches
        return {
            "epoch": self.drawn_epoch if inside else self.upcoming,
            "inside": inside,
            "position": trained if inside else 0,
            "drawn_epoch": self.drawn_epoch,
            "from_zero": self._from_zero,
            "told": self._told,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state.keys() | {"told"} != self.state_dict().keys():  # states of old lack it
            raise ValueError(f"The state's progress {sorted(state)} is not a selector's.")
        epoch, position = int(state["epoch"]), int(state["position"])
        if epoch < 1 or not 0 <= position < self.batches:
            raise ValueError(
                f"The state stands at epoch {epoch}, batch {position}, "
                f"but an epoch has {self.batches} batches."
            )
        inside = bool(state["inside"])
        self.drawn_epoch = int(state["drawn_epoch"])
        self.upcoming = epoch + 1 if inside else epoch
        self.running = self.resuming = inside
        self._from_zero = bool(state["from_zero"])
        self._told = bool(state.get("told", False))
        self._drawn = position if inside else self.batches
