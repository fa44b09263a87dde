"""One process at a time; the lock is gone with the process that held it, however that ended."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["Busy", "locked"]

_PAUSE = 0.05  # seconds between two tries
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)

if sys.platform == "win32":
    import msvcrt

    def _take(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _take(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


_handles: set[int] = set()  # of the locks that this process holds


def _let_go() -> None:
    """A forked process has none of its parent's locks, and does not keep them for it."""
    for handle in _handles:
        os.close(handle)
    _handles.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


class Busy(Exception):
    """Somebody else has the lock."""


@contextmanager
def locked(path: Path, patience: float | None = None) -> Iterator[None]:
    """Be the only one inside for this ``path``, an empty file that stays.

    Waits for others up to ``patience`` seconds, then raises `Busy`; None waits for as long as it
    takes. Raises the system's OSError, also if something else than such a file blocks the path; the
    caller adds a remedy. It also locks between threads of one process.
    """
    deadline = None if patience is None else time.monotonic() + patience
    while (handle := _held(path)) is None:
        if deadline is not None and time.monotonic() >= deadline:
            raise Busy
        time.sleep(_PAUSE)
    _handles.add(handle)
    try:
        yield
    finally:
        if handle in _handles:  # not in a forked process
            _handles.discard(handle)
            os.close(handle)


def _held(path: Path) -> int | None:
    """The open file with the lock on it; None if another has it."""
    with suppress(FileNotFoundError):
        _refuse_stranger(path, os.lstat(path))
    handle = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINKS, 0o666)
    try:
        _take(handle)
        if os.path.samestat(os.fstat(handle), os.stat(path)):
            return handle
    except (BlockingIOError, PermissionError, FileNotFoundError):
        pass
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)  # another has it, or has removed the file since it was opened
    return None


def _refuse_stranger(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode) or found.st_size:
        raise FileExistsError(errno.EEXIST, "another file is in the way", str(path))
