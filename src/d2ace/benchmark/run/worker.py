"""A process that runs the tasks it reads: ``python -m d2ace.benchmark.run.worker``.

It reads a run (or the runs of a stack) per line from its standard input and writes what happens,
a JSON object per line, to its standard output. Where it can (Linux), it imports everything once and
forks a process for each line, so that runs are as apart as processes are but do not pay seconds of
imports. Elsewhere it ends after one line. When its input ends, because its parent is done or dead,
so does it: the run is asked to save and, if it takes too long, killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import traceback
from typing import Any

from d2ace._util.callbacks import Watch
from d2ace._util.signals import SIGNALS

from .execute import execute
from .stacks import execute_stack

GRACE = 60.0
"""Seconds a run has to reach a step's end and save."""


def main() -> None:
    """Serve until the input ends."""
    for signum in SIGNALS:  # the parent says when to end
        signal.signal(signum, signal.SIG_IGN)
    channel = os.dup(1)
    os.dup2(2, 1)  # what a run prints must not get between our lines
    report = _reporter(channel)
    if sys.platform == "linux":
        _preload()
        _serve(report)
    else:
        _run_one(report)


def _reporter(channel: int) -> Watch:
    def report(message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # the parent is gone, and so is our input
            os.write(channel, (json.dumps(message) + "\n").encode())

    return report


def _preload() -> None:
    """Import what every run needs; nothing that starts threads may be computed here."""
    import lightning_fabric  # noqa: F401

    import d2ace.models
    import d2ace.training  # noqa: F401


def _serve(report: Watch) -> None:
    """A forked process per run."""
    while task := _next_task():
        stop, ending = os.pipe()  # ends when we want the run to, or are gone
        alive, lives = os.pipe()  # ends when the run's process does
        child = os.fork()
        if child == 0:
            os.close(ending)
            os.close(alive)
            _end_with(stop)
            _execute(task, report)
        os.close(stop)
        os.close(lives)
        report({"exit": _wait(child, alive, ending)})


def _next_task() -> dict[str, Any] | None:
    """The next line, read without a buffer: what follows must stay visible to `select`."""
    line = b""
    while not line.endswith(b"\n"):  # the next task comes only after this one has ended
        piece = os.read(0, 65536)
        if not piece:
            return None
        line += piece
    task: dict[str, Any] = json.loads(line)
    return task


def _wait(child: int, alive: int, ending: int) -> int:
    """Until the run's process ends; if the input ends first, the run must end, too."""
    ready, _, _ = select.select([0, alive], [], [])
    os.close(ending)
    if alive not in ready and not select.select([alive], [], [], GRACE)[0]:
        os.kill(child, signal.SIGKILL)
    os.close(alive)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run_one(report: Watch) -> None:
    """One run in this process."""
    task = _next_task()
    if task:
        _end_with(0)
        _execute(task, report)


def _end_with(pipe: int) -> None:
    """Have this process save and end when ``pipe`` does."""

    def watch() -> None:
        while os.read(pipe, 1):
            pass
        for _ in range(int(GRACE)):  # again, for the first may come before anybody listens
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _execute(task: dict[str, Any], report: Watch) -> None:
    try:
        if len(task["runs"]) > 1:
            execute_stack(task["runs"], task["threads"], report)
        else:
            (one,) = task["runs"]
            execute(one["config"], one["folder"], task["threads"], report)
    except Exception:  # of a stack as a whole: its runs are tried one by one
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)  # no clean-up of things that the forking process owns


if __name__ == "__main__":
    main()
