"""Which of the batches drawn in an epoch were trained: those observed in the order drawn."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from torch import Tensor

_AHEAD = 4096  # more batches than any loader draws ahead of the training loop

Batches = deque["np.ndarray[Any, Any]"]


class Ledger:
    """Matches what is observed with what was drawn, for one epoch from batch ``position`` on.

    A loader with workers draws batches ahead of the training loop. Where drawn batches are
    observed in turn, whole or in consecutive parts, those *observed* tell how far training came;
    where they are not, the batches drawn do. One that was observed so, in whichever epoch, tells
    that others will be (``told``). ``late`` are batches of the epoch before that may still be
    observed.
    """

    def __init__(self, position: int, *, told: bool, late: Batches | None = None) -> None:
        self.told = told
        self.drawn = self._matched = self._first = position  # counts of batches
        self.waiting: Batches = deque()  # drawn, not observed yet; of the first perhaps a part
        self._late: Batches = deque() if late is None else late
        self._in_turn, self._partly = True, False
        self._rows_drawn = self._rows_told = self._weighed = 0
        self.watched = False
        """Whether the iterator that draws the epoch is alive."""
        self.prefetched = False
        """Whether the iterator was asked for more before its last batch was observed."""
        self.passed = False
        """Whether a pass over all rows was observed since the epoch began."""

    def next(self, position: int) -> Ledger:
        """The ledger of what is drawn from batch ``position`` of an epoch on, after this one."""
        return Ledger(position, told=self.told, late=self.waiting or self._late)

    def asked(self) -> None:
        """The next batch was asked for, or the end of the epoch found."""
        self.prefetched = self.prefetched or bool(self.waiting)

    def drew(self, batch: list[int]) -> None:
        """A batch was drawn."""
        self.asked()
        self.drawn += 1
        self._rows_drawn += len(batch)
        if self._in_turn:
            self.waiting.append(np.array(batch))
            if len(self.waiting) > _AHEAD:
                self._lose_count()

    def observed(self, rows: Any) -> bool:
        """Rows were observed; any but those that come next end the matching.

        True where they completed a batch.
        """
        self._rows_told += len(rows)
        if not self._in_turn or not len(rows):
            return False
        before = len(self.waiting)
        if not _taken(self.waiting, rows):
            if not _taken(self._late, rows):
                self._lose_count()
            return False
        self._late.clear()
        self._partly = len(self.waiting) == before
        if self._partly:
            return False
        self._matched, self.told = self._matched + 1, True
        return True

    def weighed(self) -> None:
        """Somebody asked for the loss weights of a batch."""
        self._weighed += 1

    def _lose_count(self) -> None:
        self._in_turn = False
        self.waiting.clear()
        self._late.clear()

    @property
    def counts(self) -> bool:
        """Whether observed batches tell how far training came."""
        return self._in_turn and (self.told or self._partly)

    @property
    def trained(self) -> int:
        """How many batches of the epoch were trained, as far as one can tell."""
        return self._matched if self.counts else self.drawn

    @property
    def observed_any(self) -> bool:
        """Whether anything was observed since the epoch began."""
        return self._rows_told > 0

    @property
    def untold(self) -> bool:
        """Whether batches were drawn, and nothing of this epoch was observed."""
        return bool(self._rows_drawn) and not self.observed_any and not self.passed

    def may_skip(self, *, running: bool, full_pass: bool) -> bool:
        """Whether :attr:`trained` may count batches that workers drew ahead of training.

        Where nothing was ever observed, an epoch drawn to its end is taken for trained.
        """
        if full_pass:  # no batch is observed; but who asks for its loss weights trains it
            return not self.passed and self._weighed < self.drawn - self._first
        if self.counts or not self._rows_drawn:
            return False
        return self._rows_told < self._rows_drawn if self._rows_told else running


def _taken(batches: Batches, rows: Any) -> bool:
    """Take ``rows`` off the first batch, if it begins with them."""
    if not batches:
        return False
    first = batches[0]
    if not _same(rows, first[: len(rows)]):
        return False
    if len(rows) == len(first):
        batches.popleft()
    else:
        batches[0] = first[len(rows) :]
    return True


def _same(rows: Any, expected: np.ndarray[Any, Any]) -> bool:
    """Whether rows are those expected; of rows on an accelerator only their number is known."""
    if isinstance(rows, Tensor):
        return len(rows) == len(expected)
    return np.array_equal(rows, expected)
