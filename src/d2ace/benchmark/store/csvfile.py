"""A store as text: ``results.csv``, a row per run, and ``curves.csv.gz``, a row per run and epoch.

Where there are any, scores of labels go beside them into ``labels.csv.gz``, a row per run and
label, and recordings into ``recordings.zip``. Numbers of ``results.csv`` and ``labels.csv.gz``
keep all their digits. What is lost: the split of an epoch's seconds into parts, and the validation
metrics of an epoch but the monitored one. `csvreader` reads these files back.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from d2ace._util.atomic import write_whole
from d2ace._util.csv_text import csv_writer
from d2ace._util.errors import RunError, UserError
from d2ace.benchmark.plan.specs import canonical
from d2ace.training import LABEL_COUNTS, LABEL_SCORES

if TYPE_CHECKING:
    from .database import Store, StoredRun

CURVES = "curves.csv.gz"
LABELS = "labels.csv.gz"
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
PER_LABEL = ("key", "label", *LABEL_COUNTS, *LABEL_SCORES)
ENVIRONMENT = ("d2ace", "torch", "numpy", "python", "threads")
SPLITS = ("validation", "test")
WORDS = ("name", "digest")  # what a run knows of its dataset beside sizes
SETTINGS = ("fold", "folds", "seed", "epochs")
NEEDED = {"key", "config", "memberships", "status"}
"""Columns by which a table of runs is known."""


def write(store: Store, path: Path) -> None:
    """Write all runs of a store; a reader never sees half a file.

    Files of an earlier export are replaced. Others of these names, and a folder that holds the
    export of another name, are refused before any is written.
    """
    beside = {CURVES: _holds_curves, LABELS: _holds_labels, RECORDINGS: _holds_recordings}
    if path.name in beside:
        raise UserError(f"{path} is what an export writes beside its table; name a .csv file")
    for name, is_ours in {path.name: _holds_runs, **beside}.items():
        _refuse_stranger(path.with_name(name), is_ours)
    _refuse_neighbour(path)
    together: dict[str, list[StoredRun]] = {}
    for run in store.runs(status=None):
        together.setdefault(run.key, []).append(run)
    rows = [_row(runs) for runs in together.values()]
    columns = list(dict.fromkeys(column for row in rows for column in row)) or ["key"]
    table = io.StringIO()
    writer = csv.DictWriter(table, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    each = [runs[0] for runs in together.values()]
    curves = _packed(CURVE, [line for run in each for line in _curve(run)])
    of_labels = [line for run in each for line in _labels(run)]
    sometimes = {
        LABELS: _packed(PER_LABEL, of_labels) if of_labels else None,
        RECORDINGS: _packed_recordings(store),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path.with_name(CURVES), curves)
        for name, content in sometimes.items():
            if content is None:
                path.with_name(name).unlink(missing_ok=True)  # of an earlier export
            else:
                write_whole(path.with_name(name), content)
        write_whole(path, table.getvalue().encode())
    except OSError as error:
        raise RunError(
            f"the runs could not be exported to {path} ({error.strerror or error}); make room, or "
            "name another file"
        ) from None


def _refuse_stranger(path: Path, is_ours: Callable[[Path], bool]) -> None:
    try:
        if not path.exists() and not path.is_symlink():
            return
        if path.is_file() and not path.is_symlink() and is_ours(path):
            return
    except (OSError, EOFError, ValueError, zlib.error) as error:  # nobody can tell what it is
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"the runs cannot be exported to {path}: {reason}") from None
    raise UserError(
        f"{path} was not written by an export of runs, and would be replaced; it was left alone: "
        "export to another folder, or move it away"
    )


def _refuse_neighbour(path: Path) -> None:
    """Refuse a folder with another export, whose curves and recordings ours would replace."""
    for other in sorted(path.parent.glob("*.csv")):
        if other.name != path.name and other.is_file() and _holds_runs(other):
            raise UserError(
                f"{other} is an export, too, and its {CURVES} would be replaced; export to "
                "another folder"
            )


def _holds_runs(path: Path) -> bool:
    with path.open("rb") as file:
        heading, more = file.readline(), file.read(1)
    columns = heading.decode("utf-8-sig", "replace").strip().replace('"', "").split(",")
    return set(columns) >= NEEDED or (columns == ["key"] and not more)  # of no runs


def _holds_curves(path: Path) -> bool:
    return _begins_with(path, CURVE)


def _holds_labels(path: Path) -> bool:
    return _begins_with(path, PER_LABEL)


def _begins_with(path: Path, columns: Sequence[str]) -> bool:
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            return False
    with gzip.open(path) as unpacked:
        return unpacked.readline().strip() == ",".join(columns).encode()


def _holds_recordings(path: Path) -> bool:
    """By the name of its first member, which a torn file has, too."""
    with path.open("rb") as file:
        start = file.read(30 + 64 + len(MEMBER))
    return re.fullmatch(rb"PK\x03\x04.{26}[0-9a-f]{64}\.npz", start, re.DOTALL) is not None


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
        [
            [other.study, other.method, other.config["selector_options"]]
            + ([] if other.own_values is None else [other.own_values])
            for other in runs
        ]
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


def _labels(run: StoredRun) -> Iterable[list[str]]:
    table = (run.result or {}).get("per_label")
    if table is not None:
        for row in zip(*(table[name] for name in PER_LABEL[1:]), strict=True):
            yield [run.key, *map(_text, row)]


def _packed(heading: Sequence[str], lines: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    writer = csv_writer(text)
    writer.writerow(heading)
    writer.writerows(lines)
    return gzip.compress(text.getvalue().encode(), mtime=0)  # no clock: same runs, same bytes


def _packed_recordings(store: Store) -> bytes | None:
    """The archive of recordings; None where nothing was recorded."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:  # they are compressed already
        for key, recording in store.packed_recordings():
            archive.writestr(zipfile.ZipInfo(f"{key}{MEMBER}"), recording)  # no clock here either
        empty = not archive.namelist()
    return None if empty else content.getvalue()


def _text(value: Any) -> str:
    if value is None:
        return ""
    return repr(value) if isinstance(value, float) else str(value)
