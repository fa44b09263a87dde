"""Where the seconds of a run go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

__all__ = ["PARTS", "Clock"]

PARTS = ("recompute", "draw", "observe", "train", "evaluation", "save")


class Clock:
    """Adds up wall-clock seconds by part.

    An accelerator only queues work, so a part counts the time that the host waited for it; whole
    epochs are exact, because an epoch ends with reading the loss.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._inside: list[float] = []  # seconds of parts inside the open parts

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the time inside as ``name``, except for nested parts."""
        start = perf_counter()
        self._inside.append(0.0)
        try:
            yield
        finally:
            spent = perf_counter() - start
            self.seconds[name] += spent - self._inside.pop()
            if self._inside:
                self._inside[-1] += spent

    def move(self, seconds: float, source: str, target: str) -> None:
        """Count some of one part's seconds as another's."""
        self.seconds[source] -= seconds
        self.seconds[target] += seconds
