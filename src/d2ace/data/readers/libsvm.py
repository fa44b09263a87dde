"""LibSVM multi-label text: ``1,5 3:0.5 17:1`` is a row with labels 1 and 5 and two features."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from d2ace.data.container import MultiLabelData, unlabelled

from . import decimals
from .source import MAX_COLUMNS, Source, fault, stem

_SIZES = re.compile(rb"\s*(\d{1,12})\s+(\d{1,12})\s+(\d{1,12})\s*")
_Whole: TypeAlias = npt.NDArray[np.int64]


def read_libsvm(sources: list[Source]) -> MultiLabelData:
    """The rows of all ``sources``; labels are the distinct numbers used, in ascending order.

    Features count from 1 as LibSVM has it, or from 0 if any row uses index 0, and their names say
    which (columns of arrays without names are called otherwise, and count from 0). A first line
    ``rows features labels``, as extreme-classification files have it, fixes the sizes, and then
    both count from 0.
    """
    parts = [_read(source) for source in sources]
    sizes = parts[0].sizes
    for source, part in zip(sources, parts, strict=True):
        if part.sizes != sizes:
            message = f"declares other sizes than {sources[0].path}; they do not belong together"
            raise fault(source.path, 1, message)
    path = sources[0].path
    indices = np.concatenate([part.index for part in parts])
    used = np.unique(np.concatenate([part.label for part in parts]))
    if not len(indices) or not len(used):
        raise fault(path, None, "has no features or no labels; is it a multi-label LibSVM file?")
    base = 0 if sizes else int(min(indices.min(), 1))
    d = sizes[0] if sizes else int(indices.max()) + 1 - base
    known = np.arange(sizes[1]) if sizes else used
    if indices.max() - base >= d or used.max() >= known.max(initial=-1) + 1:
        raise fault(path, 1, f"uses an index beyond the sizes {sizes} that its first line declares")
    tables = []
    for part in parts:
        cells = (part.value.astype(np.float32), (part.row, part.index - base))
        places = (part.label_row, np.searchsorted(known, part.label))
        ones = np.ones(len(part.label), dtype=np.uint8)
        tables.append(
            (
                sp.csr_matrix(cells, shape=(part.n, d)),
                sp.csr_matrix((ones, places), shape=(part.n, len(known))),
            )
        )
    X, Y = (sp.vstack(column, format="csr") for column in zip(*tables, strict=True))
    X.eliminate_zeros()
    features = tuple(f"index_{i}" for i in range(base, d + base))
    return MultiLabelData(stem(path), X, Y, features, tuple(f"label_{i}" for i in known.tolist()))


def read_libsvm_features(source: Source, names: Sequence[str]) -> MultiLabelData:
    """Rows of the features ``names``; labels may be there or not, and are left aside.

    Where the names are those that `read_libsvm` gives, they say whether features count from 0.
    """
    part = _read(source)
    if names[0] in ("index_0", "index_1"):
        base = int(names[0][-1])
    else:
        base = 0 if part.sizes else int(min(part.index.min(initial=1), 1))
    place = part.index - base
    wrong = (place < 0) | (place >= len(names))
    if wrong.any():
        message = f"has the feature {part.index[wrong][0]}, but {base} to {len(names) - 1 + base}"
        raise fault(source.path, None, f"{message} are known; leave it out")
    X = sp.csr_matrix((part.value.astype(np.float32), (part.row, place)), (part.n, len(names)))
    X.eliminate_zeros()
    return unlabelled(stem(source.path), X, tuple(names))


@dataclass(frozen=True)
class _LibsvmFile:
    """The cells of one file as coordinates, and the sizes that it declares."""

    n: int
    row: _Whole
    index: _Whole
    value: decimals.Floats
    label_row: _Whole
    label: _Whole
    sizes: tuple[int, int] | None


def _read(source: Source) -> _LibsvmFile:
    path, data = source.path, source.expanded()
    if bool((np.frombuffer(data, dtype=np.uint8) < 9).any()):
        raise fault(path, None, "holds binary bytes, so it is not a LibSVM file; check what it is")
    data = data.replace(b"\t", b" ").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    written = data.split(b"\n")
    sizes, promised = None, None
    if declared := _SIZES.fullmatch(written[0]):
        promised, *rest_of_sizes = map(int, declared.groups())
        sizes = (rest_of_sizes[0], rest_of_sizes[1])
        if max(sizes) > MAX_COLUMNS:
            raise fault(path, 1, f"declares {max(sizes)} columns; at most {MAX_COLUMNS} are read")
        written[0] = b""
    lines, labels, features = [], [], []
    for number, line in enumerate(written, start=1):
        content = line.split(b"#", 1)[0]
        if not content.strip():
            continue
        head, _, rest = content.partition(b" ")
        if b":" in head:  # no labels, and no space to say so
            head, rest = b"", content
        lines.append(number)
        labels.append(head)
        features.append(b" ".join(rest.split()))
    if not lines:
        raise fault(path, None, "has no rows; fetch or copy it again")
    if promised is not None and promised != len(lines):
        message = f"declares {promised} rows but holds {len(lines)}; fetch or copy it again"
        raise fault(path, 1, message)

    named = _Tokens(path, lines, labels, ",")
    label = named.whole(named.start, named.end, "label")
    _once(path, lines, named.row, label, "label")
    cells = _Tokens(path, lines, features, " ")
    colon = np.flatnonzero(cells.buffer == ord(":"))
    if len(colon) != len(cells.start) or ((colon <= cells.start) | (colon >= cells.end)).any():
        inside = np.searchsorted(colon, cells.end) - np.searchsorted(colon, cells.start + 1)
        wrong = (inside != 1) | (cells.buffer[cells.start] == ord(":"))
        cells.refuse(cells.start, cells.end, int(np.argmax(wrong)), "is not a pair 'index:value'")
    index = cells.whole(cells.start, colon, "feature index")
    _once(path, lines, cells.row, index, "feature")
    value, plain = decimals.parse(cells.buffer, colon + 1, cells.end - colon - 1)
    for i in np.flatnonzero(~plain).tolist():
        number_ = decimals.parse_one(cells.buffer[colon[i] + 1 : cells.end[i]].tobytes())
        if number_ is None or abs(number_) > decimals.LARGEST:
            cells.refuse(colon + 1, cells.end, i, "is not a number that a 32-bit float holds")
        value[i] = number_
    return _LibsvmFile(len(lines), cells.row, index, value, named.row, label, sizes)


def _once(path: Path, lines: list[int], row: _Whole, index: _Whole, what: str) -> None:
    key = row * MAX_COLUMNS + index
    order = np.argsort(key, kind="stable")
    twice = np.flatnonzero(np.diff(key[order]) == 0)
    if len(twice):
        i = int(order[twice[0]])
        raise fault(path, lines[row[i]], f"gives {what} {index[i]} twice; correct the row")


class _Tokens:
    """The tokens of some rows, and the buffer that they lie in."""

    def __init__(self, path: Path, lines: list[int], rows: list[bytes], separator: str) -> None:
        self.path, self.lines = path, lines
        text = b"\n".join(rows) + b"\n" + bytes(decimals.PADDING)
        self.buffer: decimals.Bytes = np.frombuffer(text, dtype=np.uint8)
        end = np.flatnonzero((self.buffer == ord(separator)) | (self.buffer == ord("\n")))
        start = np.concatenate(([0], end[:-1] + 1))
        line_end = (self.buffer[end] == ord("\n")).astype(np.int64)
        given = start < end
        self.start, self.end = start[given], end[given]
        self.row = (np.cumsum(line_end) - line_end)[given]

    def refuse(self, start: _Whole, end: _Whole, i: int, problem: str) -> NoReturn:
        token = self.buffer[start[i] : end[i]].tobytes()[:60].decode("utf-8", "replace")
        raise fault(self.path, self.lines[self.row[i]], f"{token!r} {problem}; correct the row")

    def whole(self, start: _Whole, end: _Whole, what: str) -> _Whole:
        """The tokens as whole numbers from 0; ``1.0`` is one too."""
        value, plain = decimals.parse(self.buffer, start, end - start)
        wrong = ~plain | (value < 0) | (value >= MAX_COLUMNS) | (value != np.floor(value))
        if wrong.any():
            problem = f"is no {what}, a whole number from 0 to {MAX_COLUMNS - 1}"
            self.refuse(start, end, int(np.argmax(wrong)), problem)
        return value.astype(np.int64)
