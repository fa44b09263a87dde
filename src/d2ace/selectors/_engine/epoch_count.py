"""How a framework counts epochs, against a selector's own count from 1."""

from __future__ import annotations


class EpochCount:
    """What to add to the numbers that frameworks pass to ``set_epoch``.

    Several may count, a loop beside its framework; each is known by its shift.
    """

    def __init__(self, shift: int = 0) -> None:
        self.shift = shift
        self._others: set[int] = set()
        self._last: int | None = None  # what was passed last
        self._named = False  # ... for what comes next: nothing was drawn since
        self._spent = False  # ... which names an epoch that the training loop has ended

    def epoch(self, count: int, now: int, *, restored: bool) -> int:
        """The epoch that ``count`` means, in epoch ``now`` or before it.

        A state that was ``restored`` keeps its place.
        """
        if restored:
            self._join(now - count)
        elif count == 0 and self.shift == 0:
            if self._last is not None:  # somebody else has counted from 1
                self._others.add(0)
            self.shift = 1
        elif self._spent and count == self._last:  # it counts epochs drawn to their end only
            self.shift += 1
        agrees = any(count + other == now for other in self._others)
        epoch = now if agrees else count + self.shift
        if epoch < 1:
            raise ValueError(
                f"set_epoch got {count}, which lies before epoch 1: the first call after a state "
                "is loaded names the place, and later calls count on from there."
            )
        self._last, self._named, self._spent = count, True, False
        return epoch

    def drew(self) -> None:
        """A batch was drawn."""
        self._named = False

    def left(self, epoch: int) -> None:
        """The training loop ended ``epoch`` by itself."""
        if self._last is not None:
            self._spent = epoch == self._last + self.shift
        self._named = False

    def follow(self, before: EpochCount, now: int) -> None:
        """Take ``now`` for what a framework named ``before`` a state was loaded.

        A loader that restores the selector by itself does so after that.
        """
        if before._named and before._last is not None:
            self._join(now - before._last)

    def _join(self, shift: int) -> None:
        self.shift = shift
        self._others.add(shift)
