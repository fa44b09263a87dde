"""Folds as small text files with checksums, so that two people can compare on the same rows.

A file is JSON. ``folds`` has one character per row of the dataset as it was loaded: the number of
the row's test fold in base 36, or ``-`` for a row that preparation left out. ``labels_sha256``
identifies the labels the folds were made for, whatever their column order and storage, and
``folds_sha256`` the folds themselves. ``checksum`` covers all other fields.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from d2ace._util.atomic import write_whole
from d2ace.data.readers.source import fault, shown, stored_bytes

from .container import DataError
from .stratify import checked_labels, row_numbers

__all__ = ["StoredFolds", "labels_digest", "protocol_folds", "read_folds", "write_folds"]

Ints = npt.NDArray[np.int64]

_FAMILY = "d2ace folds "
FORMAT = f"{_FAMILY}1"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_UNUSED = "-"
_FIELDS = {
    "dataset": str,
    "seed": (int, type(None)),
    "n_splits": int,
    "labels_sha256": str,
    "folds_sha256": str,
    "folds": str,
    "checksum": str,
}
_KNOWN = {"format", *_FIELDS}


@dataclass(frozen=True, eq=False)
class StoredFolds:
    """What a fold file says. ``numbers`` has a fold for each row of the loaded data, or -1."""

    dataset: str
    seed: int | None
    n_splits: int
    labels_sha256: str
    folds_sha256: str
    numbers: Ints

    @property
    def rows(self) -> Ints:
        """The rows that are in a fold; ``prepare`` keeps the same ones."""
        return np.flatnonzero(self.numbers >= 0)

    def folds(self) -> list[tuple[Ints, Ints]]:
        """``(train, test)`` pairs that count rows as the prepared data does."""
        used = self.numbers[self.rows]
        return [
            (np.flatnonzero(used != fold), np.flatnonzero(used == fold))
            for fold in range(self.n_splits)
        ]


def labels_digest(Y: Any) -> str:
    """SHA-256 of the labels of each row; column order and storage do not matter."""
    labels = checked_labels(Y)
    columns = labels.tocsc()
    parts = np.split(columns.indices.astype("<i8"), columns.indptr[1:-1])
    digest = hashlib.sha256(f"{labels.shape[0]} {labels.shape[1]}".encode())
    for content in sorted(part.tobytes() for part in parts):
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()


def write_folds(
    path: str | Path,
    Y: Any,
    folds: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]],
    *,
    dataset: str = "",
    seed: int | None = None,
    rows: npt.ArrayLike | None = None,
    n_rows: int | None = None,
) -> StoredFolds:
    """Write the folds of ``Y``, as `d2ace.data.folds` returns them, to a file.

    For prepared data, ``rows`` (``prepared.rows``) and ``n_rows`` (``prepared.report.rows``) say
    which rows of the loaded data those of ``Y`` are. A fold file that is there is replaced; any
    other file is left alone.
    """
    labels = checked_labels(Y)
    n = labels.shape[0]
    if not 2 <= len(folds) <= len(_DIGITS):
        raise DataError(f"{len(folds)} folds were given; a file holds 2 to {len(_DIGITS)}")
    tests = [row_numbers(test, n) for _, test in folds]
    tested = np.concatenate(tests)
    if not np.array_equal(np.sort(tested), np.arange(n)):
        raise DataError(f"the test folds do not hold each of the {n} rows of Y exactly once")
    used = np.empty(n, dtype=np.int64)
    used[tested] = np.repeat(np.arange(len(tests)), [test.size for test in tests])
    total = n if n_rows is None else n_rows
    where = np.arange(n) if rows is None else row_numbers(rows, total)
    if where.shape != (n,) or (np.diff(where) <= 0).any():
        raise DataError(
            f"rows must say which of {total} rows each of the {n} rows of Y is, in ascending order"
        )
    numbers = np.full(total, -1, dtype=np.int64)
    numbers[where] = used
    text = "".join(_UNUSED if number < 0 else _DIGITS[number] for number in numbers.tolist())
    content = {
        "format": FORMAT,
        "dataset": dataset,
        "seed": None if seed is None else int(seed),
        "n_splits": len(folds),
        "labels_sha256": labels_digest(labels),
        "folds_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "folds": text,
    }
    content["checksum"] = _checksum(content)
    stored = _checked(content, shown(path))
    _write(Path(path), content)
    return stored


def read_folds(path: str | Path, Y: Any = None) -> StoredFolds:
    """Read a fold file; with ``Y``, also check that it was made for these labels."""
    return _parsed(stored_bytes(Path(path)), shown(path), Y)


def protocol_folds(name: str, Y: Any = None) -> StoredFolds:
    """The folds of the benchmark protocol for a dataset of the paper, as shipped with d2ace.

    They are five folds with seed 0 of the data as `d2ace.data.prepare` leaves it.
    """
    folder = resources.files("d2ace.data") / "folds"
    known = {entry.name.removesuffix(".json"): entry for entry in folder.iterdir()}
    name = name.casefold()
    if name not in known:
        raise DataError(
            f"no folds are stored for {name!r}; there are some for {', '.join(sorted(known))}"
        )
    return _parsed(known[name].read_bytes(), f"folds/{name}.json", Y)


def _write(path: Path, content: dict[str, Any]) -> None:
    try:
        if os.path.lexists(path) and not _is_ours(path):
            message = "is not a fold file, and is left alone; delete it, or choose another name"
            raise fault(path, None, message)
        write_whole(path, (json.dumps(content, indent=1) + "\n").encode())
    except (OSError, ValueError) as problem:  # ValueError: no text, or a null byte in the path
        if isinstance(problem, DataError):
            raise
        reason = problem.strerror if isinstance(problem, OSError) else "no usable path"
        raise fault(path, None, f"cannot be written ({reason}); check the path") from None


def _is_ours(path: Path) -> bool:
    try:
        content = json.loads(stored_bytes(path))
    except (ValueError, RecursionError):  # a DataError is a ValueError
        return False
    return isinstance(content, dict) and str(content.get("format")).startswith(_FAMILY)


def _checksum(content: dict[str, Any]) -> str:
    """SHA-256 of all fields but the checksum itself."""
    covered = {field: value for field, value in content.items() if field != "checksum"}
    return hashlib.sha256(json.dumps(covered, sort_keys=True).encode()).hexdigest()


def _parsed(text: bytes, place: str, Y: Any) -> StoredFolds:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise DataError(f"{place} is not a fold file (no JSON: {problem})") from problem
    stored = _checked(content, place)
    if Y is not None and labels_digest(Y) != stored.labels_sha256:
        raise DataError(
            f"{place} was made for other labels than these; use the data and the preparation it "
            "names, or make folds of your own"
        )
    return stored


def _checked(content: Any, place: str) -> StoredFolds:
    if not isinstance(content, dict) or not str(content.get("format")).startswith(_FAMILY):
        raise DataError(f"{place} is not a fold file; its format should be {FORMAT!r}")
    if content["format"] != FORMAT:
        raise DataError(f"{place} has format {content['format']!r}, which is newer; update d2ace")
    if unknown := sorted(content.keys() - _KNOWN):
        raise DataError(f"{place} has the unknown field {unknown[0][:60]!r}; fetch it again")
    for field, kind in _FIELDS.items():
        value = content.get(field)
        if not isinstance(value, kind) or isinstance(value, bool):  # type: ignore[arg-type]
            raise DataError(f"{place} has no usable field {field!r}; fetch it again")
    text, n_splits = content["folds"], content["n_splits"]
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    if digest != content["folds_sha256"] or _checksum(content) != content["checksum"]:
        raise DataError(f"{place} does not match its own checksum; fetch it again")
    code = {digit: number for number, digit in enumerate(_DIGITS)} | {_UNUSED: -1}
    if not set(text) <= code.keys():
        raise DataError(f"{place} has rows that are in no fold it can name; fetch it again")
    tested = sorted(set(text) - {_UNUSED})
    if tested != list(_DIGITS[: max(n_splits, 0)]):
        raise DataError(
            f"{place} tests {len(tested)} folds, but says that there are {n_splits}; fetch it again"
        )
    return StoredFolds(
        dataset=content["dataset"],
        seed=content["seed"],
        n_splits=n_splits,
        labels_sha256=content["labels_sha256"],
        folds_sha256=content["folds_sha256"],
        numbers=np.array([code[digit] for digit in text], dtype=np.int64),
    )
