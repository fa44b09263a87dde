"""A training in legs, each in a process of its own that knows only what the leg before it saved.

A process that has imported a framework and done nothing else is forked for every leg, which
spares the imports and leaves nothing of the leg before in memory.
"""

from __future__ import annotations

import json
import multiprocessing
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Stop = tuple[int, str]
"""After how many batches of the whole training, and at which moment."""

INSIDE, AFTER, BEFORE = "inside", "after", "before"
"""In the loop over batches; after that loop, when it came to its end; before the next one."""


class Stopped(Exception):
    """The leg ends here."""


@dataclass
class Leg:
    """What a training function is given: where it begins, and where it stops."""

    case: dict[str, Any]
    folder: Path
    begin: Path | None
    """What the leg before saved."""
    end: Path
    """Where this leg saves, at its stop."""
    done: int
    """How many batches the legs before trained."""
    stop: Stop | None
    rows: list[list[int]]
    """The batches of this leg, for the training function to fill."""

    def at(self, moment: str) -> bool:
        """Whether this is the stop."""
        return self.stop == (self.done + len(self.rows), moment)


Train = Callable[[Leg], None]


def _legs(case: dict[str, Any], folder: Path) -> Iterator[Leg]:
    begin, done = None, 0
    for number, stop in enumerate([*map(tuple, case["stops"]), None]):
        end = folder / f"saved-{number}"
        yield Leg(case, folder, begin, end, done, stop, [])
        begin, done = end, stop[0] if stop else 0


def _run(train: Train, leg: Leg, sender: Any) -> None:
    try:
        train(leg)
    except Stopped:
        pass
    except BaseException:
        sender.send(traceback.format_exc())
        return
    sender.send(leg.rows)


def run_case(train: Train, case: dict[str, Any], folder: Path) -> list[list[int]] | str:
    """The batches of all legs, or what went wrong."""
    folder.mkdir(parents=True)
    rows: list[list[int]] = []
    context = multiprocessing.get_context("fork")
    for leg in _legs(case, folder):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(train, leg, sender))
        process.start()
        sender.close()
        try:
            told = receiver.recv()
        except EOFError:
            told = "The process died."
        process.join()
        if isinstance(told, str):
            return f"Leg from batch {leg.done} to {leg.stop}: {told}"
        rows += told
    return rows


def main(trains: dict[str, Train], folder: Path) -> None:
    """Run every case of FOLDER/cases.json and write what each drew to FOLDER/drawn.json."""
    cases = json.loads((folder / "cases.json").read_text())
    drawn = {
        name: run_case(trains[case["framework"]], case, folder / str(number))
        for number, (name, case) in enumerate(cases.items())
    }
    (folder / "drawn.json").write_text(json.dumps(drawn))
