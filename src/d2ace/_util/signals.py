"""The signals by which people, schedulers and terminals that are closed ask a process to end."""

from __future__ import annotations

import signal

__all__ = ["SIGNALS", "heeded_signals"]

SIGNALS = tuple(
    signal.Signals[name] for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
)
"""Not every system has all."""


def heeded_signals() -> list[signal.Signals]:
    """Those that this process does not ignore: under ``nohup`` a closed terminal means nothing."""
    return [each for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
