"""Files that are either there as a whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["put_in_place", "remove_leftovers", "whole", "write_whole"]

_TEMPORARY = re.compile(r"\.d2ace-\d+-[0-9a-f]{8}\.tmp")


@contextmanager
def whole(path: Path, *, before: Path | None = None) -> Iterator[BinaryIO]:
    """A file to write to, which is at ``path`` once the block has ended well.

    After a crash at any moment the old or the new file is there. With ``before`` the old one stays,
    under that name; a crash may then leave it alone. Raises the system's OSError; the caller
    adds a remedy. Files that a killed process leaves next to ``path`` have names that no other
    file has.
    """
    temporary = path.with_name(f".d2ace-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
            if before is not None:
                path.replace(before)
        put_in_place(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes | memoryview, *, before: Path | None = None) -> None:
    """Put ``content`` at ``path``, as :func:`whole` does."""
    with whole(path, before=before) as file:
        file.write(content)


def put_in_place(made: Path, path: Path) -> None:
    """Give its name to a file, or a folder, that was made on the same disk and is complete."""
    made.replace(path)
    _sync_folder(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes were writing to a folder, where no other process writes now."""
    for path in folder.iterdir():
        if _TEMPORARY.fullmatch(path.name) and path.is_file():
            path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a rename last, where the system lets one open folders."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
