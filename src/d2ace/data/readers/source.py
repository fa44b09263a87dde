"""Bytes of an untrusted file: plain, gzip or bzip2, within limits."""

from __future__ import annotations

import bz2
import codecs
import errno
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from d2ace.data.container import DataError, UnknownDataError

MAX_BYTES = 4 << 30
"""Largest file, after decompression, that a text reader takes."""
MAX_CELLS = 1 << 28
"""Largest dense table that a reader makes out of a smaller file (1 GiB as float32)."""
MAX_COLUMNS = 2_000_000
"""Largest number of columns that a file may imply by naming one high index."""

_FREE_BYTES = 64 << 20  # below this size any ratio is harmless
_MAX_RATIO = 200  # the known datasets shrink 3 to 180 times; a bomb 1,000 times and more


def fault(path: str | os.PathLike[str], line: int | None, message: str) -> DataError:
    """A ``DataError`` that starts with the place."""
    place = f"{shown(path)}, line {line}" if line is not None else shown(path)
    return DataError(f"{place}: {message}")


def shown(path: str | os.PathLike[str]) -> str:
    """A path as a sentence can hold it: on one line, in letters that any terminal has."""
    text = os.fspath(path)
    if len(text) > 300:
        text = f"{text[:200]}...{text[-50:]}"
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


@dataclass(frozen=True)
class Source:
    """A file and its bytes as they lie on the disk."""

    path: Path
    stored: bytes

    @classmethod
    def read(cls, path: Path) -> Source:
        """The file at ``path``."""
        return cls(path, stored_bytes(path))

    def expanded(self) -> bytes:
        """The bytes, decompressed if the name says so."""
        return expand(self.path, self.stored).removeprefix(codecs.BOM_UTF8)  # of Windows editors


def stored_bytes(path: Path) -> bytes:
    """The file as it lies on the disk."""
    size = file_size(path)
    if size > MAX_BYTES:
        raise fault(path, None, f"has {size} bytes, more than the {MAX_BYTES} that are read")
    if size == 0:
        raise fault(path, None, "is empty; fetch or copy it again")
    try:
        return path.read_bytes()
    except OSError as error:
        raise fault(path, None, f"cannot be read ({error.strerror})") from None


def file_size(path: Path) -> int:
    """Bytes of a regular file; what else there is, or is not, is refused before it is opened."""
    try:
        state = path.stat()
    except FileNotFoundError:
        raise UnknownDataError(f"{shown(path)}: no such file; check the path") from None
    except (OSError, ValueError) as error:  # ValueError: no text, or a null byte in the path
        if isinstance(error, ValueError) or error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise UnknownDataError(f"{shown(path)!r}: is not a usable path") from None
        raise fault(path, None, f"cannot be read ({error.strerror})") from None
    if stat.S_ISDIR(state.st_mode):
        raise UnknownDataError(f"{shown(path)}: is a directory; give the file inside it")
    if not stat.S_ISREG(state.st_mode):  # a pipe would be waited for, a device may have no end
        raise fault(path, None, "is not a regular file; give a data file")
    return state.st_size


def expand(path: Path, stored: bytes) -> bytes:
    """``stored``, decompressed if the file's name ends in ``.gz`` or ``.bz2``."""
    suffix = path.suffix.lower()
    raw = io.BytesIO(stored)
    if suffix == ".gz":
        stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
    elif suffix == ".bz2":
        stream = cast("IO[bytes]", bz2.BZ2File(raw))
    else:
        return stored
    pieces, total = [], 0
    try:
        while piece := stream.read(1 << 20):
            pieces.append(piece)
            total += len(piece)
            refuse_bomb(path, total, raw.tell(), "decompress it yourself")
    except (EOFError, zlib.error, OSError) as error:
        message = f"is truncated or not a {suffix} file ({error}); fetch or copy it again"
        raise fault(path, None, message) from None
    if not total:
        raise fault(path, None, "is empty after decompression; fetch or copy it again")
    return b"".join(pieces)


def refuse_bomb(place: str | os.PathLike[str], expanded: int, stored: int, remedy: str) -> None:
    """Refuse what needs far more memory than bytes on the disk, before it takes that memory."""
    if expanded > MAX_BYTES or (expanded > _FREE_BYTES and expanded > _MAX_RATIO * stored):
        what = f"{stored} bytes of it expand to {expanded >> 20} MiB, which no dataset does"
        raise fault(place, None, f"{what}; if you trust it, {remedy}")


@contextmanager
def enough_memory(path: Path) -> Iterator[None]:
    """Say of a file that is too large for this machine that it is so."""
    try:
        yield
    except MemoryError:
        message = "needs more memory than there is; end other programs, or store the tables sparse"
        raise fault(path, None, message) from None


def present(path: Path) -> Path | None:
    """The file at ``path``, or a compressed one in its place."""
    for candidate in (path, path.with_name(path.name + ".gz"), path.with_name(path.name + ".bz2")):
        if candidate.is_file():
            return candidate
    return None


def stem(path: Path) -> str:
    """The name without compression and format suffixes: ``yeast`` for ``yeast.arff.gz``."""
    name = path.name
    for suffix in (".gz", ".bz2"):
        name = name[: -len(suffix)] if name.lower().endswith(suffix) else name
    return shown(Path(name).stem)


def format_of(path: Path) -> str:
    """The suffix that names the format, compression aside, in lower case."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in (".gz", ".bz2") else suffix
