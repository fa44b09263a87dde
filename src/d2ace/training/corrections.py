"""Corrected labels: a table from insights that you may have edited, checked line by line.

Only training rows are corrected. A table with a test row is refused: it was made with knowledge of
rows that the run tests on.
"""

from __future__ import annotations

import csv
import hashlib
import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import scipy.sparse as sp

from d2ace._util.csv_text import no_formula
from d2ace._util.errors import UserError
from d2ace._util.hints import did_you_mean
from d2ace._util.paths import given_path
from d2ace.data import DataWarning

from .problem import Ints, Loaded, Split

if TYPE_CHECKING:
    from .config import RunConfig

__all__ = ["corrections_checksum", "with_corrections"]

_VALUES = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}


class Correction(NamedTuple):
    """A line: a pair of the loaded data, its given value and its new value."""

    line: int
    row: int
    label: int
    given: int
    suggested: int


def corrections_checksum(path: str | Path) -> str:
    """SHA-256 of the file: other corrections define another run."""
    return hashlib.sha256(_content(Path(path))).hexdigest()


def with_corrections(
    config: RunConfig, loaded: Loaded, train: Split, validation: Split, test: Split
) -> Split:
    """The training rows with the labels of ``labels_from``; the splits do not change."""
    if config.labels_from is None or config.labels_source is None:
        return train
    parts = {"training": train.rows, "validation": validation.rows, "test": test.rows}
    labels = _corrected(config.labels_from, loaded, train.Y, parts, config.labels_source)
    return replace(train, Y=labels)


def _corrected(
    path: str | Path, loaded: Loaded, Y: sp.csr_matrix, parts: Mapping[str, Ints], source: str
) -> sp.csr_matrix:
    """The labels ``Y`` [n, q] of the training rows, corrected by the lines of a file in turn.

    ``parts`` are the row indices of "training", "validation" and "test" in the prepared data. The
    given value in a line must match the data after the lines before it. Validation rows keep their
    labels.
    """
    path = Path(path)
    content = _content(path)
    if hashlib.sha256(content).hexdigest() != source:
        raise UserError(f"{path} has changed since the run was set up; start the run again.")
    lines = _read(path, content, loaded)
    column = {int(label): place for place, label in enumerate(loaded.labels)}
    home = {
        int(row): (part, place)
        for part, rows in parts.items()
        for place, row in enumerate(loaded.rows[rows])
    }
    table, passed = sp.lil_matrix(Y), 0
    current: dict[tuple[int, int], int] = {}
    for one in lines:
        pair = (one.row, one.label)
        have = current.setdefault(pair, int(bool(loaded.Y[pair])))
        _refuse_misfit(path, one, have, loaded, column, home)
        current[pair] = one.suggested
        part, place = home[one.row]
        if part == "training":
            table[place, column[one.label]] = one.suggested
        else:
            passed += 1
    if passed:
        warnings.warn(
            f"{passed} of {len(lines)} corrections in {path} are of validation rows, whose labels "
            "stay as they are; corrections made with the same seed have none.",
            DataWarning,
            stacklevel=2,
        )
    fixed = sp.csr_matrix(table, dtype=Y.dtype)
    fixed.eliminate_zeros()
    return fixed


def _refuse_misfit(
    path: Path,
    one: Correction,
    have: int,
    loaded: Loaded,
    column: Mapping[int, int],
    home: Mapping[int, tuple[str, int]],
) -> None:
    name = loaded.label_names[one.label]
    place = f"{path}, line {one.line}"
    if have != one.given:
        raise UserError(
            f"{place}: given is {one.given}, but row {one.row} of {loaded.name} has {have} as "
            f"{name!r}; use the table of a run on these data, or delete the line."
        )
    if one.label not in column:
        raise UserError(
            f"{place}: the run leaves out the label {name!r}, which has too few positive rows; "
            "delete the line, or lower min_positives."
        )
    if one.row not in home:
        raise UserError(
            f"{place}: the run leaves out row {one.row}, which has none of the trained labels; "
            "delete the line."
        )
    if home[one.row][0] == "test":
        raise UserError(
            f"{place}: row {one.row} is a test row of this run, so the table was made with "
            "knowledge of test rows; use the table of a run with the same fold or, for labels "
            "that people have checked, correct the data themselves."
        )


