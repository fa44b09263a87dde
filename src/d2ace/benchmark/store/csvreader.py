"""Runs from the text that `csvfile` writes: all of a file, or nothing of it."""

from __future__ import annotations

import csv
import gzip
import json
import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from d2ace._util.errors import UserError
from d2ace.benchmark.plan.specs import RunSpec
from d2ace.evaluation import METRICS

from .csvfile import (
    CURVE,
    CURVES,
    ENVIRONMENT,
    LABELS,
    MEMBER,
    NEEDED,
    PER_LABEL,
    RECORDINGS,
    SPLITS,
)
from .shape import check_config, check_result

if TYPE_CHECKING:
    from .database import Store

_LONGEST = 2**31 - 1  # what fits into a C long everywhere
_DAMAGED = (
    *(OSError, EOFError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError),
    *(csv.Error, zipfile.BadZipFile, zlib.error),
)
"""What reading a damaged archive raises."""
_Row = tuple[dict[str, str], list[RunSpec], dict[str, Any] | None]


class _Beside(NamedTuple):
    """What stands beside the table, by the key of the run."""

    curves: dict[str, list[dict[str, Any]]]
    labels: dict[str, dict[str, list[Any]]]


def read(store: Store, path: Path) -> int:
    """Store the runs of a file that are not stored; returns how many were taken.

    A stored run is left as it is, whatever the file says of it; only labels are added. Of a file
    with a line that cannot be taken nothing is.
    """
    try:
        if not path.is_file():
            raise UserError(f"there is no file {path} to take runs from")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    with _any_length():
        beside = _Beside(_read_curves(path.with_name(CURVES)), _read_labels(path.with_name(LABELS)))
        rows = list(_read_rows(path, beside))
    recordings = _read_recordings(path.with_name(RECORDINGS))
    taken = 0
    with store.together():
        for row, specs, result in rows:
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


def _read_rows(path: Path, beside: _Beside) -> Iterator[_Row]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file, strict=True)
            if not set(table.fieldnames or ()) >= NEEDED:
                raise UserError(f"{path} is not a results file of d2ace: it lacks their columns")
            for column in table.fieldnames or ():
                split, _, metric = column.partition("_")
                if split in SPLITS and metric not in METRICS:
                    raise UserError(f"{path} has a column {column}, which is no metric; mend it")
            seen: dict[str, dict[str, str]] = {}
            for row in table:
                try:
                    if seen.setdefault(row["key"], row) != row:
                        raise ValueError("another line says otherwise of this run; take one out")
                    yield _row(row, beside)
                except KeyError as error:
                    raise UserError(f"{path}, line {table.line_num}: lacks {error}") from None
                except (AttributeError, RecursionError, TypeError, ValueError) as error:
                    raise UserError(f"{path}, line {table.line_num}: {error}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error.reason}); save it as UTF-8") from None
    except (OSError, csv.Error) as error:
        raise UserError(f"{path} cannot be read as a results file: {error}") from None


def _row(row: dict[str, str], beside: _Beside) -> _Row:
    if None in row or None in row.values():
        raise ValueError("has not as many fields as there are columns")
    specs = _specs(row)
    if row["status"] != "finished":
        return row, specs, None
    result = _result(row, specs[0], beside)
    check_result(result)
    return row, specs, result


@contextmanager
def _any_length() -> Iterator[None]:
    """Options of a method may be tables of thousands of numbers, more than csv takes by itself."""
    before = csv.field_size_limit(_LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _specs(row: dict[str, str]) -> list[RunSpec]:
    if row["status"] not in ("finished", "failed"):
        raise ValueError(f"status is {row['status']!r}, not finished or failed")
    config = json.loads(row["config"])
    specs = []
    for study, method, options, *own in json.loads(row["memberships"]):
        if not isinstance(study, str) or not isinstance(method, str):
            raise ValueError("a study and a method are called by words")
        if not all(isinstance(one, dict) for one in own):
            raise ValueError("the method's own values are no table")
        specs.append(RunSpec(study, method, config | {"selector_options": options}, *own))
        check_config(specs[-1].config)
    if not specs:
        raise ValueError("the run has no study and method")
    if any(spec.key != row["key"] for spec in specs):
        raise ValueError(
            f"the configuration is not that of the run {row['key'][:12]}..., so one of them was "
            "changed; take the line as it was exported"
        )
    return specs


def _result(row: dict[str, str], spec: RunSpec, beside: _Beside) -> dict[str, Any]:
    def numbers(prefix: str) -> dict[str, Any]:
        found = {key: value for key, value in row.items() if key and key.startswith(prefix)}
        return {key.removeprefix(prefix): _number(value) for key, value in found.items()}

    def texts(prefix: str) -> dict[str, Any]:
        return {name: row.get(f"{prefix}{name}") or None for name in ENVIRONMENT}

    monitored = spec.config["monitor"]
    history = [
        epoch | {"validation": {monitored: epoch["validation"]}}
        for epoch in beside.curves.get(row["key"], [])
    ]
    dataset = {"name": spec.config["data"], **numbers("size_")}
    if row.get("digest"):
        dataset["digest"] = row["digest"]
    environment = texts("version_")
    environment["threads"] = _number(environment["threads"] or "")
    per_label = beside.labels.get(row["key"])
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
        **({} if per_label is None else {"per_label": per_label}),
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
    except _DAMAGED as error:
        raise UserError(f"{path} cannot be read as the curves of runs: {error}") from None
    return curves


def _read_labels(path: Path) -> dict[str, dict[str, list[Any]]]:
    tables: dict[str, dict[str, list[Any]]] = {}
    if not path.is_file():
        return tables
    try:
        with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file, strict=True):
                table = tables.setdefault(row["key"], {name: [] for name in PER_LABEL[1:]})
                table["label"].append(row["label"])
                for name in PER_LABEL[2:]:
                    table[name].append(_number(row[name]))
    except _DAMAGED as error:
        raise UserError(f"{path} cannot be read as the scores of labels: {error}") from None
    return tables


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
    except _DAMAGED as error:
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
