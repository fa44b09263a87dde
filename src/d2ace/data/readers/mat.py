"""MATLAB files as multi-label authors exchange them: ``data`` [n, d] and ``target`` [q, n]."""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from d2ace.data.assembly import as_data, as_rows, check_sparse
from d2ace.data.container import MultiLabelData

from .source import Source, fault, refuse_bomb, stem

_PAIRS = (("data", "target"), ("X", "Y"))
_NUMBERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NUMBERS |= {"double", "single", "logical"}
_CODES = dict(zip((1, 2, 3, 4, 5, 6, 12, 13), "bBhHiIqQ", strict=True)) | {7: "f", 9: "d"}
_MATRIX, _COMPRESSED = 14, 15
_SPARSE, _COMPLEX = 5, 0x0800
_PLAIN = "save it with -v6, which does not compress"


def read_mat(source: Source) -> MultiLabelData:
    """The dataset in a MATLAB file of version 4 to 7.

    ``target`` is accepted in either orientation; if it is square, it is taken as [q, n]. Labels may
    be 0/1 or -1/+1.
    """
    content = _content(source, _PAIRS)
    X, Y = content.values()
    n = X.shape[0]
    if Y.ndim == 2 and Y.shape[1] == n and (Y.shape[0] != n or tuple(content) == _PAIRS[0]):
        Y = Y.T
    return as_data(source.path, stem(source.path), X, Y, signs=True)


def read_mat_features(source: Source) -> MultiLabelData:
    """``data`` of a MATLAB file, which need hold nothing else; labels are left aside."""
    (X,) = _content(source, [pair[:1] for pair in _PAIRS]).values()
    return as_rows(source.path, stem(source.path), X)


def _content(source: Source, choices: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """The variables of the first of ``choices`` that the file holds."""
    from scipy.io import loadmat, whosmat

    path = source.path
    try:
        listed = whosmat(io.BytesIO(source.stored))
        held = {name: (shape, kind) for name, shape, kind in listed}
        names = next((names for names in choices if set(names) <= set(held)), None)
        if names is None:
            shown = ", ".join(sorted(held)[:8]) or "nothing"
            wanted = " and ".join(map(repr, choices[0]))
            raise fault(path, None, f"has no variables {wanted} (it holds {shown})")
        need = 0
        for name in names:
            if sum(other == name for other, *_ in listed) > 1:
                raise fault(path, None, f"holds {name!r} twice; leave one out")
            need += _table_bytes(path, name, *held[name])
        refuse_bomb(path, need, len(source.stored), _PLAIN)
        if 0 in source.stored[:4]:  # version 4
            content = loadmat(io.BytesIO(source.stored), variable_names=names)
        else:
            content = _variables(source, names)
        return {name: content[name] for name in names}
    except NotImplementedError:
        message = "is a MATLAB 7.3 (HDF5) file; save it with -v7"
        raise fault(path, None, message) from None
    except Exception as error:  # SciPy's reader raises whatever a damaged file makes it stumble on
        if type(error).__module__.startswith("d2ace") or isinstance(error, MemoryError):
            raise
        raise fault(path, None, f"is damaged or not a MATLAB file ({error})") from None


def _table_bytes(path: Path, name: str, shape: tuple[int, ...], kind: str) -> int:
    """What a variable of this shape takes as a table of 32-bit floats."""
    if kind == "sparse":
        return 8 * sum(shape)  # a place for each row and column, whatever is stored
    if kind not in _NUMBERS:
        message = f"{name!r} is a MATLAB {kind}; a two-dimensional table of numbers is needed"
        raise fault(path, None, message)
    return 4 * math.prod(shape)


def _variables(source: Source, names: Sequence[str]) -> dict[str, Any]:
    """The tables ``names`` of a file of version 5 to 7.

    SciPy's reader trusts what a file says of itself, and a damaged one ends the process.
    """
    path, content = source.path, source.stored
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None:
        raise ValueError("it does not say in which order bytes stand")
    tables: dict[str, Any] = {}
    total, at = 0, 128
    while at + 8 <= len(content):
        kind, size = struct.unpack_from(f"{order}II", content, at)
        inside = memoryview(content)[at + 8 : at + 8 + size]
        at += 8 + size
        if kind == _COMPRESSED:
            unpacker, pieces, rest = zlib.decompressobj(), [], bytes(inside)
            while rest and not unpacker.eof:
                pieces.append(unpacker.decompress(rest, 1 << 20))
                rest, total = unpacker.unconsumed_tail, total + len(pieces[-1])
                refuse_bomb(path, total, len(content), _PLAIN)
            if not unpacker.eof:
                raise ValueError("it is cut short")
            unpacked = b"".join(pieces)
            (kind,) = struct.unpack_from(f"{order}I", unpacked)
            inside = memoryview(unpacked)[8:]
        if kind == _MATRIX:
            flags, sizes, name, *parts = _elements(inside, order)
            if (key := name.tobytes().decode("latin-1")) in names:
                tables[key] = _matrix(int(flags[0]), sizes.tolist(), parts)
    if missing := set(names) - set(tables):
        raise ValueError(f"{min(missing)} is not where it should be")
    return tables


def _matrix(flags: int, sizes: list[int], parts: list[npt.NDArray[Any]]) -> Any:
    if flags & _COMPLEX:
        raise ValueError("it holds complex numbers")
    if flags & 0xFF != _SPARSE:
        (cells,) = parts
        return cells.reshape(sizes, order="F").copy()
    rows, starts, cells = parts
    count = int(starts[-1])
    table = sp.csc_matrix((cells[:count], rows[:count], starts), shape=sizes)
    check_sparse(table)  # else an index beyond the table would be written to
    return table


def _elements(content: memoryview, order: str) -> Iterator[npt.NDArray[Any]]:
    """The arrays of numbers at the start of a variable: of a table, all there is."""
    at = 0
    while at + 8 <= len(content):
        kind, size = struct.unpack_from(f"{order}II", content, at)
        start, step = at + 8, 8 + size + -size % 8
        if kind >> 16:  # up to four bytes stand in the place of their own size
            kind, size, start, step = kind & 0xFFFF, kind >> 16, at + 4, 8
        if kind not in _CODES:
            return  # of cells or structures
        array = np.frombuffer(content[start : start + size], dtype=f"{order}{_CODES[kind]}")
        yield array.astype(array.dtype.newbyteorder("="), copy=False)
        at += step
