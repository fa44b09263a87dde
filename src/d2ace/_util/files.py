"""Files that are either there as a whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Put ``content`` at ``path``: after a crash at any moment the old or the new file is there.

    Raises the system's OSError; whoever calls knows what to advise. What a killed process leaves
    beside ``path`` is named so that no other file is ever taken for it.
    """
    temporary = path.with_name(f".d2ace-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename last, where the system lets one open folders."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
