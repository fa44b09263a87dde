"""The rows of an ARFF file, dense or sparse, as one table of float32.

Rows are touched one by one only to strip them; everything per cell is done for a whole block of
rows by NumPy. Nominal cells become the position of their value in the declaration, as in Weka;
position 0 is also what an omitted cell of a sparse row means. Missing cells become NaN.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from d2ace.data.assembly import ONLY_LABELS

from . import decimals
from .arff_header import Header, Kind, protect, show, unquote_row
from .source import fault

Table: TypeAlias = Any  # a dense array of float32, or a CSR matrix, for which SciPy has no types

_BLOCK = 1 << 20  # bytes of rows worked on at once: bounds memory and stays near the cache
_SPACES = re.compile(rb"  +")


def read_rows(
    header: Header, body: bytes, labels: Collection[str] = ()
) -> tuple[Table, npt.NDArray[np.int64]]:
    """All rows of ``body``, and the line that each stands on; ``labels`` may only be 0 and 1."""
    columns = _Columns(header, labels)
    places: list[int] = []
    parts: list[Table] = []
    sparse: bool | None = None
    for rows, lines in _blocks(header, body):
        braced = rows[0].startswith(b"{")
        for row, line in zip(rows, lines, strict=True):
            if row.startswith(b"{") != braced or (sparse is not None and sparse != braced):
                raise fault(header.path, line, "mixes sparse rows {...} with dense rows; use one")
        sparse = braced
        places += lines
        parts.append((_sparse_block if sparse else _dense_block)(columns, rows, lines))
    if not parts:
        raise fault(header.path, header.data_line, "has no rows after @data; the file is cut")
    table: Table = sp.vstack(parts, format="csr") if sparse else np.concatenate(parts)
    return table, np.array(places)


class _Columns:
    """What the cells of each column mean, sorted by how they are read."""

    def __init__(self, header: Header, labels: Collection[str]) -> None:
        self.path = header.path
        self.names = header.names
        self.count = len(header.names)
        # Numbers lie below this limit, and are whole if the limit is finite.
        limits = [len(kind.values) if kind.counts else np.inf for kind in header.kinds]
        self.limit = np.array(limits)[header.kind]
        numeric = np.array([kind.name == "numeric" for kind in header.kinds])[header.kind]
        # Checked before a 32-bit float rounds 1e-60 to 0.
        self.label = numeric & np.array([name in labels for name in header.names])
        self.limit[self.label] = 2
        # 0: read as a number; k: read as special[k - 1].
        self.special = [kind for kind in header.kinds if kind.name != "numeric" and not kind.counts]
        place = {id(kind): number for number, kind in enumerate(self.special, start=1)}
        self.group = np.array([place.get(id(kind), 0) for kind in header.kinds])[header.kind]


@dataclass(frozen=True)
class _Cells:
    """Tokens of a block, with the row and the column that each belongs to."""

    columns: _Columns
    lines: list[int]
    buffer: decimals.Bytes
    start: decimals.Places
    length: decimals.Places
    row: decimals.Places
    column: decimals.Places

    def token(self, i: int) -> bytes:
        return self.buffer[self.start[i] : self.start[i] + self.length[i]].tobytes()

    def values(self) -> decimals.Floats:
        """The value of every token, read as its column is declared."""
        if not self.columns.special:
            return self._numbers()
        group = self.columns.group[self.column]
        order = np.argsort(group, kind="stable")
        bounds = np.flatnonzero(np.diff(group[order])) + 1
        out = np.zeros(len(self.start))
        for members in np.split(order, bounds) if len(order) else []:
            part = replace(
                self,
                start=self.start[members],
                length=self.length[members],
                row=self.row[members],
                column=self.column[members],
            )
            number = int(group[members[0]])
            kind = self.columns.special[number - 1] if number else None
            if kind is None:
                out[members] = part._numbers()
            elif kind.name == "nominal":
                out[members] = part._nominal(kind)
            elif kind.name == "date":
                out[members] = part._dates(kind)
        return out

    def _numbers(self) -> decimals.Floats:
        value, plain = decimals.parse(self.buffer, self.start, self.length)
        if not plain.all():
            missing = self._missing()
            value[missing] = np.nan
            for i in np.flatnonzero(~plain & ~missing).tolist():
                parsed = decimals.parse_one(self.token(i))
                if parsed is None:
                    self.refuse(i, "is not a number")
                value[i] = parsed
        limit = self.columns.limit[self.column]
        nominal = np.isfinite(limit)
        if nominal.any():
            wrong = nominal & ((value < 0) | (value >= limit) | (value != np.floor(value)))
            wrong &= ~np.isnan(value)
            if wrong.any():
                i = int(np.argmax(wrong))
                if self.columns.label[self.column[i]]:
                    self.refuse_label(i)
                self.refuse(i, "is not one of the declared values")
        large = np.abs(value) > decimals.LARGEST
        if large.any():
            self.refuse(int(np.argmax(large)), "is too large for a 32-bit float")
        return value

    def _nominal(self, kind: Kind) -> decimals.Floats:
        width = max(map(len, kind.cells))
        if len(self.start) * width > 64 * _BLOCK:  # long values: a dictionary needs less memory
            codes = {cell: float(code) for code, cell in enumerate(kind.cells)}
            value = np.array([codes.get(self.token(i), -1.0) for i in range(len(self.start))])
        else:
            place = np.arange(width)
            inside = place < self.length[:, None]
            last = len(self.buffer) - 1
            text = self.buffer[np.minimum(self.start[:, None] + place, last)]
            token = np.where(inside, text, 0).astype(np.uint8).view(f"S{width}").ravel()
            declared = np.array(kind.cells, dtype=f"S{width}")
            order = np.argsort(declared)
            at = np.searchsorted(declared[order], token).clip(max=len(declared) - 1)
            found = (declared[order][at] == token) & (self.length <= width)
            value = np.where(found, order[at], -1).astype(np.float64)
        missing = self._missing()
        unknown = (value < 0) & ~missing
        if unknown.any():
            self.refuse(int(np.argmax(unknown)), "is not one of the declared values")
        value[missing] = np.nan
        return value

    def _dates(self, kind: Kind) -> decimals.Floats:
        missing = self._missing()
        value = np.full(len(self.start), np.nan)
        for i in np.flatnonzero(~missing).tolist():
            text = show(self.token(i))
            try:
                moment = datetime.strptime(text, kind.strptime).replace(tzinfo=timezone.utc)
            except ValueError:
                self.refuse(i, f"is no date of the form {kind.pattern!r}")
            value[i] = moment.timestamp()
        return value

    def _missing(self) -> decimals.Flags:
        missing: decimals.Flags = (self.length == 1) & (self.buffer[self.start] == ord("?"))
        return missing

    def refuse_label(self, i: int) -> NoReturn:
        name = self.columns.names[int(self.column[i])]
        message = f"has {show(self.token(i))} as label {name[:60]!r}; {ONLY_LABELS}"
        raise fault(self.columns.path, self.lines[int(self.row[i])], message)

    def refuse(self, i: int, problem: str) -> NoReturn:
        name = self.columns.names[int(self.column[i])]
        message = f"value {show(self.token(i))!r} of attribute {name[:60]!r} {problem}"
        raise fault(self.columns.path, self.lines[int(self.row[i])], message)


def _dense_block(columns: _Columns, rows: list[bytes], lines: list[int]) -> Table:
    text = _tidy(b"\n".join(rows) + b"\n")
    digits = _single_digits(columns, text, len(rows))
    if digits is not None:
        return digits.astype(np.float32)
    end, row_end = separators(text)
    found = np.diff(row_end, prepend=-1)
    wrong = found != columns.count
    if wrong.any():
        i = int(np.argmax(wrong))
        raise fault(
            columns.path,
            lines[i],
            f"has {found[i]} values for {columns.count} attributes; correct the row",
        )
    start = np.concatenate(([0], end[:-1] + 1))
    row = np.repeat(np.arange(len(rows)), columns.count)
    column = np.tile(np.arange(columns.count), len(rows))
    text = text.replace(b" ", protect(b" "))  # what is left stands inside values
    cells = _Cells(columns, lines, padded(text), start, end - start, row, column)
    return cells.values().astype(np.float32).reshape(len(rows), columns.count)


def _single_digits(columns: _Columns, text: bytes, n_rows: int) -> decimals.Bytes | None:
    """The cells, if each is one digit (0/1 tables often are): no need to look for separators."""
    if columns.special or len(text) != 2 * columns.count * n_rows:
        return None
    grid = np.frombuffer(text, dtype=np.uint8).reshape(n_rows, 2 * columns.count)
    digits: decimals.Bytes = grid[:, ::2] - np.uint8(48)
    separated = (grid[:, 1:-1:2] == ord(",")).all() and (grid[:, -1] == ord("\n")).all()
    below = np.minimum(columns.limit, 10).astype(np.uint8)
    return digits if separated and (digits < below).all() else None


def _sparse_block(columns: _Columns, rows: list[bytes], lines: list[int]) -> sp.csr_matrix:
    for written, line in zip(rows, lines, strict=True):
        if not written.endswith(b"}"):
            raise fault(columns.path, line, "is a sparse row without its closing brace '}'")
        if written.count(b"{") > 1 or written.count(b"}") > 1:
            raise fault(columns.path, line, "has a brace inside a sparse row; put it in quotes")
    text = b"\n".join([row[1:-1].strip() for row in rows]) + b"\n"
    start, end, row, space = _pairs(text)
    split = space
    one_each = len(space) == len(start) and not ((space <= start) | (space >= end)).any()
    if not one_each or b"\t" in text:
        text = _tidy(text)
        start, end, row, space = _pairs(text)
        split = np.append(space, len(text))[np.searchsorted(space, start)]  # the first in each
    wrong = (split <= start) | (split >= end - 1)
    if wrong.any():
        i = int(np.argmax(wrong))
        pair = show(text[start[i] : end[i]])
        raise fault(columns.path, lines[row[i]], f"{pair!r} is not a pair 'index value'")
    buffer = padded(text)
    index, plain = decimals.parse(buffer, start, split - start)
    wrong = ~plain | (index < 0) | (index >= columns.count) | (index != np.floor(index))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise fault(
            columns.path,
            lines[row[i]],
            f"index {show(text[start[i] : split[i]])!r} is out of range: "
            f"{columns.count} attributes are declared, counted from 0",
        )
    column = index.astype(np.int64)
    value = _Cells(columns, lines, buffer, split + 1, end - split - 1, row, column).values()
    pairs = np.bincount(row, minlength=len(rows))
    table: sp.csr_matrix = sp.csr_matrix(
        (
            value.astype(np.float32),
            column.astype(np.int32),
            np.concatenate(([0], np.cumsum(pairs))),
        ),
        shape=(len(rows), columns.count),
    )
    table.sort_indices()
    twice = (np.diff(table.indices) == 0) & (np.diff(row) == 0)
    if twice.any():
        i = int(np.argmax(twice))
        raise fault(columns.path, lines[row[i]], f"gives index {table.indices[i]} twice")
    return table


def _pairs(text: bytes) -> tuple[decimals.Places, ...]:
    """Start, end and row of each token of sparse rows, and the places of all spaces."""
    buffer = np.frombuffer(text, dtype=np.uint8)
    # As files are usually written, spaces and separators take turns, and one search finds both.
    place = np.flatnonzero(buffer <= ord(","))
    space, end = place[::2], place[1::2]
    ends_row = buffer[end] == ord("\n")
    in_turn = len(space) == len(end) and bool((buffer[space] == ord(" ")).all())
    if in_turn and bool((ends_row | (buffer[end] == ord(","))).all()):
        row_end = np.flatnonzero(ends_row)
    else:
        space = np.flatnonzero(buffer == ord(" "))
        end, row_end = separators(text)
    start = np.concatenate(([0], end[:-1] + 1))
    in_row = np.diff(row_end, prepend=-1)
    row = np.repeat(np.arange(len(row_end)), in_row)
    if (start == end).any():
        token = (start < end) | (in_row[row] > 1)  # an empty row has one token, which is empty
        start, end, row = start[token], end[token], row[token]
    return start, end, row, space


def separators(text: bytes) -> tuple[decimals.Places, decimals.Places]:
    """Ends of all tokens, and which of them end a row, of rows that end in newlines."""
    buffer = np.frombuffer(text, dtype=np.uint8)
    end = np.flatnonzero((buffer == ord(",")) | (buffer == ord("\n")))
    return end, np.flatnonzero(buffer[end] == ord("\n"))


def padded(text: bytes) -> decimals.Bytes:
    """``text`` as an array that may be read a little beyond its end."""
    return np.frombuffer(text + bytes(decimals.PADDING), dtype=np.uint8)


def _tidy(text: bytes) -> bytes:
    """``text`` without the spaces around its commas."""
    if b"\t" in text:
        text = text.replace(b"\t", b" ")
    if b" " in text:
        text = _SPACES.sub(b" ", text).replace(b" ,", b",").replace(b", ", b",")
    return text


def _blocks(header: Header, body: bytes) -> Iterator[tuple[list[bytes], list[int]]]:
    """Stripped rows with their line numbers, about a block at a time; comments are left out."""
    at, line = 0, header.data_line
    while at < len(body):
        end = body.find(b"\n", at + _BLOCK)
        end = len(body) if end < 0 else end
        rows, lines = [], []
        for raw in body[at:end].split(b"\n"):
            line += 1
            row = raw.strip()
            if row and not row.startswith(b"%"):
                rows.append(row)
                lines.append(line)
        if b"'" in body[at:end] or b'"' in body[at:end]:
            for i, row in enumerate(rows):
                unquoted = unquote_row(row) if b"'" in row or b'"' in row else row
                if unquoted is None:
                    raise fault(header.path, lines[i], "has a quote that stays open; close it")
                rows[i] = unquoted
        if rows:
            yield rows, lines
        at = end + 1
