"""Parsed files kept for the next time, keyed by their content and by how they were read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from d2ace.data.readers.source import Source, fault

from .container import DataError, DataWarning, MultiLabelData
from .readers import npz


def cache_dir() -> Path:
    """The folder of everything kept: ``D2ACE_CACHE``, or ``d2ace`` in the user's cache folder."""
    if chosen := os.environ.get("D2ACE_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "d2ace"


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def key(sources: Sequence[Source], options: dict[str, Any]) -> str:
    """One key for these bytes read in this way."""
    content = [digest(source.stored) for source in sources]
    return digest(json.dumps([content, options], sort_keys=True).encode())


def recall(entry: str) -> tuple[MultiLabelData, list[str]] | None:
    """What was kept under the key, with its notes; ``None`` if nothing usable was.

    The archive has its own checksums; if they or the key inside find damage, a warning says so.
    """
    path = _place(entry)
    if not os.path.lexists(path):
        return None
    try:
        data, remarks = npz.read(Source.read(path))
        if remarks["key"] != entry:
            raise fault(path, None, "belongs to another file")
        return data, [str(note) for note in remarks["notes"]]
    except (DataError, KeyError, TypeError) as problem:
        known = problem if isinstance(problem, DataError) else fault(path, None, "is incomplete")
        message = f"{known.clause}: this cached copy is not used, and the data is read anew"
        warnings.warn(message, DataWarning, stacklevel=4)
        return None


def keep(entry: str, data: MultiLabelData, notes: list[str]) -> None:
    """Keep it under the key. A cache that cannot be written costs time, not the result."""
    path = _place(entry)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        npz.write(path, data, {"notes": notes, "key": entry})


def _place(entry: str) -> Path:
    return cache_dir() / "parsed" / f"{entry}.npz"
