"""Works through a grid: keeps stored runs, resumes half-done ones, notes those that fail."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from d2ace._util.errors import RunError
from d2ace._util.locks import Busy
from d2ace._util.signals import heeded_signals
from d2ace.benchmark.plan.specs import RunSpec
from d2ace.benchmark.store.database import Store

from .engines import Engine, Event
from .execute import outcome
from .monitor import Monitor
from .stacks import stacks
from .workplace import held, lock_of, make_place, remove_run, runs_folder, tidy

__all__ = ["Plan", "Summary", "plan", "run_grid", "runs_folder"]

PAUSE = 0.5  # seconds between two looks at the clock and at signals


@dataclass
class Summary:
    """How many runs of a grid are where, after working on it."""

    stored: int = 0
    """Finished before."""
    finished: int = 0
    failed: int = 0
    failed_before: int = 0
    left: int = 0
    signum: int | None = None
    """The signal that ended the work, if one did."""


@dataclass(frozen=True)
class Plan:
    """The runs of a grid by what is to be done with them; each piece of work once."""

    pending: list[RunSpec]
    stored: list[RunSpec]
    failed: list[RunSpec]
    labels: dict[str, list[RunSpec]]
    """Key -> all the ways in which the run is asked for."""


def plan(
    status_of: Callable[[RunSpec], str | None], specs: Iterable[RunSpec], *, retry: bool = False
) -> Plan:
    """Sort the runs of a grid by their status; a failed one is pending only with ``retry``."""
    labels: dict[str, list[RunSpec]] = {}
    for spec in specs:
        labels.setdefault(spec.key, []).append(spec)
    groups: dict[str | None, list[RunSpec]] = {None: [], "finished": [], "failed": []}
    for alike in labels.values():
        status = status_of(alike[0])
        groups[None if status == "failed" and retry else status].append(alike[0])
    return Plan(groups[None], groups["finished"], groups["failed"], labels)


def run_grid(
    store: Store,
    specs: Iterable[RunSpec],
    make_engine: Callable[[], Engine],
    view: Monitor,
    *,
    retry: bool = False,
    keep: bool = False,
    stack: bool | None = False,
) -> Summary:
    """Do all runs that are not stored; returns when they are done or a signal came.

    Every result is stored as soon as its run has ended; then the run's folder is removed, unless
    ``keep``. ``stack``: whether runs train side by side (``wanted`` of :func:`.stacks.stacks`). If
    this process is killed, at any moment, call it again to resume.
    """
    with _only_one(store):
        work = plan(store.status, specs, retry=retry)
        summary = Summary(stored=len(work.stored), failed_before=len(work.failed))
        store.link(spec for alike in work.labels.values() for spec in alike)
        _sweep(store, work.stored)
        if work.pending:
            _Work(store, work, view, summary, keep=keep, retry=retry, stack=stack).do(make_engine)
        return summary


class _Work:
    """The loop that keeps an engine busy."""

    def __init__(
        self,
        store: Store,
        work: Plan,
        view: Monitor,
        summary: Summary,
        *,
        keep: bool,
        retry: bool,
        stack: bool | None,
    ) -> None:
        self.store, self.view, self.summary = store, view, summary
        self.keep, self.retry, self.stack = keep, retry, stack
        self.labels = work.labels
        self.waiting = list(reversed(work.pending))
        self.together: list[list[RunSpec]] = []  # of waiting runs, those to begin at once
        self.running: list[set[str]] = []  # the keys of such runs

    def do(self, make_engine: Callable[[], Engine]) -> None:
        self.summary.left = len(self.waiting)
        with _signals(self.summary), self.view:
            self._adopt()
            if not self.waiting:
                return
            engine = make_engine()
            try:
                self._loop(engine)
            finally:
                engine.close()

    def _adopt(self) -> None:
        """Store runs that had finished when their parent was killed before it could store them."""
        for spec in list(self.waiting):
            try:
                left = outcome(self._folder(spec))
            except RunError as error:
                if self.retry:  # reported before, and to be made anew
                    remove_run(self._folder(spec))
                    continue
                self.waiting.remove(spec)
                self._handle(Event(spec, "failed", error=str(error)))
                continue
            if left is not None:
                self.waiting.remove(spec)
                self._handle(Event(spec, "finished", result=left[0], recording=left[1]))

    def _loop(self, engine: Engine) -> None:
        stopping = False
        ordered = stacks(reversed(self.waiting), engine.slots, wanted=self.stack)
        self.together = ordered[::-1]
        while self.running or (self.together and not stopping):
            if self.summary.signum is not None and not stopping:
                stopping = True
                self.view.stopping()
                engine.stop()
            while self.together and not stopping and len(self.running) < engine.slots:
                self._start(engine, self.together.pop())
            for event in engine.events(PAUSE):
                self._handle(event)
            self.view.tick([spec for specs in self.together for spec in specs])

    def _start(self, engine: Engine, specs: list[RunSpec]) -> None:
        self.running.append({spec.key for spec in specs})
        engine.start([(spec, self._folder(spec)) for spec in specs])
        for spec in specs:
            self.view.started(spec)

    def _handle(self, event: Event) -> None:
        spec = event.spec
        if event.kind == "epoch":
            self.view.epoch(spec, event.epoch)
            return
        for keys in self.running:
            keys.discard(spec.key)
        self.running = [keys for keys in self.running if keys]
        if event.kind == "alone":
            self.together.append([spec])
            self.view.running.pop(spec.key, None)
            return
        if event.kind == "finished":
            assert event.result is not None  # noqa: S101
            self.store.add(spec, event.result, event.recording)
            self.store.link(self.labels[spec.key])
            self.summary.finished += 1
            self.summary.left -= 1
            tidy(self._folder(spec), keep=self.keep or spec.config["insights"])
        elif event.kind == "failed":
            self.store.fail(spec, event.error)
            self.store.link(self.labels[spec.key])
            self.summary.failed += 1
            self.summary.left -= 1
        self.view.ended(event)

    def _folder(self, spec: RunSpec) -> Path:
        return runs_folder(self.store) / spec.key


def _sweep(store: Store, finished: Iterable[RunSpec]) -> None:
    """Remove what is half done of runs that are stored.

    A worker that outlives a killed parent by much may begin a run that the next parent has
    finished. One that is still at it is left alone; so are folders that were kept on purpose.
    """
    for spec in finished:
        folder = runs_folder(store) / spec.key
        if not folder.is_dir() or (folder / "result.json").exists():
            continue
        with suppress(Busy, RunError), held(lock_of(folder), patience=0):
            tidy(folder)


@contextmanager
def _only_one(store: Store) -> Iterator[None]:
    """One grid at a time works on a store; the lock goes with the process, however it ends."""
    folder = runs_folder(store)
    make_place(folder)
    try:
        with held(folder / "lock", patience=0):
            yield
    except Busy:
        raise RunError(
            f"another process is running a grid on {store.path}; wait for it, or choose "
            "another store (--db, or --out of d2ace demo)."
        ) from None


@contextmanager
def _signals(summary: Summary) -> Iterator[None]:
    """While entered, the first signal to stop is noted; a second one acts as it always did."""
    if threading.current_thread() is not threading.main_thread():  # only it may set handlers
        yield
        return
    before: dict[signal.Signals, Any] = {}

    def note(signum: int, frame: FrameType | None) -> None:
        summary.signum = signum
        for each, handler in before.items():
            signal.signal(each, handler)

    before = {each: signal.signal(each, note) for each in heeded_signals()}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
