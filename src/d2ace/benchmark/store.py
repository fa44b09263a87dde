"""The result store: finished and failed runs in one SQLite file that survives being killed.

A run is stored once, by its key. Under which study and label it is shown is kept apart, so that
one run can serve several studies. The file is in WAL mode with full synchronisation: when
:meth:`Store.add` has returned, the run is on disk.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from d2ace.errors import RunError, UserError

from .snapshot import snapshot
from .specs import RunSpec, canonical

if TYPE_CHECKING:
    import numpy as np

FORMAT = 1
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
    finished_at TEXT NOT NULL
);
CREATE TABLE memberships (
    study TEXT NOT NULL,
    method TEXT NOT NULL,
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    selector_options TEXT NOT NULL,
    PRIMARY KEY (study, method, run_id)
);
"""

_UPSERT = """
INSERT INTO runs (key, dataset, model, selector, fold, seed, status, error, config, result,
                  recording, complete, finished_at)
VALUES (:key, :dataset, :model, :selector, :fold, :seed, :status, :error, :config, :result,
        :recording, :complete, :finished_at)
ON CONFLICT (key) DO UPDATE SET
    status = excluded.status, error = excluded.error, config = excluded.config,
    result = excluded.result, recording = excluded.recording, complete = excluded.complete,
    finished_at = excluded.finished_at
WHERE (excluded.status = 'finished' AND runs.status = 'failed')
   OR (excluded.status = runs.status AND excluded.complete AND NOT runs.complete)
   OR (excluded.status = 'failed' AND runs.status = 'failed')
"""


@dataclass(frozen=True)
class StoredRun:
    """A run as it is shown under one study and label."""

    id: int
    key: str
    study: str
    method: str
    dataset: str
    model: str
    selector: str
    fold: int
    seed: int
    status: str
    error: str | None
    config: dict[str, Any]
    result: dict[str, Any] | None
    finished_at: str


_COLUMNS = [*(field.name for field in fields(StoredRun)), "selector_options"]


