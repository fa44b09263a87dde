"""The file of a store: whether it is one, whether it is whole, and what its tables are.

Before anything is read from a file, or written to it, a copy in memory is verified: its pages by
SQLite, its tables by their columns, its rows by their checksums. A file that fails is left alone.
"""

from __future__ import annotations

import hashlib
import sqlite3
import stat
from pathlib import Path
from typing import Any

from d2ace._util.errors import UserError
from d2ace.benchmark.plan.specs import canonical

from .snapshot import snapshot

FORMAT = 2
APPLICATION = 0x44324143  # "D2AC", which tells our files from other people's databases
PATIENCE = 60.0  # seconds a writer waits for another

_SCHEMA = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    dataset TEXT NOT NULL,
    model TEXT NOT NULL,
    selector TEXT NOT NULL,
    fold INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('finished', 'failed')),
    error TEXT,
    config TEXT NOT NULL,
    result TEXT,
    recording BLOB,
    complete INTEGER NOT NULL,
    finished_at TEXT NOT NULL,
    checksum TEXT NOT NULL
);
CREATE TABLE memberships (
    study TEXT NOT NULL,
    method TEXT NOT NULL,
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    selector_options TEXT NOT NULL,
    own_values TEXT,
    checksum TEXT NOT NULL,
    PRIMARY KEY (study, method, run_id)
);
"""

RUN = (
    *("key", "dataset", "model", "selector", "fold", "seed", "status", "error", "config"),
    *("result", "recording", "complete", "finished_at"),
)
"""The columns of a run that its checksum is of, in this order."""
LABEL = ("study", "method", "key", "selector_options", "own_values")
"""The same for a study and label that a run is shown under."""
_KINDS = {
    "runs": {
        "text": (
            *("key", "dataset", "model", "selector", "status", "config", "finished_at"),
            "checksum",
        ),
        "integer": ("fold", "seed", "complete"),
        "text null": ("error", "result"),
        "blob null": ("recording",),
    },
    "memberships": {
        "text": ("study", "method", "selector_options", "checksum"),
        "text null": ("own_values",),
    },
}
"""Table -> kinds that SQLite knows -> columns of that kind, which it does not insist on itself."""
_COLUMNS = {
    "runs": {"id", *RUN, "checksum"},
    "memberships": {*LABEL, "run_id", "checksum"} - {"key"},
}


def checksum(*values: Any) -> str:
    """SHA-256 of the values of a row."""
    plain = [hashlib.sha256(v).hexdigest() if isinstance(v, bytes) else v for v in values]
    return hashlib.sha256(canonical(plain).encode()).hexdigest()


def open_copy(path: Path) -> sqlite3.Connection:
    """The runs at ``path`` as of this moment, in memory and verified, to be read only."""
    _refuse_strangers(path, create=False)
    try:
        connection = snapshot(path)
        try:
            _verify(connection)
            connection.execute("PRAGMA query_only = ON")
        except (sqlite3.Error, ValueError) as error:  # nobody else has the copy: it is damaged
            connection.close()
            raise sqlite3.DatabaseError(str(error)) from None
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise unreadable(path, error) from None
    return connection


def open_file(path: Path, *, create: bool) -> sqlite3.Connection:
    """The file at ``path``, to be written to; one that is there is verified first."""
    if _refuse_strangers(path, create=create):
        if path.stat().st_nlink > 1:
            raise UserError(
                f"the store {path} has another name (a hard link), and SQLite cannot keep the two "
                "in step; copy it to another file and use that"
            )
        if _is_settled(path):
            open_copy(path).close()
    try:
        # By its own name: a link to it and it itself must not be locked apart.
        connection = sqlite3.connect(path.resolve(), timeout=PATIENCE, isolation_level=None)
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            # In a rollback journal first, so that the file's own header names its format.
            _make_tables(connection)
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode = WAL")
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise unreadable(path, error) from None
    return connection


def _is_settled(path: Path) -> bool:
    """Whether the tables are made, and not being made by another process or one that was killed."""
    real = path.resolve()
    journal = real.with_name(f"{real.name}-journal")
    return real.stat().st_size > 0 and not _first(journal, 1)


def unreadable(path: Path, error: Exception) -> UserError:
    """Why a store cannot be had; with a way out where it is damaged and not only in use."""
    reason = getattr(error, "strerror", None) or str(error)
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        reason += (
            "; it was left alone: `d2ace bench ... --db other.db --from results.csv` makes another "
            "of the runs that were exported"
        )
    return UserError(f"the store {path} cannot be read: {reason}")


def is_there(path: Path) -> bool:
    """Whether there is a file of a store; places where none can be are refused."""
    if path.name == ":memory:":
        raise UserError(
            "a store in memory (:memory:) would be gone with its process; name a file, such as "
            "runs.db"
        )
    try:
        path.resolve()
        there, is_folder = path.exists(), path.is_dir()
    except (OSError, RuntimeError, ValueError) as error:  # too long a name, links in a circle
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"the store {path} cannot be opened: {reason}; name another file") from None
    if is_folder:
        example = "runs.db" if path == Path() else path / "runs.db"
        raise UserError(f"{path} is a folder; name a file for the store, such as {example}")
    if there and not path.is_file():
        raise UserError(f"{path} is not a plain file; name another for the store")
    return there


def _refuse_strangers(path: Path, *, create: bool) -> bool:
    """Whether there is a store; refuses files of others, which SQLite might write to.

    So it looks at their first bytes without SQLite.
    """
    if not is_there(path):
        if not create:
            raise UserError(f"there is no store {path}; `d2ace bench --db {path}` makes one")
        if not path.resolve().parent.is_dir():
            raise UserError(f"the folder {path.parent} of the store {path.name} does not exist")
        _refuse_beside(path, alone=True)
        return False
    header = _first(path, 100)
    if header:  # nothing is in the file of a writer that was killed before its first transaction
        version, application = (int.from_bytes(header[at : at + 4], "big") for at in (60, 68))
        if not header.startswith(b"SQLite format 3\0") or application != APPLICATION:
            raise UserError(f"{path} is not a store of d2ace; name another file")
        if version != FORMAT:
            raise UserError(
                f"the store {path} has format {version}, this d2ace reads {FORMAT}; update d2ace, "
                "or name another file"
            )
    _refuse_beside(path, alone=False)
    return True


_BESIDE = {
    "-wal": (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"),
    "-shm": (b"\x18\xe2\x2d\x00", b"\x00\x2d\xe2\x18"),
    "-journal": (b"\xd9\xd5\x05\xf9",),
}
"""Files that SQLite keeps beside its own, which it overwrites and removes -> how they begin."""


def _refuse_beside(path: Path, *, alone: bool) -> None:
    """Refuse a stranger's file where SQLite will want to have one of its own."""
    real = path.resolve()
    for ending, beginnings in _BESIDE.items():
        beside = real.with_name(f"{real.name}{ending}")
        try:
            plain = stat.S_ISREG(beside.lstat().st_mode)
            begins = _first(beside, 4) if plain else b""
        except FileNotFoundError:
            continue
        lonely = alone and not real.exists()  # else another process has just made the store
        if lonely or not plain or begins not in (*beginnings, b"", b"\0\0\0\0"):
            raise UserError(
                f"{beside} is in the way: SQLite overwrites a file of this name; move it away, or "
                "name another store"
            )


