"""One run, wherever it takes place: trained in its folder, its outcome in one word."""

from __future__ import annotations

import json
import signal
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from d2ace._util.atomic import write_whole
from d2ace._util.callbacks import Watch
from d2ace._util.errors import RunError, UserError
from d2ace._util.locks import Busy
from d2ace._util.own_class import own_place
from d2ace.benchmark.plan.checks import check_unchanged
from d2ace.benchmark.plan.specs import training_settings
from d2ace.data import DataError

from .workplace import held, lock_of, make_place, refuse_stranger, remove_run, traceback_of

if TYPE_CHECKING:
    from d2ace.training import RunConfig

PATIENCE = 120.0  # seconds; a run that was asked to end has done so long before
LONGEST = 600  # characters of an error that are kept


class _Stopped(Exception):
    """The run was asked to end before it could listen for signals itself."""


def execute(
    config: dict[str, Any], folder: str, threads: int, report: Watch, *, process: bool = True
) -> None:
    """Train in ``folder``, from a checkpoint if one is there; raises nothing that a run can raise.

    ``report`` gets ``{"epoch": t}`` and at last ``{"state": "finished" | "failed" | "stopped"}``.
    ``process``: this process is there for the run, so its SIGTERM means "save and end".
    """
    from d2ace.training import RunInterrupted, train_config

    asked: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        asked.append(signum)

    def watch(entry: dict[str, Any]) -> None:
        report({"epoch": entry["epoch"]})
        if asked:
            raise _Stopped

    if process and threading.current_thread() is threading.main_thread():
        # Training sets its own handler and, when asked once, puts this one back.
        signal.signal(signal.SIGTERM, note)
    place = Path(folder)
    try:
        make_place(place.parent)
        with held(lock_of(place), PATIENCE):  # held by one whose parent was killed, maybe
            if asked:  # while it waited: the parent is gone
                raise _Stopped
            run = ready(config, place)
            train_config(run, out=place, threads=threads, watch=watch)
    except (RunInterrupted, _Stopped):
        report({"state": "stopped"})
    except Exception as error:
        report(failure(place, error))
    else:
        report({"state": "finished"})


def ready(config: dict[str, Any], place: Path) -> RunConfig:
    """The run to train in its folder, which belongs to nothing else; its lock is held."""
    from d2ace.training import RunConfig

    check_unchanged(config)
    run = RunConfig.from_dict(training_settings(config))
    refuse_stranger(place)
    _clear_other_run(place, run.to_dict())
    return run


def failure(place: Path, error: Exception) -> dict[str, Any]:
    """The last message of a run that an error has ended."""
    if isinstance(error, Busy):
        told = f"another process has been training in {place} for {PATIENCE:.0f} seconds"
        return {"state": "failed", "error": told}
    _keep_traceback(place, error)
    return {"state": "failed", "error": sentence(error)}


def outcome(folder: Path) -> tuple[dict[str, Any], bytes | None] | None:
    """The result and the recording that a finished run left in its folder, if it did finish."""
    from d2ace.training import RunResult

    if not (folder / "result.json").exists():
        return None
    result = RunResult.read(folder / "result.json").to_dict()
    recording = folder / "record.npz"
    return result, recording.read_bytes() if recording.exists() else None


def sentence(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    if not isinstance(error, (UserError, RunError, DataError)):
        place = own_place(error)
        text = f"{type(error).__name__}: {text}" + (f" ({place})" if place else "")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def _clear_other_run(folder: Path, config: dict[str, Any]) -> None:
    """Start afresh where the folder holds the same work in other words.

    A key does not tell ``neighbors=6`` from no option at all, and a moved file from itself; a
    checkpoint does.
    """
    described = folder / "run.json"
    if not described.exists():
        return
    try:
        theirs = json.loads(described.read_text(encoding="utf-8"))["config"]
    except (OSError, ValueError, KeyError, TypeError):
        theirs = None
    if theirs != json.loads(json.dumps(config)):
        remove_run(folder)


def _keep_traceback(folder: Path, error: Exception) -> None:
    try:
        lines = traceback.format_exception(error)
        write_whole(traceback_of(folder), "".join(lines).encode())
    except OSError:  # the disk may be what failed; the error itself is reported anyway
        pass
