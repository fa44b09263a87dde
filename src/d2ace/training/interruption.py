"""Signals to end, checked between two steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from d2ace._util.errors import RunError
from d2ace._util.signals import heeded_signals

__all__ = ["Interruption", "RunInterrupted"]


class RunInterrupted(RunError):
    """A run that ended on a signal, after saving a checkpoint."""

    def __init__(self, signum: int, sentence: str) -> None:
        super().__init__(sentence)
        self.signum = signum

    def __reduce__(self) -> tuple[Any, ...]:
        """For the process that began the run."""
        return RunInterrupted, (self.signum, str(self))


class Interruption:
    """While entered, a signal only sets a flag; a second one acts as usual.

    Without ``heed``, when nothing could be saved, all act as usual.
    """

    def __init__(self, *, heed: bool = True) -> None:
        self.signum: int | None = None
        self._heed = heed
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        alone = threading.current_thread() is threading.main_thread()  # to set handlers
        if self._heed and alone:
            self._previous = {each: signal.signal(each, self._note) for each in heeded_signals()}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.signum = signum
        self._restore()

    def _restore(self) -> None:
        for each, handler in self._previous.items():
            signal.signal(each, handler)
        self._previous = {}
