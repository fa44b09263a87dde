"""ARFF files as multi-label data: finds the labels, codes nominal values, fills missing ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from d2ace._util.hints import did_you_mean
from d2ace.data.assembly import ONLY_LABELS
from d2ace.data.container import MultiLabelData, UnknownDataError, unlabelled
from d2ace.data.missing import Missing, filled, typical

from .arff_header import Header, Kind, read_header
from .arff_rows import Table, read_rows
from .label_names import Labels, choose
from .source import MAX_CELLS, Source, fault, stem

READER_VERSION = 5
"""Raise it when the same file would give other data: cached results are then read again."""


@dataclass
class _ArffFile:
    """One file: its declarations, its rows and the line of each row."""

    header: Header
    table: Table
    lines: npt.NDArray[np.int64]

    def kind(self, column: int) -> Kind:
        return self.header.kinds[int(self.header.kind[column])]


def read_arff(
    sources: Sequence[Source],
    *,
    listed: Source | None = None,
    labels: Labels = None,
    labels_at: str = "end",
    nominal: str = "ordinal",
    missing: str = "mean",
    drop: Collection[str] = (),
) -> tuple[MultiLabelData, list[str]]:
    """The rows of all ``sources`` together, and remarks that the user should see."""
    header, body = _opened(sources[0])
    columns = choose(header, labels, labels_at, listed)
    names = header.names
    wanted = {names[column] for column in columns}
    first, notes = _ArffFile(header, *read_rows(header, body, wanted)), []
    parts = [first, *(_read(source, wanted) for source in sources[1:])]
    for name in drop:
        if name not in names:
            hint = did_you_mean(name, names)
            raise UnknownDataError(f"{first.header.path}: no attribute {name!r} to drop{hint}")
    is_label = np.zeros(len(names), dtype=bool)
    is_label[columns] = True
    for part in parts[1:]:
        _match(first, part, is_label)

    Y = _stack([_labels(part, columns) for part in parts])
    kinds = first.header.kinds
    is_text = np.array([kind.name == "string" for kind in kinds])[first.header.kind]
    if (is_text & ~is_label).any():
        texts = [names[i] for i in np.flatnonzero(is_text & ~is_label)[:3]]
        count = int((is_text & ~is_label).sum())
        notes.append(f"left out {count} string attributes, as {texts}")
    dropped = np.array([name in drop for name in names]) if drop else np.zeros(len(names), bool)
    kept = np.flatnonzero(~is_label & ~is_text & ~dropped)
    if not len(kept):
        raise fault(first.header.path, None, "has no feature besides the labels")
    X = _stack([_take(part.table, kept) for part in parts])
    kind = first.header.kind[kept]
    gaps, note = _missing(first.header, X, kind, missing)
    notes += note
    if gaps is not None:
        X = filled(X, gaps, typical(X, gaps))
    features = [names[i] for i in kept]
    if nominal == "onehot":
        X, features, origin = _one_hot(first.header, X, kind, features)
        gaps = gaps and gaps.features(origin)
    if sp.issparse(X):
        X.eliminate_zeros()
    label_names = tuple(names[i] for i in columns)
    name = stem(first.header.path)
    return MultiLabelData(name, X, Y, tuple(features), label_names, missing=gaps), notes


def read_arff_features(source: Source, names: Collection[str]) -> MultiLabelData:
    """The attributes called ``names``, as far as the file has them, without labels."""
    part = _read(source)
    header, wanted = part.header, set(names)
    kept = np.flatnonzero([name in wanted for name in header.names])
    kept = kept[[part.kind(column).name != "string" for column in kept.tolist()]]
    if not len(kept):
        raise fault(header.path, None, f"has no feature of {len(wanted)} that are asked for")
    X = _take(part.table, kept)
    gaps, _ = _missing(header, X, header.kind[kept], "mean")
    if gaps is not None:
        X = filled(X, gaps, typical(X, gaps))
    features = tuple(header.names[column] for column in kept)
    return unlabelled(stem(header.path), X, features, gaps)


def declares_any(source: Source, names: Collection[str]) -> bool:
    """Whether the file has an attribute of one of these names."""
    header, _ = _opened(source)
    return not set(names).isdisjoint(header.names)


def _read(source: Source, labels: Collection[str] = ()) -> _ArffFile:
    header, body = _opened(source)
    return _ArffFile(header, *read_rows(header, body, labels))


def _opened(source: Source) -> tuple[Header, bytes]:
    """The declarations, and the rows of the file, unchanged."""
    text = source.expanded()
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return read_header(source.path, text)


def _stack(tables: list[Table]) -> Table:
    if len(tables) == 1:
        return tables[0]
    stacked: Table = (
        sp.vstack(tables, format="csr") if sp.issparse(tables[0]) else np.concatenate(tables)
    )
    return stacked


def _labels(part: _ArffFile, columns: npt.NDArray[np.int64]) -> Table:
    """The label columns as 0/1."""
    Y = _take(part.table, columns)
    sparse = sp.issparse(Y)
    flipped = []
    for place, column in enumerate(columns.tolist()):
        kind = part.kind(column)
        if kind.values in (("1", "0"), ("1",)):
            flipped.append(place)  # codes are positions, so that "1" has the code 0
        elif not (kind.name == "numeric" or kind.values in (("0", "1"), ("0",))):
            declared = ", ".join(kind.values[:4]) or kind.name
            name = part.header.names[column][:60]
            message = f"label {name!r} is declared as {declared[:60]}; labels must be 0 or 1"
            raise fault(part.header.path, None, message)
    wrong = np.isnan(Y.data if sparse else Y)  # what else is not 0 or 1 is no row that is read
    if wrong.any():
        i = int(np.argmax(wrong))
        row = np.searchsorted(Y.indptr, i, side="right") - 1 if sparse else i // Y.shape[1]
        place = Y.indices[i] if sparse else i % Y.shape[1]
        name = part.header.names[int(columns[place])][:60]
        message = f"label {name!r} is missing; {ONLY_LABELS}"
        raise fault(part.header.path, int(part.lines[row]), message)
    if flipped:
        _check_cells(part.header, Y.shape)
        Y = Y.toarray() if sparse else Y
        Y[:, flipped] = 1 - Y[:, flipped]
        Y = sp.csr_matrix(Y) if sparse else Y
    Y = Y.astype(np.uint8)
    if sparse:
        Y.eliminate_zeros()
    return Y


def _take(table: Table, columns: npt.NDArray[np.int64]) -> Table:
    """Some columns; unlike plain indexing, row after row in memory."""
    return table[:, columns] if sp.issparse(table) else np.take(table, columns, axis=1)


def _by_column(table: Table) -> Table:
    """The table in a form in which `_cells` of a column can be written."""
    return sp.csc_matrix(table) if sp.issparse(table) else table


def _cells(table: Table, column: int) -> npt.NDArray[np.float32]:
    """The stored cells of one column, to read and to write."""
    if sp.issparse(table):
        cells: npt.NDArray[np.float32] = table.data[table.indptr[column] : table.indptr[column + 1]]
    else:
        cells = table[:, column]
    return cells


def _check_cells(header: Header, shape: tuple[int, int]) -> None:
    if shape[0] * shape[1] > MAX_CELLS:
        message = f"would become a dense table of {shape[0]} x {shape[1]} cells, which is too large"
        raise fault(header.path, None, message)


def _match(first: _ArffFile, other: _ArffFile, is_label: npt.NDArray[np.bool_]) -> None:
    """Bring a further file to the columns and the nominal codes of the first."""
    a, b = first.header, other.header
    if sp.issparse(first.table) != sp.issparse(other.table):
        raise fault(b.path, None, f"has other rows (sparse or dense) than {a.path}")
    if a.names != b.names:
        if set(a.names) != set(b.names):
            odd = sorted(set(a.names) ^ set(b.names))[0][:60]
            raise fault(b.path, None, f"does not belong to {a.path}: only one declares {odd!r}")
        place = {name: i for i, name in enumerate(b.names)}
        order = np.array([place[name] for name in a.names])
        other.table = _take(other.table, order)
        other.header = b = Header(b.path, b.relation, a.names, b.kinds, b.kind[order], b.data_line)
    pairs = np.unique(np.stack([a.kind, b.kind])[:, ~is_label], axis=1).T
    for mine, theirs in pairs.tolist():
        one, two = a.kinds[mine], b.kinds[theirs]
        if one.name == two.name and one.values == two.values:
            continue
        where = np.flatnonzero((a.kind == mine) & (b.kind == theirs) & ~is_label)
        name = a.names[int(where[0])][:60]
        code = {value: i for i, value in enumerate(one.values)}
        new = [value for value in two.values if value not in code]
        if one.name != two.name or new or (sp.issparse(other.table) and code[two.values[0]] != 0):
            message = f"declares attribute {name!r} otherwise than {a.path}; declare them alike"
            raise fault(b.path, None, message)
        codes = np.array([code[value] for value in two.values], dtype=np.float32)
        table = _by_column(other.table)
        for column in where.tolist():
            cells = _cells(table, column)
            known = ~np.isnan(cells)
            cells[known] = codes[cells[known].astype(np.intp)]
        other.table = sp.csr_matrix(table) if sp.issparse(table) else table


def _missing(
    header: Header, X: Table, kind: npt.NDArray[np.intp], missing: str
) -> tuple[Missing | None, list[str]]:
    """The missing cells, and a note about them."""
    if sp.issparse(X):
        cells = sp.csr_matrix((np.isnan(X.data), X.indices, X.indptr), shape=X.shape, copy=True)
        cells.eliminate_zeros()
    else:
        cells = sp.csr_matrix(np.isnan(X))
    if not cells.nnz:
        return None, []
    if missing == "error":
        message = f"has {cells.nnz} missing values; use missing='mean' to fill"
        raise fault(header.path, None, message)
    is_nominal = np.array([declared.name == "nominal" for declared in header.kinds])[kind]
    note = (
        f"filled {cells.nnz} missing values in {len(np.unique(cells.indices))} attributes with the "
        "attribute's mean (nominal attributes: its most frequent value)"
    )
    return Missing(cells, np.where(is_nominal, np.arange(len(kind)), -1)), [note]


def _one_hot(
    header: Header, X: Table, kind: npt.NDArray[np.intp], names: list[str]
) -> tuple[Table, list[str], npt.NDArray[np.int64]]:
    """A column per value for nominal attributes of three and more values.

    With their names, and the number of the attribute that each column comes from.
    """
    n_values = np.array([len(declared.values) for declared in header.kinds])[kind]
    wide = np.flatnonzero(n_values > 2)
    origin = np.repeat(np.arange(len(names)), np.where(n_values > 2, n_values, 1))
    if not len(wide):
        return X, names, origin
    n, sparse = X.shape[0], sp.issparse(X)
    _check_cells(header, (n, int(n_values[wide].sum()) + (0 if sparse else len(names))))
    blocks: list[Table] = []
    new_names: list[str] = []
    done = 0
    for column in [*wide.tolist(), len(names)]:
        if column > done:
            blocks.append(X[:, done:column])
            new_names += names[done:column]
        if column < len(names):
            values = header.kinds[int(kind[column])].values
            codes = (X[:, [column]].toarray() if sparse else X[:, [column]]).astype(np.intp)
            block = (codes == np.arange(len(values))).astype(np.float32)
            blocks.append(sp.csr_matrix(block) if sparse else block)
            new_names += [f"{names[column]}={value}" for value in values]
        done = column + 1
    stacked: Table = sp.hstack(blocks, format="csr") if sparse else np.concatenate(blocks, axis=1)
    return stacked, new_names, origin
