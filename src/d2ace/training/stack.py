"""Runs that train side by side in one process, some steps of each in turn.

Each is a run of its own, with its selector, its folder and its result, as if it trained alone, and
with the same numbers. Together they prepare the data once for each seed and share dropout masks;
their steps are no more than arithmetic, and a checkpoint is written once a minute.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
from lightning_fabric import Fabric

from d2ace._util.callbacks import Watch
from d2ace._util.random_state import Turn
from d2ace.models import MLP

from .config import RunConfig
from .fabric import make_fabric
from .folder import RunFolder
from .interruption import Interruption
from .problem import Problem
from .run import Run
from .side_by_side import Shared, SideBySide, bytes_of
from .split import make_problem

__all__ = ["StackedRun", "may_stack", "same_stack", "train_stack"]

SAVE_EVERY = 60.0
"""Seconds between two checkpoints of a run, which can resume from there in a stack or alone."""

ROOM = 2**30
"""Bytes that the runs of a stack may take; others wait until some have ended."""

AT_ONCE = 16
"""Steps of a run before it is another's turn: its numbers are in the processor's cache then."""

_OWN = ("selector", "selector_options", "selector_source", "seed")


def same_stack(config: dict[str, Any]) -> str:
    """Equal for configurations that differ in nothing but the method and the seed."""
    return json.dumps({k: v for k, v in config.items() if k not in _OWN}, sort_keys=True)


def may_stack(config: dict[str, Any]) -> bool:
    """Whether a run may be one of a stack: an MLP in float32 on the processor."""
    accelerated = torch.cuda.is_available() or torch.backends.mps.is_available()
    return config["model"] == MLP.name and config["precision"] == "32-true" and not accelerated


@dataclass
class StackedRun:
    """A run to train among others, and whom to tell about it."""

    config: RunConfig
    out: Path
    watch: Watch
    """Called with the history entry of every finished epoch."""
    ended: Callable[[Exception | None], None]
    """Called once, with the error that ended the run (RunInterrupted if asked to stop), or None."""


def train_stack(runs: Sequence[StackedRun], threads: int) -> None:
    """Train runs that `same_stack` calls alike; each ends by itself, and its error is its own."""
    fabric, shared = make_fabric(1, "cpu", runs[0].config.precision), Shared()
    problems: dict[int, Problem] = {}
    with Interruption() as asked:
        waiting = [_Member(run, fabric, problems, shared, asked, threads) for run in reversed(runs)]
        going: list[_Member] = []
        while waiting or going:
            while waiting and sum(each.bytes for each in going) < ROOM:
                member = waiting.pop()
                going += [member] if member.begin() else []
            shared.forget_masks()
            going = [each for each in going if each.steps()]


class _Member:
    """A run of a stack in progress."""

    def __init__(self, run: StackedRun, *among: Any) -> None:
        self._run, self._seconds = run, _Seconds()
        self._steps = _steps(run, self._seconds, *among)
        self.bytes = 0
        """About what it takes while it trains."""

    def begin(self) -> bool:
        """Set up; whether there is anything to train."""
        return self._go_on(1)

    def steps(self) -> bool:
        """Take some steps; whether there may be more."""
        return self._go_on(AT_ONCE)

    def _go_on(self, count: int) -> bool:
        error: Exception | None = None
        try:
            with self._seconds:
                for _ in range(count):
                    self.bytes = next(self._steps)
            return True
        except StopIteration:
            pass
        except Exception as problem:  # the end of this run, and of no other
            error = problem
        self._run.ended(error)
        return False


class _Seconds:
    """Processor seconds of the steps of one run."""

    def __init__(self) -> None:
        self._spent, self._since = 0.0, 0.0

    def __enter__(self) -> None:
        self._since = process_time()

    def __exit__(self, *_: object) -> None:
        self._spent = self()

    def __call__(self) -> float:
        """So far; asked in a step."""
        return self._spent + process_time() - self._since


def _steps(
    asked_for: StackedRun,
    seconds: Callable[[], float],
    fabric: Fabric,
    problems: dict[int, Problem],
    shared: Shared,
    asked: Interruption,
    threads: int,
) -> Iterator[int]:
    """What `train_config` does, a step at a time; gives way with the bytes that the run takes.

    Runs of one seed have the same problem.
    """
    config, started = asked_for.config, perf_counter()
    folder = RunFolder(asked_for.out, config)
    folder.check(resume=True)
    problem = problems.get(config.seed) or problems.setdefault(config.seed, make_problem(config))
    with folder.alone():
        folder.check(resume=True)
        if folder.finished(problem, fabric.world_size) is not None:
            return
        run = Run(
            config,
            problem,
            folder,
            checkpoint_every=None,
            threads=threads,
            watch=asked_for.watch,
            prepared=perf_counter() - started,
            save_every=SAVE_EVERY,
            loop_type=partial(SideBySide, shared=shared),
            processor_clock=seconds,
        )
        turn = Turn(fabric.device, threads)
        going = run.begin(fabric, turn)
        taken = bytes_of(going.loop)
        yield taken
        for _ in run.steps(going, turn, asked):
            yield taken
        run.end(going, turn)
