"""Standard output and error that take every character and outlive their readers.

A command finishes its work and writes its files even if its output cannot be shown: a character
that the terminal lacks is replaced, and output to a closed terminal is dropped.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

__all__ = ["LastingStream", "lasting_streams", "open_standard_streams"]

PLAIN = {"↑": "^", "↓": "v", "→": "->", "±": "+-", "–": "-", "·": "*", "…": "...", "λ": "lambda"}
"""What stands for characters of our own; others, in names of files and labels, are escaped."""


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if "\udc80" <= character <= "\udcff":  # a byte of a file's name that is no character
        return bytes([ord(character) - 0xDC00]), error.start + 1
    escaped = character.encode("ascii", "backslashreplace").decode()
    return PLAIN.get(character, escaped), error.start + 1


codecs.register_error("d2ace-plain", _plain)


class LastingStream:
    """A stream whose writes never fail; ``problem`` is why the first one would have."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.problem: Exception | None = None

    def write(self, text: str) -> int:
        """Write, or keep what is wrong for later."""
        if self.problem is None:
            try:
                self._stream.write(text)
            except (OSError, ValueError) as problem:  # ValueError: somebody closed it
                self._give_up(problem)
        return len(text)

    def flush(self) -> None:
        """Flush, or keep what is wrong for later."""
        if self.problem is None:
            try:
                self._stream.flush()
            except (OSError, ValueError) as problem:
                self._give_up(problem)

    def _give_up(self, problem: Exception) -> None:
        """Python flushes what is left at its end, and must be able to."""
        self.problem = problem
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        """All else is the stream's own."""
        return getattr(self._stream, name)


@contextmanager
def lasting_streams() -> Iterator[LastingStream]:
    """Have ``sys.stdout`` and ``sys.stderr`` last; gives the first of them."""
    before = sys.stdout, sys.stderr
    lasting = [LastingStream(stream) for stream in before]
    errors = [getattr(stream, "errors", None) for stream in before]
    _let_through(before, ["d2ace-plain"] * 2)
    sys.stdout, sys.stderr = (cast(TextIO, stream) for stream in lasting)
    try:
        yield lasting[0]
    finally:
        for stream in lasting:
            stream.flush()
        sys.stdout, sys.stderr = before
        _let_through(before, errors)


def _let_through(streams: tuple[TextIO, TextIO], errors: list[Any]) -> None:
    for stream, way in zip(streams, errors, strict=True):
        if hasattr(stream, "reconfigure"):
            with suppress(OSError, ValueError):  # it is closed
                stream.reconfigure(errors=way)


def open_standard_streams() -> None:
    """Where one of the three was closed (``>&-``), lead it nowhere.

    Else the next file that is opened takes its place, and what is printed goes into that.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
