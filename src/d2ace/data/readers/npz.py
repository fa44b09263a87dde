"""NPZ archives of plain arrays: what `save` writes, and ``X`` / ``Y`` arrays of other people.

Members are checked before anything is allocated, and nothing is ever unpickled.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from d2ace._util.atomic import whole
from d2ace.data.assembly import as_data, as_rows, check_sparse
from d2ace.data.container import DataError, MultiLabelData, UnknownDataError
from d2ace.data.missing import Missing

from .source import Source, fault, file_size, refuse_bomb, stem

_FORMAT = "d2ace-1"
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError,
    SyntaxError, TypeError,
)  # fmt: skip
_PLAIN = "write it with np.savez, which does not compress"


def save(data: MultiLabelData, path: str | os.PathLike[str]) -> None:
    """Write ``data`` as an NPZ archive that `load` reads back: tables, names and missing cells.

    Features are read as 32-bit floats; which rows were spoilt (`AnnotatedData`) is not kept.

    The file appears under its name only when it is complete. The name gets ``.npz`` if it lacks it.
    A file that `save` wrote is replaced, any other is left alone.
    """
    target = Path(path)
    if not target.name:
        raise UnknownDataError(f"{os.fspath(path)!r} names no file to save to; give its path")
    if target.suffix.lower() != ".npz":
        target = target.with_name(target.name + ".npz")
    try:
        if os.path.lexists(target) and not _is_ours(target):
            message = "was not written by d2ace.data.save, and is left alone; delete it, or choose"
            raise fault(target, None, f"{message} another name")
        write(target, data, {})
    except (OSError, ValueError) as error:  # ValueError: no text, or a null byte in the path
        if isinstance(error, DataError):
            raise
        reason = error.strerror if isinstance(error, OSError) else "no usable path"
        raise fault(target, None, f"cannot be written ({reason}); check the path") from None


def _is_ours(path: Path) -> bool:
    """Whether a file tells that `save` wrote it."""
    try:
        file_size(path)  # a pipe would be waited for
        with zipfile.ZipFile(path) as archive, archive.open("meta.npy") as stream:
            return b'"format": "d2ace-' in stream.read(1 << 12)
    except (OSError, KeyError, *_DAMAGED):
        return False


def write(target: Path, data: MultiLabelData, remarks: dict[str, Any]) -> None:
    """`save`, with ``remarks`` (anything JSON holds) kept beside the data."""
    arrays: dict[str, Any] = {}
    tables = {"X": data.X, "Y": data.Y}
    if data.missing is not None:
        tables["missing"] = data.missing.cells
        arrays["nominal"] = data.missing.nominal
    for key, table in tables.items():
        if sp.issparse(table):
            csr = sp.csr_matrix(table)
            arrays |= {
                f"{key}_{part}": getattr(csr, part) for part in ("data", "indices", "indptr")
            }
            arrays[f"{key}_shape"] = np.array(csr.shape, dtype=np.int64)
        else:
            arrays[key] = np.asarray(table)
    meta = {
        "format": _FORMAT,
        "name": data.name,
        "feature_names": list(data.feature_names),
        "label_names": list(data.label_names),
        "remarks": remarks,
        "arrays": sorted(arrays),
    }
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    with whole(target) as stream:
        np.savez(stream, **arrays)


def read_npz(source: Source) -> MultiLabelData:
    """The dataset in an NPZ archive."""
    return read(source)[0]


def read(source: Source, *, labelled: bool = True) -> tuple[MultiLabelData, dict[str, Any]]:
    """The dataset and the remarks kept beside it; its labels may be left aside."""
    path, arrays = source.path, _arrays(source)
    if "meta" not in arrays:
        return _foreign(path, arrays), {}
    try:
        meta = json.loads(arrays["meta"].tobytes().decode())
        if meta["format"] != _FORMAT:
            message = f"has format {meta['format']!r}, and this version reads {_FORMAT}"
            raise fault(path, None, f"{message}; update d2ace, or write the file again")
        if lost := set(meta.get("arrays", ())) - set(arrays):
            raise KeyError(min(lost))
        tables = [_table(path, arrays, key) for key in ("X", "Y")]
        names = [tuple(map(str, meta[key])) for key in ("feature_names", "label_names")]
        name, remarks = str(meta["name"]), dict(meta["remarks"])
    except (KeyError, TypeError, UnicodeDecodeError, RecursionError, json.JSONDecodeError) as error:
        raise fault(path, None, f"is damaged ({type(error).__name__}); write it again") from None
    X, Y = tables
    data = as_data(path, name, X, Y, *names) if labelled else as_rows(path, name, X, names[0])
    return replace(data, missing=_missing(path, arrays, data)), remarks


def _missing(path: Path, arrays: dict[str, Any], data: MultiLabelData) -> Missing | None:
    if "nominal" not in arrays:
        return None
    try:
        cells, nominal = _table(path, arrays, "missing"), arrays["nominal"]
    except KeyError as error:
        raise fault(path, None, f"is damaged (no {error}); write it again") from None
    if cells.shape != data.X.shape or nominal.shape != (data.d,) or nominal.dtype.kind != "i":
        raise fault(path, None, "tells of missing cells that X does not have; write it again")
    return Missing(cells.astype(bool), nominal)


def read_npz_features(source: Source) -> MultiLabelData:
    """``X`` of an NPZ archive, which need hold nothing else; labels are left aside."""
    path, arrays = source.path, _arrays(source)
    if "meta" in arrays:
        return read(source, labelled=False)[0]
    _require(path, arrays, "X")
    return as_rows(path, stem(path), _table(path, arrays, "X"), _listed(arrays, "feature_names"))


def _foreign(path: Path, arrays: dict[str, Any]) -> MultiLabelData:
    for key in ("X", "Y"):
        _require(path, arrays, key)
    tables = [_table(path, arrays, key) for key in ("X", "Y")]
    names = [_listed(arrays, key) for key in ("feature_names", "label_names")]
    return as_data(path, stem(path), *tables, *names)


def _require(path: Path, arrays: dict[str, Any], key: str) -> None:
    if key not in arrays and f"{key}_data" not in arrays:
        held = ", ".join(sorted(arrays)[:8]) or "nothing"
        raise fault(path, None, f"has no array {key!r} (it holds {held}); save X and Y")


def _listed(arrays: dict[str, Any], key: str) -> tuple[str, ...] | None:
    listed = arrays.get(key)
    if listed is not None and listed.dtype.kind == "S":
        listed = np.char.decode(listed, "utf-8", "replace")
    return None if listed is None else tuple(map(str, listed.ravel().tolist()))


def _table(path: Path, arrays: dict[str, Any], key: str) -> Any:
    if key in arrays:
        return arrays[key]
    data, indices, indptr = (arrays[f"{key}_{part}"] for part in ("data", "indices", "indptr"))
    shape = tuple(arrays[f"{key}_shape"].ravel().tolist())
    try:
        table = sp.csr_matrix((data, indices, indptr), shape=shape)
        check_sparse(table)
    except (ValueError, TypeError, IndexError, OverflowError, MemoryError) as error:
        raise fault(path, None, f"holds a broken sparse table {key!r} ({error})") from None
    return table


def _arrays(source: Source) -> dict[str, Any]:
    path = source.path
    arrays = {}
    try:
        with zipfile.ZipFile(io.BytesIO(source.stored)) as archive:
            members = archive.infolist()
            stored, size = len(source.stored), sum(member.file_size for member in members)
            refuse_bomb(path, size, stored, _PLAIN)
            for member in members:
                if member.filename.endswith(".npy"):
                    key = member.filename[:-4]
                    if key in arrays:
                        raise fault(path, None, f"holds {key!r} twice; leave one out")
                    with archive.open(member) as stream:
                        arrays[key] = _array(path, key, stream, member.file_size, stored)
    except DataError:
        raise
    except (OSError, KeyError, *_DAMAGED) as error:
        raise fault(path, None, f"is damaged or not an NPZ archive ({error})") from None
    return arrays


def _array(path: Path, key: str, stream: IO[bytes], size: int, stored: int) -> Any:
    """One member: the declared size must be the real one before memory is taken for it."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    if dtype.hasobject:
        raise fault(path, None, f"array {key!r} holds Python objects, which are never loaded")
    count = 1
    for length in shape:
        count *= int(length)
    if min(shape, default=1) < 0 or count * dtype.itemsize > size:
        raise fault(path, None, f"array {key!r} declares {count} cells, more than the file holds")
    refuse_bomb(path, 4 * count, stored, _PLAIN)  # as 32-bit floats
    content = bytearray(count * dtype.itemsize)
    view, at = memoryview(content), 0
    while piece := stream.read(1 << 20):  # to the end, where the archive's checksum is compared
        if at + len(piece) <= len(view):
            view[at : at + len(piece)] = piece
        at += len(piece)
    if at != len(view):
        raise fault(path, None, f"array {key!r} is not as long as it says; write the file again")
    flat = np.frombuffer(content, dtype=dtype)
    return flat.reshape(shape, order="F" if fortran else "C")
