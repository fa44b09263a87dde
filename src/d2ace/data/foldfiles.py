"""Folds as small text files with checksums, so that two people can compare on the same rows.

A file is JSON. ``folds`` has one character per row of the dataset as it was loaded: the number of
the row's test fold in base 36, or ``-`` for a row that preparation left out. ``labels_sha256``
identifies the labels the folds were made for, whatever their column order and storage, and
``folds_sha256`` the folds themselves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from d2ace.data.container import DataError
from d2ace.data.stratify import checked_labels, row_numbers

__all__ = ["StoredFolds", "labels_digest", "protocol_folds", "read_folds", "write_folds"]

Ints = npt.NDArray[np.int64]

FORMAT = "d2ace folds 1"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_UNUSED = "-"
_FIELDS = {
    "dataset": str,
    "seed": (int, type(None)),
    "n_splits": int,
    "labels_sha256": str,
    "folds_sha256": str,
    "folds": str,
}


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
    which rows of the loaded data those of ``Y`` are.
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
        "seed": seed,
        "n_splits": len(folds),
        "labels_sha256": labels_digest(labels),
        "folds_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "folds": text,
    }
    Path(path).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return _checked(content, str(path))


def read_folds(path: str | Path, Y: Any = None) -> StoredFolds:
    """Read a fold file; with ``Y``, also check that it was made for these labels."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise DataError(f"{path} cannot be read as a fold file: {problem}") from problem
    return _parsed(text, str(path), Y)


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
    return _parsed(known[name].read_text(encoding="utf-8"), f"folds/{name}.json", Y)


def _parsed(text: str, place: str, Y: Any) -> StoredFolds:
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
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DataError(f"{place} is not a fold file; its format should be {FORMAT!r}")
    for field, kind in _FIELDS.items():
        if not isinstance(content.get(field), kind):  # type: ignore[arg-type]
            raise DataError(f"{place} has no usable field {field!r}; fetch it again")
    text, n_splits = content["folds"], content["n_splits"]
    if hashlib.sha256(text.encode()).hexdigest() != content["folds_sha256"]:
        raise DataError(f"{place} does not match its own checksum; fetch it again")
    code = {digit: number for number, digit in enumerate(_DIGITS[: max(n_splits, 0)])}
    code[_UNUSED] = -1
    if not set(text) <= code.keys():
        raise DataError(f"{place} names folds beyond its {n_splits}; fetch it again")
    return StoredFolds(
        dataset=content["dataset"],
        seed=content["seed"],
        n_splits=n_splits,
        labels_sha256=content["labels_sha256"],
        folds_sha256=content["folds_sha256"],
        numbers=np.array([code[digit] for digit in text], dtype=np.int64),
    )