class Store:
    """The runs in the SQLite file ``path``; any number of processes may read and write it.

    A file that does not exist is made, unless ``create=False``. One that is not a store, or comes
    from a newer version of the library, is refused and left as it is. With ``read_only`` the runs
    are those of this moment, and nothing is written, to the file or beside it. Use a store in the
    thread that opened it.
    """

    def __init__(self, path: str | Path, *, create: bool = True, read_only: bool = False) -> None:
        self.path = Path(path)
        _refuse_foreign(self.path, create and not read_only)
        try:
            if read_only:
                self._connection = snapshot(self.path)
            else:
                self._connection = sqlite3.connect(
                    self.path, timeout=PATIENCE, isolation_level=None
                )
        except (sqlite3.Error, OSError) as error:
            raise UserError(f"the store {self.path} cannot be opened: {_reason(error)}") from None
        try:
            if read_only:
                self._prepare_reading()
            else:
                self._prepare()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise UserError(f"the store {self.path} cannot be read: {_reason(error)}") from None

    def _prepare_reading(self) -> None:
        if self._connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            self._connection.executescript(_SCHEMA)  # of a store that was never written to
        self._refuse_damage()
        self._connection.execute("PRAGMA query_only = ON")

    def _prepare(self) -> None:
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.execute("PRAGMA synchronous = FULL")
        with self._writing() as connection:
            # In a rollback journal first, so that the file's own header names its format.
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {FORMAT}")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._refuse_damage()

    def _refuse_damage(self) -> None:
        (answer,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if answer != "ok":
            raise sqlite3.DatabaseError(answer.splitlines()[-1])

    # Writing --------------------------------------------------------------------------------

    def add(self, spec: RunSpec, result: dict[str, Any], recording: bytes | None = None) -> None:
        """Store a finished run; when this returns it is on disk.

        A run that is stored already stays as it was, unless it failed or came from a CSV file
        and so lacks details; it is then shown under this study and label too.
        """
        self.put(spec, status="finished", result=result, recording=recording)

    def fail(self, spec: RunSpec, error: str) -> None:
        """Store that a run failed, and why; a finished one stays finished."""
        self.put(spec, status="failed", error=error)

    def link(self, specs: Iterable[RunSpec]) -> None:
        """Show those of these runs that are stored under their study and label as well."""
        with self._writing() as connection:
            for spec in specs:
                self._link(connection, spec)

    def put(
        self,
        spec: RunSpec,
        *,
        status: str,
        result: dict[str, Any] | None = None,
        error: str | None = None,
        recording: bytes | None = None,
        complete: bool = True,
        finished_at: str | None = None,
    ) -> None:
        """Store a run in one transaction; ``complete=False`` where details were lost on the way."""
        row = {
            "key": spec.key,
            "dataset": spec.dataset,
            "model": spec.model,
            "selector": spec.config["selector"],
            "fold": spec.config["fold"],
            "seed": spec.config["seed"],
            "status": status,
            "error": error,
            "config": canonical(spec.config),
            "result": None if result is None else json.dumps(result, allow_nan=False),
            "recording": recording,
            "complete": complete,
            "finished_at": finished_at or _now(),
        }
        with self._writing() as connection:
            connection.execute(_UPSERT, row)
            self._link(connection, spec)

    @staticmethod
    def _link(connection: sqlite3.Connection, spec: RunSpec) -> None:
        connection.execute(
            "INSERT OR IGNORE INTO memberships (study, method, run_id, selector_options) "
            "SELECT ?, ?, id, ? FROM runs WHERE key = ?",
            (spec.study, spec.method, canonical(spec.config["selector_options"]), spec.key),
        )

    # Reading --------------------------------------------------------------------------------

    def has(self, spec: RunSpec) -> bool:
        """Whether this run is stored and finished, under whatever label."""
        return self.status(spec) == "finished"

    def status(self, spec: RunSpec) -> str | None:
        """Whether a run is "finished" or "failed"; None where it is not stored."""
        found = self._connection.execute("SELECT status FROM runs WHERE key = ?", (spec.key,))
        row = found.fetchone()
        return None if row is None else str(row[0])

    def failed(self) -> list[StoredRun]:
        """The failed runs."""
        return self.runs(status="failed")

    def runs(self, study: str | None = None, status: str | None = "finished") -> list[StoredRun]:
        """The runs of a study, or of all, in the order in which they were stored.

        A run with several labels comes once for each. ``status`` None: whatever their status.
        """
        rows = self._connection.execute(
            f"SELECT {', '.join(_COLUMNS)} FROM runs JOIN memberships ON run_id = id "  # noqa: S608
            "WHERE (?1 IS NULL OR study = ?1) AND (?2 IS NULL OR status = ?2) "
            "ORDER BY id, memberships.rowid",
            (study, status),
        )
        return [_stored(row) for row in rows]

    def studies(self) -> list[str]:
        """The studies that have runs, in the order in which they began."""
        rows = self._connection.execute(
            "SELECT study FROM memberships GROUP BY study ORDER BY min(rowid)"
        )
        return [study for (study,) in rows]

    def recording(self, run_id: int) -> dict[str, np.ndarray] | None:
        """What a run recorded for case studies (its ``record.npz``), or None."""
        found = self._connection.execute("SELECT recording FROM runs WHERE id = ?", (run_id,))
        row = found.fetchone()
        if row is None or row[0] is None:
            return None
        import io

        import numpy as np

        with np.load(io.BytesIO(row[0]), allow_pickle=False) as arrays:
            return dict(arrays)

    def packed_recordings(self) -> Iterator[tuple[str, bytes]]:
        """Key and ``record.npz`` of every run that recorded something."""
        yield from self._connection.execute(
            "SELECT key, recording FROM runs WHERE recording IS NOT NULL ORDER BY id"
        )

    def mean_seconds(self) -> dict[tuple[str, str], float]:
        """Mean duration of the finished runs by (dataset, model)."""
        rows = self._connection.execute(
            "SELECT dataset, model, avg(json_extract(result, '$.seconds.total')) FROM runs "
            "WHERE status = 'finished' GROUP BY dataset, model"
        )
        return {(dataset, model): mean for dataset, model, mean in rows if mean is not None}

    # CSV ------------------------------------------------------------------------------------

    def export(self, csv_path: str | Path) -> None:
        """Write ``csv_path``, a row per run; beside it ``curves.csv.gz`` and ``recordings.zip``."""
        from .csvfile import write

        write(self, Path(csv_path))

    def import_(self, csv_path: str | Path) -> int:
        """Take the runs of :meth:`export` that are not stored yet; returns how many came."""
        from .csvfile import read

        return read(self, Path(csv_path))

    # Machinery ------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, which waits for other writers before it starts."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
            self._connection.execute("COMMIT")  # where a disk is found to be full
        except BaseException as error:
            if self._connection.in_transaction:  # a full disk has ended it already
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError) and "full" in str(error):
                raise RunError(
                    f"the store {self.path} could not be written ({error}); make room and start "
                    "again: what was stored before is still there"
                ) from error
            raise

    def close(self) -> None:
        """Close the file; harmless the second time."""
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _refuse_foreign(path: Path, create: bool) -> None:
    """Look at the file's header without SQLite, which might write to the file."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a file for the store, such as {path}/runs.db")
    if not path.exists():
        if not create:
            raise UserError(f"there is no store {path}; `d2ace bench --db {path}` makes one")
        if not path.parent.is_dir():
            raise UserError(f"the folder {path.parent} of the store {path.name} does not exist")
        return
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise UserError(f"the store {path} cannot be read: {error.strerror}") from None
    if not header:  # made by a writer that was killed before its first transaction
        return
    version, application = (int.from_bytes(header[at : at + 4], "big") for at in (60, 68))
    if not header.startswith(b"SQLite format 3\0") or application != APPLICATION:
        raise UserError(f"{path} is not a store of d2ace; name another file")
    if version > FORMAT:
        raise UserError(
            f"the store {path} has format {version}, this d2ace reads up to {FORMAT}; update d2ace"
        )


def _reason(error: Exception) -> str:
    """Why a store cannot be had; with a way out where it is damaged and not only in use."""
    if not isinstance(error, sqlite3.DatabaseError) or isinstance(error, sqlite3.OperationalError):
        return str(error)
    return (
        f"{error}; `d2ace bench ... --db other.db --from results.csv` makes another of the runs "
        "that were exported"
    )


def _stored(row: tuple[Any, ...]) -> StoredRun:
    values: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    options = json.loads(values.pop("selector_options"))
    values["config"] = json.loads(values["config"]) | {"selector_options": options}
    values["result"] = None if values["result"] is None else json.loads(values["result"])
    return StoredRun(**values)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