def _content(path: Path) -> bytes:
    given_path(path, "labels_from", kind="file")
    if not path.is_file():
        raise UserError(f"There is no file {path} for labels_from; name a table of corrections.")
    try:
        return path.read_bytes()
    except OSError as problem:
        raise UserError(
            f"{path} cannot be read ({problem.strerror or problem}); name another file with "
            "labels_from."
        ) from problem


def _read(path: Path, content: bytes, loaded: Loaded) -> list[Correction]:
    try:
        text = content.decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=_separator(text), strict=True)
        numbered = [(reader.line_num, cells) for cells in reader if any(cells)]
    except (ValueError, csv.Error) as problem:
        raise UserError(
            f"{path} cannot be read as CSV ({problem}); write it with insights.label_issues()."
            "to_csv(path)."
        ) from problem
    header = [name.strip() for name in numbered[0][1]] if numbered else []
    _refuse_header(path, header)
    rows = _Finder("row", loaded.name, loaded.row_names, loaded.Y.shape[0], loaded.Y.shape[0])
    used = len(loaded.labels)
    labels = _Finder("label", loaded.name, loaded.label_names, loaded.Y.shape[1], used)
    found = []
    for line, cells in numbered[1:]:
        place = f"{path}, line {line}"
        if len(cells) != len(header):
            raise UserError(
                f"{place}: it has {len(cells)} cells, but the first line has {len(header)}; "
                "correct or delete the line."
            )
        record = dict(zip(header, (cell.strip() for cell in cells), strict=True))
        given, suggested = (_value(place, name, record[name]) for name in ("given", "suggested"))
        row, label = rows.find(place, record), labels.find(place, record)
        found.append(Correction(line, row, label, given, suggested))
    return found


def _separator(text: str) -> str:
    """What stands between cells: where decimals have commas, spreadsheets write semicolons."""
    first = text.partition("\n")[0]
    marks = (mark for mark in ",;\t" if "given" in (c.strip('" \r') for c in first.split(mark)))
    return next(marks, ",")


def _refuse_header(path: Path, header: list[str]) -> None:
    wanted = (("row", "row_name"), ("label", "label_name"), ("given",), ("suggested",))
    for names in wanted:
        if not any(name in header for name in names):
            raise UserError(
                f"{path} has no column {names[0]!r}{did_you_mean(names[0], header)}; its first "
                "line must name row, label, given and suggested, as insights.label_issues()."
                "to_csv(path) writes them."
            )
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{path} has two columns {twice!r}; delete one.")


def _value(place: str, name: str, cell: str) -> int:
    if cell not in _VALUES:
        raise UserError(f"{place}: {name} is {cell!r}; it must be 0 or 1.")
    return _VALUES[cell]


class _Finder:
    """Rows or labels of the data, by name or by number; a name overrides a number."""

    def __init__(
        self, what: str, data: str, names: Sequence[str] | None, count: int, used: int
    ) -> None:
        self.what, self.data, self.count = what, data, count
        self.ambiguous = used != count
        self.place: dict[str, int] = {}
        self.twice: set[str] = set()
        for number, name in enumerate(names or ()):
            for spelt in {name.strip(), no_formula(name).strip()}:  # as data and as tables have it
                if self.place.setdefault(spelt, number) != number:
                    self.twice.add(spelt)

    def find(self, place: str, record: Mapping[str, str]) -> int:
        """The index, in the loaded data, of the row or label in a line."""
        name = record.get(f"{self.what}_name", "") if self.place else ""
        cell = record.get(self.what, "")
        if name or (self.place and not _is_number(cell)):
            return self._named(place, name or cell)
        if self.ambiguous:
            raise UserError(
                f"{place}: it has {self.what} {cell} without a name, but the run leaves out some "
                f"{self.what}s of {self.data}, so the number may mean another one; add a column "
                f"{self.what}_name."
            )
        if not _is_number(cell) or int(cell) >= self.count:
            raise UserError(
                f"{place}: there is no {self.what} {cell!r} in {self.data}, which has 0 to "
                f"{self.count - 1}; correct or delete the line."
            )
        return int(cell)

    def _named(self, place: str, name: str) -> int:
        if name in self.twice:
            raise UserError(
                f"{place}: {self.data} has two {self.what}s called {name!r}; rename one."
            )
        if name not in self.place:
            raise UserError(
                f"{place}: there is no {self.what} {name!r} in {self.data}"
                f"{did_you_mean(name, list(self.place))}; correct or delete the line."
            )
        return self.place[name]


def _is_number(cell: str) -> bool:
    return cell.isascii() and cell.isdecimal() and len(cell) < 19
