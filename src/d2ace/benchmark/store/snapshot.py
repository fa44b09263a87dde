"""A store as it is now, read without touching it: from any place, while others write or not.

A database in WAL mode is normally read with two files beside it (-wal, -shm), which SQLite makes
where they are missing. That fails where one may not write, and leaves traces where one may. So:

- no -wal file: nobody has it open, and all is in the database itself, which is read as immutable;
- both files: a writer has it open or was killed, and a reader that only reads joins in;
- a -wal file alone, or one that may not be shared: both are copied and the copy is read;
- a -journal file: a writer was killed while it made the tables, and a copy is put right.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

_TRIES = 40
_PAUSE = 0.05  # seconds that a writer has to end what it is at


def snapshot(path: Path) -> sqlite3.Connection:
    """A copy in memory of the database at ``path``, as of one moment."""
    for attempt in range(_TRIES):
        time.sleep(_PAUSE * (attempt > 0))
        path = path.resolve()  # the files beside it are beside it, not beside a link to it
        log = _beside(path, "-wal")
        if _holds(log) and _beside(path, "-shm").exists():
            try:
                return _in_memory(f"{_address(path)}?mode=ro")
            except sqlite3.OperationalError:  # it may not be shared from here
                pass
        read = (path, *(file for file in (log, _beside(path, "-journal")) if _holds(file)))
        before = _state(read)
        try:
            copy = _copied(read)
        except (sqlite3.DatabaseError, FileNotFoundError):
            if _state(read) == before:  # it is damaged, and not by a writer that came meanwhile
                raise
            continue
        if _state(read) == before:
            return copy
        copy.close()
    raise sqlite3.OperationalError("others write to it all the time")


def _copied(read: tuple[Path, ...]) -> sqlite3.Connection:
    """The database, and what it has beside it, read as files that nobody writes to."""
    if len(read) == 1:
        return _in_memory(f"{_address(read[0])}?immutable=1")
    with tempfile.TemporaryDirectory() as folder:
        for file in read:
            shutil.copyfile(file, Path(folder) / file.name)
        return _in_memory(f"{_address(Path(folder) / read[0].name)}?mode=rw")


def _in_memory(address: str) -> sqlite3.Connection:
    source = sqlite3.connect(address, uri=True, isolation_level=None, timeout=10)
    try:
        copy = sqlite3.connect(":memory:", isolation_level=None)
        try:
            source.backup(copy)
        except BaseException:
            copy.close()
            raise
    finally:
        source.close()
    return copy


def _address(path: Path) -> str:
    return f"file:{quote(str(path.resolve()))}"


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}{ending}")


def _holds(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _state(files: tuple[Path, ...]) -> list[tuple[int, int]]:
    """What is not the same after a writer has written."""
    found = [file.stat() if file.exists() else None for file in files]
    return [(0, 0) if one is None else (one.st_mtime_ns, one.st_size) for one in found]