def _first(path: Path, count: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(count)
    except FileNotFoundError:  # gone meanwhile: SQLite's own come and go
        return b""
    except OSError as error:
        raise UserError(f"the store {path} cannot be read: {error.strerror}") from None


def _make_tables(connection: sqlite3.Connection) -> None:
    """Make the tables, unless they are there."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version:
        return
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def _verify(connection: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError unless all is as it was written."""
    (answer,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if answer != "ok":
        raise sqlite3.DatabaseError(answer.splitlines()[-1])
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, FORMAT):  # so says its -wal file
        raise sqlite3.DatabaseError(f"its format is {version}, this d2ace reads {FORMAT}")
    _make_tables(connection)
    _verify_tables(connection)
    for row in connection.execute(
        f"SELECT {', '.join(RUN)}, checksum FROM runs"  # noqa: S608
    ):
        if checksum(*row[:-1]) != row[-1]:
            raise sqlite3.DatabaseError(f"the run {row[0]} is not as it was stored")
    for row in connection.execute(
        f"SELECT {', '.join(LABEL)}, memberships.checksum FROM memberships "  # noqa: S608
        "JOIN runs ON run_id = id"
    ):
        if checksum(*row[:-1]) != row[-1]:
            raise sqlite3.DatabaseError(f"the label {row[1]!r} is not as it was stored")


def _verify_tables(connection: sqlite3.Connection) -> None:
    """A store has tables alone: views and triggers would do what their author wanted."""
    made = {
        name: f"{kind} {text}"
        for kind, name, text in connection.execute("SELECT type, name, sql FROM sqlite_master")
    }
    for name, columns in _COLUMNS.items():
        if not made.get(name, "").startswith("table CREATE TABLE"):
            raise sqlite3.DatabaseError(f"it has no table {name}")
        found = {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
        if not columns <= found:
            lacking = ", ".join(sorted(columns - found))
            raise sqlite3.DatabaseError(f"its table {name} lacks {lacking}")
    for name, text in made.items():
        if text.startswith(("view", "trigger")):
            raise sqlite3.DatabaseError(f"it has a {text.partition(' ')[0]} {name}, made by others")
    for table, kinds in _KINDS.items():
        for kind, names in kinds.items():
            for column in names:
                query = f"SELECT 1 FROM {table} WHERE instr(?, typeof({column})) = 0 LIMIT 1"  # noqa: S608
                if connection.execute(query, (kind,)).fetchone():
                    raise sqlite3.DatabaseError(f"{column} in its table {table} is not all {kind}")
