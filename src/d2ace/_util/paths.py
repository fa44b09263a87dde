"""Paths as people give them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from .errors import UserError

__all__ = ["given_path"]


_INSIDE = "x" * 40  # as long as the names of files in a folder may become


def given_path(value: Any, option: str, *, kind: str = "folder") -> Path:
    """The path that ``option`` names; what cannot be one is refused.

    An empty text is no path, though ``Path("")`` is the current folder.
    """
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise UserError(f"{option} is {value!r}; name a {kind} as text or as a pathlib.Path.")
    if not os.fspath(value):
        raise UserError(f"{option} is empty; name a {kind}, or . for the current folder.")
    try:
        os.lstat(os.path.join(value, _INSIDE) if kind == "folder" else value)
    except ValueError as problem:
        raise UserError(
            f"{option} is {os.fspath(value)!r}, which cannot be a path ({problem}); name a {kind}."
        ) from problem
    except OSError as problem:
        if problem.errno == errno.ENAMETOOLONG:
            raise UserError(
                f"{option} is {_shortened(os.fspath(value))}, which is longer than a name may be "
                "here; choose a shorter one."
            ) from problem
    return Path(value)


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:60]}...{text[-17:]}"
