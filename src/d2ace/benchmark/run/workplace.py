"""The folder beside a store in which its runs train: its files, made and removed by a grid.

lock               held by the grid that works on the store
workers.log        output of the workers
<key>/             the folder of a run; <key>.lock is held by the process that trains in it
<key>.traceback.txt   of a run that failed

Nothing else there is touched, and of a run's folder only what runs write is removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from d2ace._util.errors import RunError
from d2ace._util.locks import locked
from d2ace.benchmark.store.database import Store

_OF_A_RUN = re.compile(
    r"(run|result)\.json|record\.npz|(checkpoint|previous|best|best-\d+|insights)\.pt|\.lock|\..+\.tmp"
)
_UNFINISHED = "unfinished"  # a folder within that of a run


def runs_folder(store: Store) -> Path:
    """Where the runs of a store train: beside its file, by whatever link it was named."""
    real = store.path.resolve()
    return real.with_name(f"{real.name}.runs")


def lock_of(folder: Path) -> Path:
    """The file that a run locks while it works in ``folder``."""
    return folder.with_name(f"{folder.name}.lock")


def traceback_of(folder: Path) -> Path:
    """The file that tells why the run in ``folder`` failed."""
    return folder.with_name(f"{folder.name}.traceback.txt")


def make_place(folder: Path) -> None:
    """Make the folder of a store's runs."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"{folder} cannot be used as the folder of the runs ({error.strerror}); move it away, "
            "or choose another store with --db"
        ) from None


@contextmanager
def held(path: Path, patience: float) -> Iterator[None]:
    """Hold the lock ``path``, waiting for others up to a limit; raises `Busy`."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(path, patience))
        except OSError as error:
            raise RunError(
                f"the lock {path} cannot be had ({error.strerror}); move it away, or choose "
                "another store with --db"
            ) from None
        yield


def refuse_stranger(folder: Path) -> None:
    """Refuse a link or a file in the place of a run's folder."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        kind = "link" if folder.is_symlink() else "file"
        raise RunError(f"{folder} is a {kind}, where a run needs a folder; move it away")


def remove_run(folder: Path) -> None:
    """Remove the files of a run from its folder, and the folder if it is empty then."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.name == _UNFINISHED:
            remove_run(path)
        elif _OF_A_RUN.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)
    with suppress(OSError):  # somebody's file is in it
        folder.rmdir()


def tidy(folder: Path, *, keep: bool = False) -> None:
    """Remove what is left of a run that is stored; with ``keep`` its folder stays."""
    with suppress(OSError):  # it is stored, whatever becomes of these
        if not keep:
            remove_run(folder)
        traceback_of(folder).unlink(missing_ok=True)
        lock = lock_of(folder)
        if lock.is_file() and not lock.is_symlink() and not lock.stat().st_size:
            lock.unlink(missing_ok=True)
