"""The place of a selector: its epoch, and the next batch."""

from __future__ import annotations

from typing import Any

from .epoch_count import EpochCount
from .ledger import Ledger

_KEYS = {"epoch", "inside", "position", "drawn_epoch", "rows", "shift", "told"}


class Cursor:
    """The place in a training run, whose epochs may differ in their number of rows."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.rows = 0  # of the epoch begun last
        self.drawn_epoch = 0  # the epoch begun last
        self.upcoming = 1  # the epoch to be begun next
        self.running = False  # batches of `drawn_epoch` are left to draw
        self.resuming = False  # ... and no iterator draws them yet
        self.untouched = False  # a state with a place was loaded, and nothing drawn since
        self.restored = False  # ... or since then moved, without a batch
        self.ledger = Ledger(0, told=False)
        self.count = EpochCount()

    @property
    def batches(self) -> int:
        """Number of batches of the epoch begun last."""
        return -(-self.rows // self.batch_size)

    @property
    def in_hand(self) -> bool:
        """Whether the epoch begun last is being drawn or trained, or is to be resumed."""
        return self.resuming or self.drawn_from or (self._open and not self.running)

    @property
    def epoch(self) -> int:
        """The epoch being trained or, between epochs, the next one to be trained."""
        return self.drawn_epoch if self._open else self.upcoming

    @property
    def _open(self) -> bool:
        """Whether the epoch begun last is not over.

        Loader workers draw it to its end while it is being trained; then what was observed tells.
        """
        ledger = self.ledger
        if self.running and not self.resuming and ledger.counts:
            return ledger.trained < self.batches
        return self.running or (ledger.counts and ledger.prefetched and bool(ledger.waiting))

    def move(self, count: int) -> None:
        """Go to the start of the epoch a framework counts as ``count``, unless we are in it."""
        epoch = self.count.epoch(count, self.epoch, restored=self.restored)
        if epoch != self.epoch:
            self.upcoming = epoch
            self._stop()
        elif self._open:
            if not self.resuming:  # an epoch left in its middle starts again
                self.upcoming = epoch
        elif not self.restored:  # what was not observed of the epoch before is late from now on
            self._stop()

    def begin(self, rows: int) -> None:
        """Enter the upcoming epoch, which draws ``rows`` rows."""
        self.drawn_epoch, self.rows = self.upcoming, rows
        self.upcoming += 1
        self._start(0)

    def resume(self) -> None:
        """Resume the epoch that was restored in its middle."""
        self._start(self.ledger.drawn)

    def _start(self, position: int) -> None:
        self.ledger = self.ledger.next(position)
        self.running = True
        self.resuming = self.restored = self.untouched = False

    def follow(self, before: Cursor) -> None:
        """Replace ``before``, for which a framework may have named the next epoch."""
        if self.restored:
            self.count.follow(before.count, self.epoch)

    def drew(self, batch: list[int]) -> None:
        """A batch was drawn."""
        self.count.drew()
        self.ledger.drew(batch)

    def finish(self) -> None:
        """The running epoch is drawn to its end."""
        self.ledger.asked()
        self.running, self.upcoming = False, self.drawn_epoch + 1

    def observed(self, rows: Any) -> None:
        """Rows of the training pass were observed."""
        if self.ledger.observed(rows) and self.ledger.trained == self.batches:
            self.upcoming = self.drawn_epoch + 1

    def leave(self) -> None:
        """End the running epoch where it is."""
        if self._open:
            self.upcoming = self.drawn_epoch + 1
        self.count.left(self.drawn_epoch)
        self._stop()

    def _stop(self) -> None:
        """Expect nothing any more of the epoch drawn last."""
        self.running = self.resuming = self.untouched = False
        self.ledger = self.ledger.next(self.batches)

    @property
    def drawn_from(self) -> bool:
        """Whether somebody is drawing the epoch begun last."""
        return self.running and self.ledger.watched

    @property
    def again(self) -> bool:
        """Whether the epoch begun last is begun once more."""
        return self.upcoming == self.drawn_epoch

    @property
    def unused(self) -> bool:
        """Whether batches of the epoch begun last were drawn, but none observed."""
        return self.ledger.untold and (self.ledger.told or self.running) and not self.again

    def may_skip(self, *, full_pass: bool) -> bool:
        """Whether a state taken now resumes after batches that were perhaps not trained."""
        return self.ledger.may_skip(running=self.running, full_pass=full_pass)

    @property
    def place(self) -> str:
        """The batch drawn last."""
        return f"batch {self.ledger.drawn} of epoch {self.drawn_epoch}"

    @property
    def next_batch(self) -> tuple[int, int]:
        """Epoch and number of the batch with which a state taken now resumes, from 1."""
        state = self.state_dict()
        return state["epoch"], state["position"] + 1

    def resumable(self) -> Cursor:
        """The same place for a copy, from which no iterator draws yet."""
        other = Cursor(self.batch_size)
        other.load_state_dict(self.state_dict())
        other.untouched = False
        return other

    def state_dict(self) -> dict[str, Any]:
        """Where training stands, as plain values."""
        trained = self.ledger.trained
        inside = self.drawn_epoch > 0 and trained < self.batches
        after = self.drawn_epoch + 1 if self.drawn_from else self.upcoming
        return {
            "epoch": self.drawn_epoch if inside else after,
            "inside": inside,
            "position": trained if inside else 0,
            "drawn_epoch": self.drawn_epoch,
            "rows": self.rows,
            "shift": self.count.shift,
            "told": self.ledger.told,
        }

    def load_state_dict(self, state: Any) -> None:
        """Stand where :meth:`state_dict` was taken; a state that is none is refused."""
        if not isinstance(state, dict) or state.keys() != _KEYS:
            raise ValueError(f"The state's progress is {state!r}, which is not a selector's.")
        numbers = [state[key] for key in ("epoch", "position", "drawn_epoch", "rows", "shift")]
        epoch, position, drawn, rows, shift = numbers
        inside = bool(state["inside"])
        whole = all(type(number) is int for number in numbers)
        place = whole and 0 <= position * self.batch_size < max(rows, 0 if inside else 1)
        if not place or epoch < 1 or drawn < 0:
            raise ValueError(
                f"The state stands at epoch {epoch}, batch {position}, of an epoch of {rows} rows "
                f"in batches of {self.batch_size}."
            )
        self.rows = rows
        self.drawn_epoch = epoch if inside else drawn
        self.upcoming = epoch + 1 if inside else epoch
        self.running = self.resuming = inside
        self.ledger = Ledger(position if inside else self.batches, told=bool(state["told"]))
        self.count = EpochCount(shift)
        self.restored = self.untouched = inside or epoch > 1  # at the start there is no place
