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
from pathlib import Path
from typing import Any

from d2ace.errors import RunError, UserError

from .config import RunConfig
from .files import load_tensors, make_folder, save_tensors, write_whole
from .result import RunResult

__all__ = ["RunFolder"]

FORMAT = 1


class RunFolder:
    """Reads and writes the files of one run; every write is whole or does not happen."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path = path
        self.config = config

    def finished(self) -> RunResult | None:
        """The result, if this run has ended already; the folder of another run is refused."""
        description, result = self.path / "run.json", self.path / "result.json"
        if description.exists():
            self._refuse_foreign(self._described(description), "run.json")
        elif (self.path / "checkpoint.pt").exists():
            raise RunError(
                f"{self.path} holds a checkpoint without run.json, so nobody knows what it "
                "trains; it was left alone: choose another folder with out."
            )
        return RunResult.read(result) if result.exists() else None

    def clear(self) -> None:
        """Remove what an earlier run left."""
        for name in ("result.json", "checkpoint.pt", "record.npz", "run.json"):
            (self.path / name).unlink(missing_ok=True)
        self._forget_best(keep=None)

    def open(self) -> None:
        """Make the folder this run's."""
        make_folder(self.path)
        if not (self.path / "run.json").exists():
            text = json.dumps({"format": FORMAT, "config": self.config.to_dict()}, indent=1)
            write_whole(self.path / "run.json", text.encode())

    def load(self, digest: str) -> dict[str, Any] | None:
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
            raise RunError(
                f"{path} was saved with other data than {self.config.data} is now; it was left "
                "alone: restore the data, or choose another folder with out."
            )
        return content

    def save(self, loop: dict[str, Any], spent: dict[str, float], digest: str) -> None:
        """Write the checkpoint, then drop weights it no longer needs."""
        save_tensors(
            self.path / "checkpoint.pt",
            {
                "format": FORMAT,
                "config": json.dumps(self.config.to_dict()),
                "data": digest,
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

    def finish(self, result: RunResult, record: bytes | None) -> None:
        """Write what remains; the result comes last, so that a run with a result is complete."""
        if record is not None:
            write_whole(self.path / "record.npz", record)
        best = self._best(result.best_epoch)
        if best.exists():
            write_whole(self.path / "best.pt", best.read_bytes())
        write_whole(self.path / "result.json", json.dumps(result.to_dict(), indent=1).encode())
        self._forget_best(keep=None, finished=True)

    def _best(self, epoch: int) -> Path:
        return self.path / f"best-{epoch}.pt"

    def _forget_best(self, keep: int | None, *, finished: bool = False) -> None:
        for path in self.path.glob("best*.pt"):
            if path != self._best(keep or 0) and not (finished and path.name == "best.pt"):
                path.unlink(missing_ok=True)

    def _described(self, path: Path) -> dict[str, Any]:
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

    def _refuse_foreign(self, theirs: dict[str, Any], name: str) -> None:
        ours = json.loads(json.dumps(self.config.to_dict()))
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
