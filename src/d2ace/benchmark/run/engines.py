"""Where runs take place: processes on this machine (here), or a Ray cluster (`ray_engine`)."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from d2ace._util.machine import cores
from d2ace.benchmark.plan.specs import RunSpec

from .execute import outcome, sentence

KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**33)}
"""Have glibc keep what tensors of a few MiB give back, instead of asking the system for it again
in every step: a quarter of PACA's time (benchmarks/memory.py). Other systems do not read these."""


@dataclass(frozen=True)
class Event:
    """What happened to a run: an epoch ended, or the run did."""

    spec: RunSpec
    kind: str
    """"epoch", "finished", "failed" or "stopped"; "alone" of a run whose stack was lost."""
    epoch: int = 0
    result: dict[str, Any] | None = None
    recording: bytes | None = None
    error: str = ""


class Engine(Protocol):
    """Runs several runs at the same time."""

    slots: int
    """How many."""

    def start(self, runs: Sequence[tuple[RunSpec, Path]]) -> None:
        """Begin a run in its folder, or several that train side by side.

        Only while fewer than ``slots`` are running; those that train side by side count as one.
        """

    def events(self, seconds: float) -> list[Event]:
        """What happened since; waits up to ``seconds`` for something to."""

    def stop(self) -> None:
        """Ask the runs to save and end; their events tell when they did."""

    def close(self) -> None:
        """End everything."""


def final_event(spec: RunSpec, folder: Path, message: dict[str, Any] | None) -> Event:
    """The event for the last message of a run; None if it ended without one."""
    state = None if message is None else message["state"]
    if state == "finished":
        try:
            left = outcome(folder)
        except Exception as error:
            return Event(spec, "failed", error=sentence(error))
        if left is not None:
            return Event(spec, "finished", result=left[0], recording=left[1])
    if state == "stopped":
        return Event(spec, "stopped")
    return Event(spec, "failed", error=(message or {}).get("error", "the run left no result"))


class LocalEngine:
    """``jobs`` worker processes that share the processor's cores among them."""

    def __init__(self, jobs: int, log: Path) -> None:
        self.slots = jobs
        self.threads = max(1, cores() // jobs)
        self._log = log.open("ab")
        self._lines: queue.SimpleQueue[tuple[_Worker, bytes | None]] = queue.SimpleQueue()
        self._workers: list[_Worker] = []

    def start(self, runs: Sequence[tuple[RunSpec, Path]]) -> None:
        """Hand the runs to an idle worker, or to a new one."""
        worker = next((each for each in self._workers if not each.runs), None)
        if worker is None:
            worker = _Worker(self._lines, self.threads, self._log)
            self._workers.append(worker)
        worker.start(runs, self.threads)

    def events(self, seconds: float) -> list[Event]:
        """What the workers said."""
        happened: list[Event] = []
        try:
            while True:
                worker, line = self._lines.get(timeout=0 if happened else seconds)
                happened += self._gone(worker) if line is None else worker.heard(json.loads(line))
        except queue.Empty:
            return happened

    def _gone(self, worker: _Worker) -> list[Event]:
        self._workers.remove(worker)
        return worker.gone()

    def stop(self) -> None:
        """Close the workers' input, which is how they know."""
        for worker in self._workers:
            worker.end()

    def close(self) -> None:
        """End the workers, at once where they still run."""
        for worker in self._workers:
            worker.end()
            if worker.runs:
                worker.process.kill()
            worker.process.wait()
            worker.reader.join()
        self._log.close()


class _Worker:
    """A worker process, and the run that it has, or the runs of a stack."""

    def __init__(self, lines: Any, threads: int, log: Any) -> None:
        self.runs: list[tuple[RunSpec, Path]] = []
        self._last: dict[int, dict[str, Any]] = {}
        self._over: set[int] = set()
        self._asked_to_end = False
        limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "d2ace.benchmark.run.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=KEEP_MEMORY | os.environ | limits,
            start_new_session=True,  # Ctrl-C is for us; we tell the workers
        )
        self.reader = threading.Thread(target=self._read, args=(lines,), daemon=True)
        self.reader.start()

    def _read(self, lines: Any) -> None:
        assert self.process.stdout is not None  # noqa: S101
        with self.process.stdout as output:
            for line in output:
                lines.put((self, line))
        lines.put((self, None))

    def start(self, runs: Sequence[tuple[RunSpec, Path]], threads: int) -> None:
        self.runs, self._last, self._over = list(runs), {}, set()
        asked = [{"config": spec.config, "folder": str(folder)} for spec, folder in runs]
        task = {"runs": asked, "threads": threads}
        assert self.process.stdin is not None  # noqa: S101
        with contextlib.suppress(BrokenPipeError):  # died while idle: the end of its output says so
            self.process.stdin.write((json.dumps(task) + "\n").encode())
            self.process.stdin.flush()

    def heard(self, message: dict[str, Any]) -> list[Event]:
        if not self.runs:
            return []
        if "exit" in message:
            return self._ended(message["exit"])
        number = message.get("run", 0)
        spec, folder = self.runs[number]
        if "epoch" in message:
            return [Event(spec, "epoch", epoch=message["epoch"])]
        self._last[number] = message
        if len(self._last) == len(self.runs):  # the last one ends with the process
            return []
        self._over.add(number)
        return [final_event(spec, folder, message)]

    def gone(self) -> list[Event]:
        """The worker itself has ended: by itself after its run, or in the middle of one."""
        code = self.process.wait()
        self._close_input()
        return self._ended(code) if self.runs else []

    def _ended(self, code: int) -> list[Event]:
        runs, self.runs = self.runs, []
        ends = []
        for number, (spec, folder) in enumerate(runs):
            if number in self._over:
                continue
            last = self._last.get(number)
            lost = self._lost(spec, code, alone=len(runs) == 1)
            ends.append(lost if last is None else final_event(spec, folder, last))
        return ends

    def _lost(self, spec: RunSpec, code: int, *, alone: bool) -> Event:
        """The end of a run whose process did not say how it ended."""
        if self._asked_to_end:
            return Event(spec, "stopped")
        if not alone:  # nobody knows which of them it was
            return Event(spec, "alone")
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return Event(spec, "failed", error=f"the process of the run {how}")

    def end(self) -> None:
        self._asked_to_end = True
        self._close_input()

    def _close_input(self) -> None:
        assert self.process.stdin is not None  # noqa: S101
        with contextlib.suppress(BrokenPipeError):  # of a task that a dead worker never read
            self.process.stdin.close()
