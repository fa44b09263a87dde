"""Files that are either there as a whole or not at all."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import torch

from d2ace._util import files
from d2ace.errors import RunError

__all__ = ["load_tensors", "make_folder", "save_tensors", "write_whole"]


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Put ``content`` at ``path``: after a crash at any moment the old or the new file is there."""
    try:
        files.write_whole(path, content)
    except OSError as problem:
        raise RunError(
            f"{path} could not be written ({problem.strerror or problem}); make room or choose "
            "another folder with out, and start again: the run goes on from its last checkpoint."
        ) from problem


def save_tensors(path: Path, content: dict[str, Any]) -> None:
    """Write tensors and plain values as a whole."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_whole(path, buffer.getbuffer())


def load_tensors(path: Path, what: str) -> dict[str, Any]:
    """Read what :func:`save_tensors` wrote; nothing in the file is ever executed."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as problem:  # a damaged file fails in as many ways as there are damages
        raise RunError(
            f"{path} cannot be read as {what} ({type(problem).__name__}); it was left alone: move "
            "it away to start afresh, or choose another folder with out."
        ) from problem
    if not isinstance(content, dict):
        raise RunError(
            f"{path} holds no {what}; it was left alone: choose another folder with out."
        )
    return content


def make_folder(path: Path) -> None:
    """Create a folder that can be written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as problem:
        raise RunError(
            f"{path} cannot be used as the folder of a run ({problem.strerror or problem}); "
            "choose another with out."
        ) from problem
