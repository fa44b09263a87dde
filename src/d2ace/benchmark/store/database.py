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
from typing import Any

from d2ace._util.errors import RunError, UserError
from d2ace.benchmark.plan.specs import RunSpec, canonical

from .file import LABEL, RUN, checksum, open_copy, open_file, unreadable
from .shape import Arrays, check_config, check_result, parse, unpacked

_UPSERT = f"""
INSERT INTO runs ({", ".join(RUN)}, checksum)
VALUES ({", ".join(f":{column}" for column in RUN)}, :checksum)
ON CONFLICT (key) DO UPDATE SET
    {", ".join(f"{column} = excluded.{column}" for column in (*RUN, "checksum"))}
WHERE (excluded.status = 'finished' AND runs.status = 'failed')
   OR (excluded.status = runs.status AND excluded.complete AND NOT runs.complete)
   OR (excluded.status = 'failed' AND runs.status = 'failed')
"""  # noqa: S608 - the names of our own columns

_LINK = """
INSERT INTO memberships (study, method, run_id, selector_options, own_values, checksum)
SELECT :study, :method, id, :selector_options, :own_values, :checksum FROM runs WHERE key = :key
ON CONFLICT (study, method, run_id) DO UPDATE
SET own_values = excluded.own_values, checksum = excluded.checksum
WHERE own_values IS NULL AND selector_options = excluded.selector_options
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
    own_values: dict[str, Any] | None = None
    """Your own selector's default values for these options (`RunSpec`)."""


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
        self._connection = (
            open_copy(self.path) if read_only else open_file(self.path, create=create)
        )

    # Writing --------------------------------------------------------------------------------

    def add(self, spec: RunSpec, result: dict[str, Any], recording: bytes | None = None) -> None:
        """Store a finished run; when this returns it is on disk.

        A run that is stored already stays as it was, unless it failed or came from a CSV file
        and so lacks details; it is then shown under this study and label too.
        """
        if result is None:
            raise UserError(f"{spec.title} has no result; store a failed run with fail()")
        self.put(spec, status="finished", result=result, recording=recording)

    def fail(self, spec: RunSpec, error: str) -> None:
        """Store that a run failed, and why; a finished one stays finished."""
        self.put(spec, status="failed", error=error)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is stored inside is stored as a whole or, where an error comes, not at all."""
        with self._writing():
            yield

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
        text = None if result is None else _checked(result, spec)
        row = {
            "key": spec.key,
            "dataset": spec.dataset,
            "model": spec.model,
            "selector": str(spec.config["selector"]),
            "fold": int(spec.config["fold"]),
            "seed": int(spec.config["seed"]),
            "status": status,
            "error": error,
            "config": canonical(spec.config),
            "result": text,
            "recording": recording,
            "complete": int(complete),
            "finished_at": finished_at or _now(),
        }
        row["checksum"] = checksum(*(row[column] for column in RUN))
        with self._writing() as connection:
            connection.execute(_UPSERT, row)
            self._link(connection, spec)

    @staticmethod
    def _link(connection: sqlite3.Connection, spec: RunSpec) -> None:
        own = None if spec.own_values is None else canonical(spec.own_values)
        row = {
            "study": spec.study,
            "method": spec.method,
            "key": spec.key,
            "selector_options": canonical(spec.config["selector_options"]),
            "own_values": own,
        }
        row["checksum"] = checksum(*(row[column] for column in LABEL))
        connection.execute(_LINK, row)

    # Reading --------------------------------------------------------------------------------

    def has(self, spec: RunSpec) -> bool:
        """Whether this run is stored and finished, under whatever label."""
        return self.status(spec) == "finished"

    def status(self, spec: RunSpec) -> str | None:
        """Whether a run is "finished" or "failed"; None where it is not stored."""
        found = self._rows("SELECT status FROM runs WHERE key = ?", spec.key)
        return str(found[0][0]) if found else None

    def failed(self) -> list[StoredRun]:
        """The failed runs."""
        return self.runs(status="failed")

    def runs(self, study: str | None = None, status: str | None = "finished") -> list[StoredRun]:
        """The runs of a study, or of all, in the order in which they were stored.

        A run with several labels comes once for each. ``status`` None: whatever their status.
        """
        rows = self._rows(
            f"SELECT {', '.join(_COLUMNS)} FROM runs JOIN memberships ON run_id = id "  # noqa: S608
            "WHERE (?1 IS NULL OR study = ?1) AND (?2 IS NULL OR status = ?2) "
            "ORDER BY id, memberships.rowid",
            study,
            status,
        )
        return [self._stored(row) for row in rows]

    def studies(self) -> list[str]:
        """The studies that have runs, in the order in which they began."""
        rows = self._rows("SELECT study FROM memberships GROUP BY study ORDER BY min(rowid)")
        return [study for (study,) in rows]

    def recording(self, run_id: int) -> Arrays | None:
        """What a run recorded for case studies (its ``record.npz``), or None."""
        found = self._rows("SELECT recording, key FROM runs WHERE id = ?", run_id)
        if not found or found[0][0] is None:
            return None
        try:
            return unpacked(found[0][0])
        except ValueError as error:
            raise self.bad_run(found[0][1], error) from None

    def packed_recordings(self) -> Iterator[tuple[str, bytes]]:
        """Key and ``record.npz`` of every run that recorded something."""
        keys = self._rows("SELECT key FROM runs WHERE recording IS NOT NULL ORDER BY id")
        for (key,) in keys:
            ((recording,),) = self._rows("SELECT recording FROM runs WHERE key = ?", key)
            yield key, bytes(recording)

    def mean_seconds(self) -> dict[tuple[str, str], float]:
        """Mean duration of the finished runs by (dataset, model)."""
        rows = self._rows(
            "SELECT dataset, model, avg(json_extract(result, '$.seconds.total')) FROM runs "
            "WHERE status = 'finished' GROUP BY dataset, model"
        )
        return {(dataset, model): mean for dataset, model, mean in rows if mean is not None}

    # CSV ------------------------------------------------------------------------------------

    def export(self, csv_path: str | Path) -> None:
        """Write ``csv_path``, a row per run.

        Beside it go ``curves.csv.gz`` and, where runs have them, ``labels.csv.gz`` and
        ``recordings.zip``.
        """
        from .csvfile import write

        write(self, Path(csv_path))

    def import_(self, csv_path: str | Path) -> int:
        """Take the runs of :meth:`export` that are not stored yet; returns how many came."""
        from .csvreader import read

        return read(self, Path(csv_path))

    # Machinery ------------------------------------------------------------------------------

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that a query finds; a file that was damaged meanwhile raises an error."""
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.ProgrammingError:  # a store that was closed
            raise
        except sqlite3.Error as error:
            raise unreadable(self.path, error) from None

    def bad_run(self, key: str, error: ValueError) -> UserError:
        """The error for a run that cannot be what was stored."""
        return UserError(
            f"the store {self.path} cannot be read: the run {key} {error}; it was left alone"
        )

    def _stored(self, row: tuple[Any, ...]) -> StoredRun:
        values: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
        try:
            options = parse(values.pop("selector_options"))
            values["config"] = parse(values["config"])
            check_config(values["config"])
            values["config"] |= {"selector_options": options}
            check_config(values["config"])
            for name in ("result", "own_values"):
                values[name] = None if values[name] is None else parse(values[name])
            if values["status"] == "finished":
                check_result(values["result"])
        except ValueError as error:
            raise self.bad_run(values["key"], error) from None
        return StoredRun(**values)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, which waits for other writers before it starts; part of a larger one."""
        if self._connection.in_transaction:  # begun by `together`
            yield self._connection
            return
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

    def __exit__(self, *_: object) -> None:
        self.close()


def _checked(result: Any, spec: RunSpec) -> str:
    """The result as JSON; one that could not be read again is refused."""
    try:
        text = json.dumps(result)
        check_result(parse(text))
    except (TypeError, ValueError) as problem:
        raise UserError(
            f"a result of {spec.title} cannot be stored ({problem}); give what RunResult.to_dict() "
            "returns"
        ) from None
    return text


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def opened(store: Store) -> Store:
    """The store; anything else, such as the path of one, is refused."""
    if not isinstance(store, Store):
        raise UserError(
            f"An opened store is needed, got {store!r}; open it with d2ace.benchmark.Store(path)."
        )
    return store
