"""The folder of a run: what is in it, and how it stays whole whenever the run is killed.

run.json        the configuration
checkpoint.pt   everything a run needs to go on
best-<e>.pt     weights of the best epoch so far; the checkpoint says which
best.pt         weights of the best epoch, once the run is finished
record.npz      case studies, where they were asked for
result.json     the result, written last
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from d2ace.errors import RunError, UserError

from .config import RunConfig, protocol_of
from .files import load_tensors, make_folder, save_tensors, write_whole
from .result import RunResult

__all__ = ["RunFolder", "described", "saved_in"]

FORMAT = 1
_PATIENCE = 10.0  # seconds that a run of before may take to end, with its loader workers


class RunFolder:
    """Reads and writes the files of one run; every write is whole or does not happen."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path = path
        self.config = config

    def check(self, *, resume: bool) -> None:
        """Refuse the folder of another run, or one with files that look like a run's.

        A run that was refused or killed before it saved anything does not stand in the way.
        """
        saved = saved_in(self.path)
        if (self.path / "run.json").exists():
            theirs = described(self.path)
            if resume and saved:
                self._refuse_foreign(theirs, "run.json")
        elif saved:
            raise RunError(
                f"{self.path} holds {saved} without run.json, so nobody knows what it belongs "
                "to; it was left alone: choose another folder with out."
            )

    def finished(self, digest: str, processes: int) -> RunResult | None:
        """The result, if this run has ended already with these data and processes."""
        path = self.path / "result.json"
        if not path.exists():
            return None
        result = RunResult.read(path)
        if result.dataset.get("digest", digest) != digest:
            raise self._other_data(path)
        self._refuse_other_processes(path, result.environment["devices"], processes)
        return result

    def open(self, *, resume: bool) -> None:
        """Make the folder this run's; without ``resume``, what an earlier one left goes.

        Comes after everything that may refuse the run.
        """
        if not resume and (self.path / "run.json").exists():
            for name in ("result.json", "checkpoint.pt", "record.npz", "best.pt", "run.json"):
                (self.path / name).unlink(missing_ok=True)
        for left in self.path.glob(".*.pt.*.tmp"):  # by a process killed while it wrote
            left.unlink(missing_ok=True)
        if not (self.path / "checkpoint.pt").exists():
            self._forget_best(keep=None)
            text = json.dumps({"format": FORMAT, "config": self.config.to_dict()}, indent=1)
            write_whole(self.path / "run.json", text.encode())

    def load(self, digest: str, processes: int) -> dict[str, Any] | None:
        """The checkpoint, if there is one; one of another run or other data is refused."""
        path = self.path / "checkpoint.pt"
        if not path.exists():
            return None
        content = load_tensors(path, "a checkpoint")
        if content.get("format") != FORMAT or "loop" not in content:
            raise RunError(
                f"{path} holds no checkpoint of this version; it was left alone: choose another "
                "folder with out."
            )
        self._refuse_foreign(json.loads(content["config"]), "checkpoint.pt")
        if content["data"] != digest:
            raise self._other_data(path)
        self._refuse_other_processes(path, content["processes"], processes)
        return content

    def _other_data(self, path: Path) -> RunError:
        return RunError(
            f"{path} was saved with other data than {self.config.data} is now; it was left "
            "alone: restore the data, or choose another folder with out."
        )

    def _refuse_other_processes(self, path: Path, before: int, now: int) -> None:
        if before != now:
            raise UserError(
                f"{path} was saved by {before} process(es), whose batches are not those of {now}; "
                f"it was left alone: use devices={before}, or another folder with out."
            )

    def save(
        self, loop: dict[str, Any], spent: dict[str, float], digest: str, processes: int
    ) -> None:
        """Write the checkpoint, then drop weights it no longer needs."""
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
        )
        self._forget_best(keep=loop["best_epoch"])

    def save_best(self, epoch: int, content: dict[str, Any]) -> None:
        """Keep the weights of the best epoch so far beside those the checkpoint refers to."""
        save_tensors(self._best(epoch), {"format": FORMAT, "epoch": epoch, **content})

    def load_best(self, epoch: int) -> dict[str, Any]:
        """The weights of ``epoch``."""
        for path in (self._best(epoch), self.path / "best.pt"):
            if path.exists():
                content = load_tensors(path, "saved weights")
                if content.get("epoch") == epoch:
                    return content
        raise RunError(
            f"{self._best(epoch)}, the weights of the best epoch, is missing; start the run again "
            "with resume off or in another folder."
        )

    def keep(self, best_epoch: int, record: bytes | None) -> None:
        """Write what a finished run leaves beside its result."""
        if record is not None:
            write_whole(self.path / "record.npz", record)
        best = self._best(best_epoch)
        if best.exists():  # else it was copied before this process was killed
            write_whole(self.path / "best.pt", best.read_bytes())

    def finish(self, result: RunResult) -> None:
        """Write the result; it comes last, so that a run with a result is complete."""
        self._forget_best(keep=None)  # which are in best.pt by now
        write_whole(self.path / "result.json", json.dumps(result.to_dict(), indent=1).encode())

    def _best(self, epoch: int) -> Path:
        return self.path / f"best-{epoch}.pt"

    def _forget_best(self, keep: int | None) -> None:
        for path in self.path.glob("best-*.pt"):
            if re.fullmatch(r"best-\d+\.pt", path.name) and path != self._best(keep or 0):
                path.unlink(missing_ok=True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep others out while a run works here; the lock ends with its process.

        Whatever changes a file of the folder belongs inside.
        """
        make_folder(self.path)
        lock = FileLock(self.path / ".lock", timeout=_PATIENCE)
        try:
            lock.acquire()
        except Timeout as problem:
            raise RunError(
                f"Another process is training in {self.path}; wait for it, or choose another "
                "folder with out."
            ) from problem
        try:
            yield
        finally:
            lock.release()

    def _refuse_foreign(self, theirs: dict[str, Any], name: str) -> None:
        ours = json.loads(json.dumps(self.config.to_dict()))
        theirs = {**protocol_of(theirs.get("model")), **theirs}  # of before a setting existed
        differing = [
            f"{key} {theirs.get(key)!r} instead of {value!r}"
            for key, value in ours.items()
            if theirs.get(key) != value
        ]
        if differing:
            raise UserError(
                f"{self.path / name} belongs to another run ({', '.join(differing)}); it was left "
                "alone: choose another folder with out, or switch resume off to start over."
            )


def saved_in(folder: Path) -> str | None:
    """The first of the files in a folder that a run would miss, or None."""
    names = ("checkpoint.pt", "best.pt", "result.json")
    return next((name for name in names if (folder / name).exists()), None)


def described(folder: Path) -> dict[str, Any]:
    """The configuration of the run in a folder."""
    path = folder / "run.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        config = content["config"]
        if not isinstance(config, dict):
            raise TypeError("config is no table")
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise RunError(
            f"{path} does not describe a run ({problem}); it was left alone: choose another "
            "folder with out."
        ) from problem
    return config
