"""A folder of images and annotations, or a zip archive of one, read without leaving it."""

from __future__ import annotations

import os
import re
import stat
import threading
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from d2ace.data.container import DataError, UnknownDataError
from d2ace.data.readers.source import MAX_BYTES, expand, fault, refuse_bomb, shown

MAX_FILE_BYTES = 1 << 28
"""Largest image or annotation of one image that is read."""

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")

_DRIVE = re.compile(r"^[A-Za-z]:")


def inside(name: str, place: str) -> str:
    """``name`` as a path below the root; one that leads out of it is refused.

    Folder and file names come from annotation files of strangers, and would otherwise let them name
    any file of this machine.
    """
    plain = name.replace("\\", "/")
    parts = PurePosixPath(plain).parts
    if not parts or ".." in parts or plain.startswith("/") or _DRIVE.match(plain) or "\0" in plain:
        raise DataError(
            f"{place}: the file name {name[:80]!r} leads out of the dataset's folder; "
            "names must be relative to it and hold no '..'"
        )
    return "/".join(parts)


class Tree:
    """The files below ``root``: a folder, or a ``.zip`` archive, which is not unpacked.

    Names are relative and have forward slashes. An archive is opened by each process for itself: a
    forked worker shares the position in a file with its parent, and they would disturb each other.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        try:
            there = self.root.exists()
        except (OSError, ValueError):  # too long, or no text
            there = False
        if not there:
            raise UnknownDataError(f"{shown(root)}: no such folder or archive; check the path")
        self.archived = not self.root.is_dir()
        if self.archived and (self.root.suffix.lower() != ".zip" or not self.root.is_file()):
            raise UnknownDataError(f"{shown(root)}: is neither a folder nor a .zip archive")
        self._opened: tuple[int, zipfile.ZipFile] | None = None
        self._lock = threading.Lock()
        if self.archived:
            self._archive()

    def __reduce__(self) -> tuple[Any, ...]:
        """Only the place goes to another process, never an open file."""
        return Tree, (self.root,)

    def place(self, name: str) -> str:
        """Where the file is, for a message."""
        return shown(f"{self.root}: {name}" if self.archived else self.root / name)

    def names(self, folder: str) -> list[str]:
        """Sorted names of the files directly in ``folder`` (``""``: the root)."""
        if self.archived:
            return _archived_names(self.root, self._stamp()).get(folder, [])
        try:
            with os.scandir(self.root / folder) as entries:
                return sorted(entry.name for entry in entries if entry.is_file())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise DataError(f"{self.root / folder}: cannot be read ({error.strerror})") from None

    def folders(self, folder: str) -> list[str]:
        """Sorted names of the folders directly in ``folder``."""
        if self.archived:
            prefix = f"{folder}/" if folder else ""
            known = _archived_names(self.root, self._stamp())
            below = {
                name[len(prefix) :].partition("/")[0] for name in known if name.startswith(prefix)
            }
            return sorted(below - {""})
        place = self.root / folder
        return (
            sorted(path.name for path in place.iterdir() if path.is_dir()) if place.is_dir() else []
        )

    def has(self, name: str) -> bool:
        """Whether the file is there."""
        if self.archived:
            folder, _, file = name.rpartition("/")
            return file in _archived_names(self.root, self._stamp()).get(folder, [])
        return (self.root / name).is_file()

    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """The bytes of a file that has at most ``limit`` of them."""
        size = self.stamp(name)[0]
        if size > limit:
            raise DataError(
                f"{self.place(name)}: has {size} bytes, more than the {limit} that are read"
            )
        try:
            if self.archived:
                packed = self._archive().getinfo(name).compress_size
                refuse_bomb(self.place(name), size, packed, "unpack the archive yourself")
                return self._archive().read(name)
            return (self.root / name).read_bytes()
        except (
            OSError,
            zipfile.BadZipFile,
            zlib.error,
            NotImplementedError,
            RuntimeError,
        ) as error:
            raise DataError(f"{self.place(name)}: cannot be read ({error})") from None

    def text(self, name: str, limit: int = MAX_FILE_BYTES) -> str:
        """A file of UTF-8 text; the mark that Windows editors put in front is left out."""
        try:
            return self.read(name, limit).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.place(name)}: is not UTF-8 text ({error.reason} at byte {error.start}); "
                "save it as UTF-8"
            ) from None

    def expanded(self, name: str) -> bytes:
        """A large file, decompressed if its name ends in ``.gz`` or ``.bz2``."""
        return expand(Path(self.place(name)), self.read(name, MAX_BYTES))

    def stamp(self, name: str) -> tuple[int, int]:
        """Size, and time of change (in an archive: the checksum, which says more)."""
        try:
            if self.archived:
                info = self._archive().getinfo(name)
                return info.file_size, info.CRC
            state = (self.root / name).stat()
            if not stat.S_ISREG(state.st_mode):  # a pipe would be waited for
                raise DataError(f"{self.place(name)}: is not a regular file; copy it again")
            return state.st_size, state.st_mtime_ns
        except (KeyError, FileNotFoundError, NotADirectoryError):
            raise DataError(
                f"{self.place(name)}: no such file; the dataset is incomplete"
            ) from None
        except OSError as error:
            raise DataError(f"{self.place(name)}: cannot be read ({error.strerror})") from None

    def _stamp(self) -> tuple[int, int]:
        state = self.root.stat()
        return state.st_size, state.st_mtime_ns

    def _archive(self) -> zipfile.ZipFile:
        with self._lock:
            if self._opened is None or self._opened[0] != os.getpid():
                try:
                    self._opened = os.getpid(), zipfile.ZipFile(self.root)
                except (OSError, zipfile.BadZipFile) as error:
                    message = f"is damaged or not a zip archive ({error}); copy it again"
                    raise fault(self.root, None, message) from None
            return self._opened[1]


@lru_cache(maxsize=8)
def _archived_names(root: Path, stamp: tuple[int, int]) -> dict[str, list[str]]:
    """Files of each folder of an archive; ``stamp`` only tells one state of it from another."""
    found: dict[str, list[str]] = {}
    with zipfile.ZipFile(root) as archive:
        for name in sorted(archive.namelist()):
            folder, _, file = name.rpartition("/")
            found.setdefault(folder, [])
            if file:
                found[folder].append(file)
    return found
