"""Runs that train side by side: which of a grid do, and the process that trains them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from d2ace._util.callbacks import Watch
from d2ace.benchmark.plan.specs import RunSpec
from d2ace.models import MLP
from d2ace.selectors import SELECTORS
from d2ace.training import (
    RunInterrupted,
    StackedRun,
    may_stack,
    same_stack,
    train_stack,
)

from .execute import PATIENCE, failure, ready
from .workplace import held, lock_of, make_place

MOST = 32
"""Runs in a stack."""

NARROW = 256
"""Units of an MLP, over its hidden layers, up to which a stack is chosen by itself.

A run takes 0.4 of the processor's time in a stack with 64 x 3 or 256 x 1 units, and 0.7 with the
default 512 x 3 (benchmarks/stack.py)."""


def stacks(specs: Iterable[RunSpec], slots: int, *, wanted: bool | None) -> list[list[RunSpec]]:
    """Runs to train side by side, in the order of the first of each; those of one seed together.

    They differ in nothing but method and seed, and leave none of the ``slots`` without work.
    ``wanted``: all that can, none, or (None) those to whom it makes a difference.
    """
    waiting = list(specs)
    alike: dict[str, list[RunSpec]] = {}
    for spec in waiting:
        chosen = may_stack(spec.config) and (pays(spec.config) if wanted is None else wanted)
        own = same_stack(spec.config) if chosen else spec.key
        alike.setdefault(own, []).append(spec)
    most = min(MOST, -(-len(waiting) // slots))
    found = []
    for group in alike.values():
        group.sort(key=lambda spec: spec.config["seed"])
        pieces = -(-len(group) // most)
        size = -(-len(group) // pieces)
        found += [group[start : start + size] for start in range(0, len(group), size)]
    return found


def pays(config: dict[str, Any]) -> bool:
    """Whether a stack gains much on a run that may be in one, and runs no code but the library's.

    Code of your own is kept apart from other runs unless you ask for a stack.
    """
    options = {**MLP.presets["paper"], **config["model_options"]}
    width, depth = options["h"], options["L"]
    numbers = isinstance(width, int) and isinstance(depth, int)  # anything else is refused later
    return numbers and width * depth <= NARROW and config["selector"] in SELECTORS


def execute_stack(runs: list[dict[str, Any]], threads: int, report: Watch) -> None:
    """`execute` for several runs, each with a ``config`` and a ``folder``.

    Messages of a run have its number as ``run``. What is raised is no error of any one run.
    """
    asked: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        asked.append(signum)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, note)
    together: list[StackedRun] = []
    with ExitStack() as left:
        for number, one in enumerate(runs):
            place = Path(one["folder"])
            say = partial(_say, report, number)
            lock = left.enter_context(ExitStack())
            try:
                make_place(place.parent)
                lock.enter_context(held(lock_of(place), PATIENCE))
                config = ready(one["config"], place)
            except Exception as error:
                lock.close()
                say(failure(place, error))
                continue
            together.append(StackedRun(config, place, _watch(say), _ended(say, place, lock)))
        if asked:
            for run in together:
                run.ended(RunInterrupted(asked[0], "stopped before it began"))
        elif together:
            train_stack(together, threads)


def _say(report: Watch, number: int, message: dict[str, Any]) -> None:
    report({**message, "run": number})


def _watch(say: Watch) -> Watch:
    return lambda entry: say({"epoch": entry["epoch"]})


def _ended(say: Watch, place: Path, lock: ExitStack) -> Callable[[Exception | None], None]:
    def ended(error: Exception | None) -> None:
        lock.close()  # first: the parent may remove the folder as soon as it hears
        if error is None:
            say({"state": "finished"})
        elif isinstance(error, RunInterrupted):
            say({"state": "stopped"})
        else:
            say(failure(place, error))

    return ended
