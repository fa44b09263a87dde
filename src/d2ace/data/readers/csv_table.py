"""CSV tables: a first line of names, then numbers; columns named ``label:...`` are the labels."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from d2ace.data.container import MultiLabelData, unlabelled
from d2ace.data.missing import Missing, filled, typical

from . import decimals
from .source import MAX_CELLS, Source, fault, stem

PREFIX = "label:"
_LABELS = {b"0": 0, b"1": 1, b"0.0": 0, b"1.0": 1}


def read_csv(source: Source, missing: str = "mean") -> tuple[MultiLabelData, list[str]]:
    """The rows with their labels, and notes about them; an empty cell of a feature is missing."""
    names, lines, rows = _cells(source)
    labels = [at for at, name in enumerate(names) if name.startswith(PREFIX)]
    if not labels or len(labels) == len(names):
        kind = "label" if not labels else "feature"
        message = f"has no {kind} column; begin the names of label columns, and of no others, with"
        raise fault(source.path, 1, f"{message} {PREFIX!r}, such as {PREFIX + 'red'!r}")
    features, X, gaps = _features(source, names, lines, rows)
    notes = []
    if gaps is not None:
        if missing == "error":
            message = f"has {gaps.cells.nnz} empty cells; use missing='mean' to fill them"
            raise fault(source.path, None, message)
        columns = len(np.unique(gaps.cells.indices))
        notes.append(f"filled {gaps.cells.nnz} empty cells in {columns} columns with the mean")
    Y = np.zeros((len(rows), len(labels)), dtype=np.uint8)
    for place, at in enumerate(labels):
        for number, cells in enumerate(rows):
            value = _LABELS.get(cells[at].encode())
            if value is None:
                message = f"{names[at]!r} is {cells[at][:60]!r}; a label must be 0 or 1"
                raise fault(source.path, lines[number], message)
            Y[number, place] = value
    named = tuple(_bare(names[at])[1] for at in labels)
    return MultiLabelData(stem(source.path), X, Y, features, named, missing=gaps), notes


def read_csv_features(source: Source) -> MultiLabelData:
    """The features of all rows; labels may be there or not, and are left aside."""
    features, X, gaps = _features(source, *_cells(source))
    return unlabelled(stem(source.path), X, features, gaps)


def _cells(source: Source) -> tuple[list[str], list[int], list[list[str]]]:
    """Names of the columns, then every row with its line number."""
    path = source.path
    try:
        text = source.expanded().decode("utf-8")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        found = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(row)]
    except (ValueError, csv.Error) as problem:
        message = f"is no CSV text in UTF-8 ({problem}); export it again, with commas"
        raise fault(path, None, message) from None
    if len(found) < 2:
        message = "has no rows; the first line names the columns, the others hold numbers"
        raise fault(path, None, message)
    (first, names), *rest = found
    if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
        message = "has semicolons or tabs between cells; export it again, with commas"
        raise fault(path, first, f"{message}, and points in decimals")
    bare = [_bare(name) for name in names]
    odd = next((name for name in bare if not name[1] or bare.count(name) > 1), None)
    if odd is not None:
        what = f"has two columns {''.join(odd)!r}" if odd[1] else "has a column without a name"
        raise fault(path, first, f"{what}; give every column a name of its own")
    for line, cells in rest:
        if len(cells) != len(names):
            message = f"has {len(cells)} cells, but the first line {len(names)}; correct the row"
            raise fault(path, line, message)
    if len(names) * len(rest) > MAX_CELLS:
        message = f"has {len(names) * len(rest)} cells, too many; store a sparse table as LibSVM"
        raise fault(path, None, message)
    return names, [line for line, _ in rest], [cells for _, cells in rest]


def _bare(name: str) -> tuple[str, str]:
    """The prefix, if there is one, and the name behind it."""
    prefix = PREFIX if name.startswith(PREFIX) else ""
    return prefix, name.removeprefix(prefix).strip()


def _features(
    source: Source, names: list[str], lines: list[int], rows: list[list[str]]
) -> tuple[tuple[str, ...], npt.NDArray[np.float32], Missing | None]:
    """Names and values of the features, and which cells are empty."""
    columns = [at for at, name in enumerate(names) if not name.startswith(PREFIX)]
    X = np.zeros((len(rows), len(columns)), dtype=np.float64)
    empty = []
    for number, cells in enumerate(rows):
        for place, at in enumerate(columns):
            if not cells[at]:
                empty.append((number, place))
                continue
            value = decimals.parse_one(cells[at].encode())
            if value is None or abs(value) > decimals.LARGEST:
                message = (
                    f"{names[at]!r} is {cells[at][:60]!r}, which is no number; write it as one, or "
                    "leave the column out"
                )
                raise fault(source.path, lines[number], message)
            X[number, place] = value
    table: Any = X.astype(np.float32)
    gaps = None
    if empty:
        places = tuple(np.array(empty).T)
        ones = np.ones(len(empty), dtype=bool)
        cells_ = sp.csr_matrix((ones, places), shape=X.shape)
        gaps = Missing(cells_, np.full(len(columns), -1))
        table = filled(table, gaps, typical(table, gaps))
    return tuple(names[at] for at in columns), table, gaps
