"""Where a selector is: which epoch, which batch, and how far training has really come."""

from __future__ import annotations

from collections import deque
from typing import Any

from torch import Tensor

_AHEAD = 4096  # more batches than any loader draws ahead of the training loop


def _mark(rows: Any) -> tuple[int, int, int]:
    """Enough of a batch to know it again; of rows on an accelerator only their number."""
    if isinstance(rows, Tensor) or not len(rows):
        return len(rows), -1, -1
    return len(rows), int(rows[0]), int(rows[-1])


class Progress:
    """Counts epochs and batches.

    A loader with workers draws batches ahead of the training loop. Where drawn batches are
    observed in turn, those *observed* tell how far training came, and a saved state goes on after
    the last of them; where they are not, the batches drawn do.
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
        self._in_step = True
        self._ahead: deque[tuple[int, int, int]] = deque()

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
            self._drawn, self._in_step = self.batches, False
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
        self._in_step = True
        self._ahead.clear()
        return self._drawn

    def draws(self, epoch: int) -> bool:
        return self.running and self.drawn_epoch == epoch

    def drew(self, batch: list[int]) -> None:
        self._drawn += 1
        if self._in_step:
            self._ahead.append(_mark(batch))
            self._in_step = len(self._ahead) <= _AHEAD

    def finish(self, epoch: int) -> None:
        if self.draws(epoch):
            self.running, self.upcoming = False, epoch + 1

    def leave(self) -> None:
        """End the running epoch where it is."""
        if self.running:
            self.upcoming = self.drawn_epoch + 1
            self.running = self.resuming = False
        self._drawn, self._in_step = self.batches, False

    def observed(self, rows: Any) -> None:
        """Match an observed batch with the drawn ones; any other batch ends the matching."""
        if not self._in_step:
            return
        length, first, _ = mark = _mark(rows)
        expected = self._ahead.popleft() if self._ahead else None
        if expected is not None and (mark == expected or (first < 0 and length == expected[0])):
            self._observed += 1
        else:
            self._in_step = False
            self._ahead.clear()

    def state_dict(self) -> dict[str, Any]:
        in_step = self._in_step and self._observed > self._base
        trained = self._observed if in_step else self._drawn
        inside = self.drawn_epoch > 0 and trained < self.batches
        return {
            "epoch": self.drawn_epoch if inside else self.upcoming,
            "inside": inside,
            "position": trained if inside else 0,
            "drawn_epoch": self.drawn_epoch,
            "from_zero": self._from_zero,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state.keys() != self.state_dict().keys():
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
        self._drawn = position if inside else self.batches
