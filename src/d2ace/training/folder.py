"""The folder of a run, which stays valid whenever the run is killed.

run.json        the configuration, and a list of the run's files
checkpoint.pt   everything a run needs to resume
best.pt         weights of the best epoch, once the run is finished
record.npz      case studies, with record=True
insights.pt     probably wrong labels and hard rows, with insights=True
result.json     the result, written last
unfinished/     needed only to resume: the checkpoint before (previous.pt), and the weights of the
best epochs so far (best-<e>.pt) that the checkpoints refer to

A run removes and replaces only these files, and only those that it wrote itself.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from d2ace._util.atomic import remove_leftovers
from d2ace._util.errors import RunError, UserError
from d2ace._util.locks import Busy, locked

from .checkpoint import BEST, CHECKPOINT, LOOP, SPENT
from .config import RunConfig, fault_of_config, protocol_of
from .kept_insights import INSIGHTS
from .problem import Problem
from .result import RunResult
from .verified import (
    AGAIN,
    FORMAT,
    elsewhere,
    fault_of,
    load_json,
    load_tensors,
    make_folder,
    save_bytes,
    save_json,
    save_tensors,
)

__all__ = ["RunFolder", "Saved", "described", "differences", "saved_in"]

PATIENCE = 10.0  # seconds to wait for an earlier run and its loader workers
_UNFINISHED = "unfinished"
_OPTIONAL = {"record.npz": "record", INSIGHTS: "insights"}  # file: setting
_FILES = ["run.json", "checkpoint.pt", "best.pt", "result.json", *_OPTIONAL, _UNFINISHED]


@dataclass(frozen=True)
class Saved:
    """A checkpoint read from its file."""

    place: Path
    content: dict[str, Any]
    best: Path | None = None
    weights: dict[str, Any] | None = None
    """Weights of the best epoch so far, if one has ended, read from ``best``."""


class RunFolder:
    """Reads and writes the files of one run; every write is atomic."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path = path
        self.config = config
        self._named = 0  # the best epoch that the last checkpoint names

    def check(self, *, resume: bool) -> None:
        """Refuse the folder of another run, or one with files that no run wrote.

        A run that was refused or killed before it saved anything does not block the folder.
        """
        self.refuse_strangers()
        if resume and saved_in(self.path):
            self._refuse_foreign(described(self.path), self.path / "run.json")

    def refuse_strangers(self) -> None:
        """Refuse a folder where this run would replace files that no run wrote."""
        present = _present(self.path, (*_files_of(self.config), ".lock"))
        own = _own(self.path)  # read last: a run there writes run.json first
        for name, found in present.items():
            if name in own or (name == ".lock" and (own or not found.st_size)):
                if not _is_right(found.st_mode, name):
                    raise RunError(
                        f"{self.path / name} was not written by a run; it was left alone: "
                        f"{elsewhere()}."
                    )
            elif own:
                raise RunError(
                    f"{self.path} holds {name}, which the run there did not write; it was left "
                    f"alone: {elsewhere()}, or move it away."
                )
            else:
                raise RunError(
                    f"{self.path} holds {name} without run.json, so it belongs to no known run; it "
                    f"was left alone: {elsewhere()}."
                )

    def finished(self, problem: Problem, processes: int) -> RunResult | None:
        """The result, if this run has already finished with these data and processes."""
        path = self.path / "result.json"
        if not path.exists():
            return None
        result = RunResult.read(path)
        self._refuse_foreign(result.config, path)
        if result.dataset["digest"] != problem.digest:
            raise self._other_data(path)
        self._refuse_other_processes(path, result.environment["devices"], processes)
        best = self.path / "best.pt"
        if best.exists():
            content = load_tensors(best, "saved weights", BEST, remedy=lambda: AGAIN)
            self._refuse_other_names(best, content, problem)
        return result

    def open(self, *, resume: bool) -> None:
        """Claim the folder for this run; without ``resume``, remove the files of an earlier one.

        Call it after every check that may refuse the run, and after :meth:`load`.
        """
        with self._removing():
            if not resume:
                for name in _own(self.path) - {_UNFINISHED, "run.json"}:
                    (self.path / name).unlink(missing_ok=True)
            if not resume or saved_in(self.path) is None:
                self._clear_unfinished()
            remove_leftovers(self.path)
        description = {"config": self.config.to_dict(), "files": _files_of(self.config)}
        save_json(self.path / "run.json", description)
        make_folder(self._unfinished)
        with self._removing():
            remove_leftovers(self._unfinished)

    def load(self, problem: Problem, processes: int) -> Saved | None:
        """The checkpoint, if there is one; one of another run or other data is refused."""
        newest = self.path / "checkpoint.pt"
        if newest.exists():
            saved = self._read(newest, problem, processes, self._remedy(problem, processes))
        elif self._previous.exists():  # moved there when a run was killed
            saved = self._read(self._previous, problem, processes, elsewhere)
        else:
            return None
        self._named = saved.content["loop"]["best_epoch"]
        return saved

    def _remedy(self, problem: Problem, processes: int) -> Callable[[], str]:
        """The remedy for a damaged checkpoint, or for one with damaged weights."""

        def remedy() -> str:
            try:
                if self._previous.exists():
                    self._read(self._previous, problem, processes, elsewhere)
                    return (
                        f"move checkpoint.pt away to resume from {self._previous}, an intact one, "
                        f"or {elsewhere()}"
                    )
            except (RunError, UserError):  # damaged too
                pass
            return f"move checkpoint.pt away to start afresh, or {elsewhere()}"

        return remedy

    def _read(
        self, path: Path, problem: Problem, processes: int, remedy: Callable[[], str]
    ) -> Saved:
        content = load_tensors(path, "a checkpoint", CHECKPOINT, remedy=remedy)
        loop, config = content["loop"], _plain(content["config"])
        fault = fault_of(loop, LOOP)
        fault = fault or fault_of(content["spent"], SPENT) or fault_of_config(config)
        if fault is not None:
            raise RunError(
                f"{path} is not a checkpoint of this version (it {fault}); it was left alone: "
                f"{remedy()}."
            )
        self._refuse_foreign(config, path)
        if content["data"] != problem.digest:
            raise self._other_data(path)
        self._refuse_other_processes(path, content["processes"], processes)
        if not loop["best_epoch"]:
            return Saved(path, content)
        best, weights = self._load_best(loop["best_epoch"], remedy)
        self._refuse_other_names(best, weights, problem)
        return Saved(path, content, best, weights["weights"])

    def _other_data(self, path: Path) -> RunError:
        return RunError(
            f"{path} was saved with other data than {self.config.data} has now; it was left "
            "alone: restore the data, or choose another folder with out."
        )

    def _refuse_other_names(self, best: Path, content: dict[str, Any], problem: Problem) -> None:
        """Refuse changed names, as predictions would have the old ones."""
        for kind in ("feature_names", "label_names"):
            if content[kind] != list(getattr(problem, kind)):
                raise RunError(
                    f"{best} was saved with other {kind.replace('_', ' ')} than {self.config.data} "
                    "has now; it was left alone: restore the names, or choose another folder with "
                    "out."
                )

    def _refuse_other_processes(self, path: Path, before: int, now: int) -> None:
        if before != now:
            raise UserError(
                f"{path} was saved by {before} process(es), but {now} would draw other batches; "
                f"it was left alone: use devices={before}, or another folder with out."
            )

    def save(
        self, loop: dict[str, Any], spent: dict[str, float], digest: str, processes: int
    ) -> None:
        """Write the checkpoint, keep the one before, and remove weights that neither needs."""
        save_tensors(
            self.path / "checkpoint.pt",
            {
                "format": FORMAT,
                "config": json.dumps(self.config.to_dict()),
                "data": digest,
                "processes": processes,
                "spent": spent,
                "loop": loop,
            },
            before=self._previous,
        )
        with self._removing():
            self._forget_best(keep=(self._named, loop["best_epoch"]))
        self._named = loop["best_epoch"]

    def save_best(self, epoch: int, content: dict[str, Any]) -> None:
        """Keep the weights of the best epoch so far, and those the checkpoint refers to."""
        save_tensors(self._best(epoch), {"format": FORMAT, "epoch": epoch, **content})

    def _load_best(self, epoch: int, remedy: Callable[[], str]) -> tuple[Path, dict[str, Any]]:
        for path in (self._best(epoch), self.path / "best.pt"):
            if path.exists():
                content = load_tensors(path, f"the weights of epoch {epoch}", BEST, remedy=remedy)
                if content["epoch"] == epoch:
                    return path, content
        raise RunError(
            f"{self._best(epoch)}, the weights of the best epoch, is missing; {remedy()}."
        )

    def keep(self, best_epoch: int, record: bytes | None, insights: dict[str, Any] | None) -> None:
        """Write the files of a finished run, except the result."""
        if record is not None:
            save_bytes(self.path / "record.npz", record)
        if insights is not None:
            save_tensors(self.path / INSIGHTS, insights)
        best = self._best(best_epoch)
        if best.exists():  # otherwise copied before this process was killed
            save_bytes(self.path / "best.pt", best.read_bytes())

    def finish(self, result: RunResult) -> None:
        """Write the result; it comes last, so that a run with a result is complete."""
        with self._removing():
            self._clear_unfinished()  # its weights are in best.pt now
        result.write(self.path / "result.json")

    @property
    def _unfinished(self) -> Path:
        return self.path / _UNFINISHED

    @property
    def _previous(self) -> Path:
        return self._unfinished / "previous.pt"

    def _best(self, epoch: int) -> Path:
        return self._unfinished / f"best-{epoch}.pt"

    def _forget_best(self, keep: tuple[int, ...]) -> None:
        for path in self._unfinished.glob("best-*.pt"):
            number = re.fullmatch(r"best-(\d+)\.pt", path.name)
            if number and int(number[1]) not in keep and path.is_file():
                path.unlink(missing_ok=True)

    def _clear_unfinished(self) -> None:
        if not self._unfinished.is_dir():
            return
        self._previous.unlink(missing_ok=True)
        self._forget_best(keep=())
        remove_leftovers(self._unfinished)
        with suppress(OSError):  # another program put a file there
            self._unfinished.rmdir()

    @contextmanager
    def _removing(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise RunError(
                f"{problem.filename or self.path} could not be removed "
                f"({problem.strerror or problem}); make the folder writable, or {elsewhere()}."
            ) from problem

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the folder while a run works here; the lock ends with its process.

        Change files of the folder only inside this.
        """
        make_folder(self.path)
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.path / ".lock", PATIENCE))
            except Busy as problem:
                raise RunError(
                    f"Another process is training in {self.path}; wait for it, or choose another "
                    "folder with out."
                ) from problem
            except OSError as problem:
                raise RunError(
                    f"{self.path} cannot be locked ({problem.strerror or problem}); {elsewhere()}."
                ) from problem
            yield

    def _refuse_foreign(self, theirs: dict[str, Any], path: Path) -> None:
        differing = differences(self.config.to_dict(), theirs)
        if differing:
            raise UserError(
                f"{path} belongs to another run ({', '.join(differing)}); it was left alone: "
                "choose another folder with out, or switch resume off to start over."
            )


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """In which settings two runs differ, in words."""
    ours = json.loads(json.dumps(ours))
    theirs = {**protocol_of(theirs.get("model")), **theirs}  # saved before a setting existed
    return [
        f"{key} {theirs.get(key)!r} instead of {value!r}"
        for key, value in ours.items()
        if theirs.get(key) != value
    ]


def saved_in(folder: Path) -> str | None:
    """The first file that a run needs and the folder lacks, or None."""
    names = ("checkpoint.pt", "best.pt", "result.json", f"{_UNFINISHED}/previous.pt")
    return next((name for name in names if os.path.exists(folder / name)), None)


def described(folder: Path) -> dict[str, Any]:
    """The configuration of the run in a folder."""
    config: dict[str, Any] = _description(folder)["config"]
    return config


def _own(folder: Path) -> set[str]:
    """The files in a folder that its run wrote or will write."""
    if not os.path.lexists(folder / "run.json"):
        return set()
    listed = _description(folder)["files"]
    return {name for name in _FILES if name in listed} | {"run.json"}


def _description(folder: Path) -> dict[str, Any]:
    path, parts = folder / "run.json", {"config": dict, "files": list}
    what, remedy = "the description of a run", f"restore it, or {elsewhere()}"
    content = load_json(path, what, parts, remedy=lambda: remedy)
    fault = fault_of_config(content["config"])
    if fault is not None:
        raise RunError(
            f"{path} cannot be read as {what} (its config {fault}); it was left alone: {remedy}."
        )
    return content


def _files_of(config: RunConfig) -> list[str]:
    asked = [name for name, setting in _OPTIONAL.items() if getattr(config, setting)]
    return [name for name in _FILES if name not in _OPTIONAL or name in asked]


def _present(folder: Path, names: Iterable[str]) -> dict[str, os.stat_result]:
    """The names that exist; links are not followed."""
    found = {}
    for name in names:
        with suppress(OSError):
            found[name] = os.lstat(folder / name)
    return found


def _is_right(mode: int, name: str) -> bool:
    """Links are not followed, so that their targets are never removed."""
    return stat.S_ISDIR(mode) if name == _UNFINISHED else stat.S_ISREG(mode)


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
