"""MATLAB files as multi-label authors exchange them: ``data`` [n, d] and ``target`` [q, n]."""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from d2ace.data.container import MultiLabelData
from d2ace.data.files import Source, fault, refuse_bomb, stem
from d2ace.data.tables import as_data, as_rows

_PAIRS = (("data", "target"), ("X", "Y"))
_NUMBERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NUMBERS |= {"double", "single", "logical"}
_COMPRESSED = 15
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
        need = max(need, _unpacked_bytes(source))
        refuse_bomb(path, need, len(source.stored), _PLAIN)
        content = loadmat(io.BytesIO(source.stored), variable_names=names)
        return {name: _table(content[name]) for name in names}
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


def _unpacked_bytes(source: Source) -> int:
    """The size of the file without compression, which its own declarations may not tell."""
    content = source.stored
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None:  # version 4, which has no compression
        return len(content)
    total, at = 0, 128
    while at + 8 <= len(content):
        kind, size = struct.unpack_from(f"{order}II", content, at)
        total += size
        if kind == _COMPRESSED:
            unpacker, rest = zlib.decompressobj(), content[at + 8 : at + 8 + size]
            while rest and not unpacker.eof:
                total += len(unpacker.decompress(rest, 1 << 20))
                rest = unpacker.unconsumed_tail
                refuse_bomb(source.path, total, len(content), _PLAIN)
        at += 8 + size
    return total


def _table(value: Any) -> Any:
    return sp.csr_matrix(value) if sp.issparse(value) else np.asarray(value)
