"""The files of a run: written atomically, and verified before use."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from d2ace._util.atomic import write_whole
from d2ace._util.checksum import damaged_part
from d2ace._util.errors import RunError

__all__ = [
    "AGAIN",
    "FORMAT",
    "NUMBER",
    "Parts",
    "elsewhere",
    "fault_of",
    "load_json",
    "load_tensors",
    "make_folder",
    "save_bytes",
    "save_json",
    "save_tensors",
]

AGAIN = "train the run again, with resume off or in another folder"
FORMAT = 1
NUMBER = (int, float)
Parts = Mapping[str, type | tuple[type, ...]]


def elsewhere() -> str:
    """The general remedy for a file that cannot be used."""
    return "choose another folder with out"


def save_bytes(path: Path, content: bytes | memoryview, *, before: Path | None = None) -> None:
    """Write ``content`` to ``path``: after a crash at any moment, the old or new file is there."""
    try:
        write_whole(path, content, before=before)
    except OSError as problem:
        raise RunError(
            f"{path} could not be written ({problem.strerror or problem}); free some space or "
            "choose another folder with out, and start again to resume from the last checkpoint."
        ) from problem


def save_tensors(path: Path, content: dict[str, Any], *, before: Path | None = None) -> None:
    """Write tensors and plain values as a whole."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    save_bytes(path, buffer.getbuffer(), before=before)


def load_tensors(
    path: Path,
    what: str,
    parts: Parts | None = None,
    *,
    optional: tuple[str, ...] = (),
    remedy: Callable[[], str] = elsewhere,
) -> dict[str, Any]:
    """Read what :func:`save_tensors` wrote, if it is undamaged and has just these ``parts``.

    Nothing in the file is ever executed. ``remedy`` says what to do, and is asked only then.
    """
    try:
        _refuse_special(path)
        with path.open("rb") as file:
            with zipfile.ZipFile(file) as archive:
                if any(part.compress_type for part in archive.infolist()):
                    raise ValueError("it is compressed, as no file of a run is")
                damaged = damaged_part(archive)
            if damaged is not None:
                raise ValueError(f"{damaged} in it is damaged")
            file.seek(0)
            content = torch.load(file, map_location="cpu", weights_only=True)
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}")
        if parts is not None:
            _refuse_other_parts(content, parts, optional)
    except Exception as problem:  # a damaged file fails in as many ways as there are damages
        raise RunError(_sentence(path, what, problem, remedy)) from problem
    return content


def save_json(path: Path, content: dict[str, Any]) -> None:
    """Write plain values as a whole, with a checksum."""
    content = {"format": FORMAT, **content}
    text = json.dumps({**content, "checksum": _checksum(content)}, indent=1)
    save_bytes(path, text.encode())


def load_json(
    path: Path,
    what: str,
    parts: Parts,
    *,
    optional: tuple[str, ...] = (),
    remedy: Callable[[], str] = elsewhere,
) -> dict[str, Any]:
    """Read what :func:`save_json` wrote, if it is undamaged and has just these ``parts``."""
    try:
        _refuse_special(path)
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}")
        _refuse_other_format(content)
        checksum = content.pop("checksum", None)
        if checksum != _checksum(content):
            raise ValueError("its checksum is that of other content")
        _refuse_other_parts(content, {"format": int, **parts}, optional)
    except (OSError, ValueError, RecursionError) as problem:
        raise RunError(_sentence(path, what, problem, remedy)) from problem
    return content


def fault_of(content: Any, parts: Parts, optional: tuple[str, ...] = ()) -> str | None:
    """What is wrong with a table that should have just these parts, or None."""
    if not isinstance(content, dict):
        return f"is a {type(content).__name__}"
    for name, kind in parts.items():
        if name not in content:
            if name not in optional:
                return f"lacks {name!r}"
        elif not isinstance(content[name], kind) or (
            isinstance(content[name], bool) and kind in (int, NUMBER)  # as bool is an int, too
        ):
            return f"has {type(content[name]).__name__} as {name!r}"
    unknown = [name for name in content if name not in parts]
    return f"has {unknown[0]!r}, which this version of d2ace does not know" if unknown else None


def _refuse_other_parts(content: dict[str, Any], parts: Parts, optional: tuple[str, ...]) -> None:
    if "format" in parts:
        _refuse_other_format(content)
    fault = fault_of(content, parts, optional)
    if fault is not None:
        raise ValueError(f"it {fault}")


def _refuse_other_format(content: dict[str, Any]) -> None:
    number = content.get("format")
    if type(number) is int and number > FORMAT:
        raise ValueError(
            f"it has format {number}, and this version of d2ace reads up to {FORMAT}: update d2ace"
        )
    if type(number) is not int or number != FORMAT:
        raise ValueError(f"its format is {number!r} instead of {FORMAT}")


def _refuse_special(path: Path) -> None:
    """Reading a pipe would wait for ever, and a device may have no end."""
    if path.exists() and not path.is_file():
        raise ValueError("it is no file")


def _checksum(content: dict[str, Any]) -> str:
    """The same for all texts that mean the same values."""
    plain = json.loads(json.dumps(content))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _sentence(path: Path, what: str, problem: Exception, remedy: Callable[[], str]) -> str:
    if isinstance(problem, OSError):
        why = problem.strerror or str(problem)
    elif isinstance(problem, zipfile.BadZipFile | ValueError):
        why = str(problem)
    else:
        why = type(problem).__name__
    return f"{path} cannot be read as {what} ({why}); it was left alone: {remedy()}."


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
