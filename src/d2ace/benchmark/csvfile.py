"""A store as text: ``results.csv``, a row per run, and ``curves.csv.gz``, a row per run and epoch.

Recordings, where there are any, go beside them into ``recordings.zip``. Numbers of ``results.csv``
keep all their digits. What is lost: the split of an epoch's seconds into parts, and the validation
metrics of an epoch but the monitored one.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from d2ace.errors import UserError

from .specs import RunSpec, canonical

if TYPE_CHECKING:
    from .store import Store, StoredRun

CURVES = "curves.csv.gz"
RECORDINGS = "recordings.zip"
MEMBER = ".npz"
CURVE = (
    "key",
    "epoch",
    "train_loss",
    "epoch_loss",
    "validation",
    "seconds",
    "effective_rows",
    "distinct_rows",
)
ENVIRONMENT = ("d2ace", "torch", "numpy", "python", "threads")
SPLITS = ("validation", "test")
WORDS = ("name", "digest")  # what a run knows of its dataset beside sizes
SETTINGS = ("fold", "folds", "seed", "epochs")


# Writing ------------------------------------------------------------------------------------


def write(store: Store, path: Path) -> None:
    """Write all runs of a store; a reader never sees half a file."""
    together: dict[str, list[StoredRun]] = {}
    for run in store.runs(status=None):
        together.setdefault(run.key, []).append(run)
    rows = [_row(runs) for runs in together.values()]
    columns = list(dict.fromkeys(column for row in rows for column in row)) or ["key"]
    table = io.StringIO()
    writer = csv.DictWriter(table, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    curves = io.StringIO()
    lines = csv.writer(curves, lineterminator="\n")
    lines.writerow(CURVE)
    for runs in together.values():
        lines.writerows(_curve(runs[0]))
    packed = gzip.compress(curves.getvalue().encode(), mtime=0)  # no clock: same runs, same bytes
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path.with_name(CURVES), packed)
    _write_recordings(store, path.with_name(RECORDINGS))
    _replace(path, table.getvalue().encode())


def _row(runs: list[StoredRun]) -> dict[str, Any]:
    run, result = runs[0], runs[0].result or {}
    row: dict[str, Any] = {
        "key": run.key,
        "study": run.study,
        "method": run.method,
        "dataset": run.dataset,
        "model": run.model,
        "selector": run.selector,
        **{name: run.config[name] for name in SETTINGS},
        "status": run.status,
        "error": run.error,
        "best_epoch": result.get("best_epoch"),
    }
    for split in reversed(SPLITS):
        row |= {f"{split}_{name}": value for name, value in result.get(split, {}).items()}
    for name, value in result.get("undefined", {}).items():
        row[f"undefined_{name}"] = value
    row |= {f"seconds_{name}": value for name, value in result.get("seconds", {}).items()}
    row["cpu_seconds"] = result.get("cpu_seconds")
    sizes = {key: size for key, size in result.get("dataset", {}).items() if key not in WORDS}
    row |= {f"size_{name}": size for name, size in sizes.items()}
    row["digest"] = result.get("dataset", {}).get("digest")
    environment = result.get("environment", {})
    row |= {f"version_{name}": environment.get(name) for name in ENVIRONMENT}
    row["finished_at"] = run.finished_at
    row["config"] = canonical(run.config)
    row["memberships"] = canonical(
        [[other.study, other.method, other.config["selector_options"]] for other in runs]
    )
    return {key: _text(value) for key, value in row.items()}


def _curve(run: StoredRun) -> Iterable[list[str]]:
    for epoch in (run.result or {}).get("history", []):
        parts = epoch.get("seconds") or {}
        spent = sum(value for part, value in parts.items() if part != "evaluation")
        numbers = (
            epoch.get("train_loss"),
            epoch.get("epoch_loss"),
            (epoch.get("validation") or {}).get(run.config["monitor"]),
            spent,
            epoch.get("effective_rows"),
            epoch.get("distinct_rows"),
        )
        short = ["" if number is None else f"{number:.7g}" for number in numbers]
        yield [run.key, str(epoch["epoch"]), *short]


def _write_recordings(store: Store, path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:  # they are compressed already
        for key, recording in store.packed_recordings():
            archive.writestr(zipfile.ZipInfo(f"{key}{MEMBER}"), recording)  # no clock here either
        empty = not archive.namelist()
    if empty:
        path.unlink(missing_ok=True)  # of other runs
    else:
        _replace(path, content.getvalue())


def _text(value: Any) -> str:
    if value is None:
        return ""
    return repr(value) if isinstance(value, float) else str(value)


def _replace(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(path)


# Reading ------------------------------------------------------------------------------------


def read(store: Store, path: Path) -> int:
    """Store the runs of a file that are not stored; returns how many were taken.

    A stored run is left as it is, whatever the file says of it; only labels are added.
    """
    if not path.is_file():
        raise UserError(f"there is no file {path} to take runs from")
    curves = _read_curves(path.with_name(CURVES))
    recordings = _read_recordings(path.with_name(RECORDINGS))
    taken = 0
    with _decoding(path), path.open(newline="", encoding="utf-8-sig") as file:
        table = csv.DictReader(file)
        if not {"key", "config", "memberships", "status"} <= set(table.fieldnames or ()):
            raise UserError(f"{path} is not a results file of d2ace: it lacks their columns")
        for row in table:
            try:
                specs = _specs(row)
                result = _result(row, specs[0], curves) if row["status"] == "finished" else None
            except KeyError as error:
                raise UserError(f"{path}, line {table.line_num}: lacks {error}") from None
            except (TypeError, ValueError) as error:
                raise UserError(f"{path}, line {table.line_num}: {error}") from None
            before = store.status(specs[0])
            if before is None or (before == "failed" and result is not None):
                taken += 1
                store.put(
                    specs[0],
                    status=row["status"],
                    result=result,
                    error=row.get("error") or None,
                    recording=recordings.get(f"{row['key']}{MEMBER}"),
                    complete=False,
                    finished_at=row.get("finished_at"),
                )
            store.link(specs)
    return taken


@contextmanager
def _decoding(path: Path) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error.reason}); save it as UTF-8") from None


def _specs(row: dict[str, str]) -> list[RunSpec]:
    if row["status"] not in ("finished", "failed"):
        raise ValueError(f"status is {row['status']!r}, not finished or failed")
    config = json.loads(row["config"])
    specs = [
        RunSpec(study, method, config | {"selector_options": options})
        for study, method, options in json.loads(row["memberships"])
    ]
    if not specs:
        raise ValueError("the run has no study and method")
    return specs


def _result(
    row: dict[str, str], spec: RunSpec, curves: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    def numbers(prefix: str) -> dict[str, Any]:
        found = {key: value for key, value in row.items() if key and key.startswith(prefix)}
        return {key.removeprefix(prefix): _number(value) for key, value in found.items()}

    def texts(prefix: str) -> dict[str, Any]:
        return {name: row.get(f"{prefix}{name}") or None for name in ENVIRONMENT}

    monitored = spec.config["monitor"]
    history = [
        epoch | {"validation": {monitored: epoch["validation"]}}
        for epoch in curves.get(row["key"], [])
    ]
    dataset = {"name": spec.config["data"], **numbers("size_")}
    if row.get("digest"):
        dataset["digest"] = row["digest"]
    environment = texts("version_")
    environment["threads"] = _number(environment["threads"] or "")
    return {
        "format": 1,
        "config": spec.config,
        "environment": environment,
        "dataset": dataset,
        "best_epoch": _number(row.get("best_epoch") or ""),
        **{split: numbers(f"{split}_") for split in SPLITS},
        "undefined": numbers("undefined_"),
        "seconds": numbers("seconds_"),
        "cpu_seconds": _number(row.get("cpu_seconds") or ""),
        "history": history,
    }


def _read_curves(path: Path) -> dict[str, list[dict[str, Any]]]:
    curves: dict[str, list[dict[str, Any]]] = {}
    if not path.is_file():
        return curves
    try:
        with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                epoch: dict[str, Any] = {name: _number(row[name]) for name in CURVE[1:]}
                epoch["seconds"] = {"sum": epoch["seconds"]}
                curves.setdefault(row["key"], []).append(epoch)
    except (OSError, EOFError, KeyError, ValueError) as error:
        raise UserError(f"{path} cannot be read as the curves of runs: {error}") from None
    return curves


def _read_recordings(path: Path) -> dict[str, bytes]:
    if not path.is_file():
        return {}
    try:
        with zipfile.ZipFile(path) as archive:
            found = {name: archive.read(name) for name in archive.namelist()}
            if not all(name.endswith(MEMBER) for name in found):
                # Of a torn file, zipfile may take the last recording for the whole archive.
                raise zipfile.BadZipFile("its end is missing")
            return found
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} cannot be read as the recordings of runs: {error}") from None


def _number(text: str) -> float | int | None:
    """A number; nothing, or what is not finite, is undefined."""
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        value = float(text)
        return value if math.isfinite(value) else None
