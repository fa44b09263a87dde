"""CSV that programs and spreadsheets read as it was meant."""

from __future__ import annotations

import csv
from typing import Any, TextIO, TypeVar

Value = TypeVar("Value")


class _Lines:
    """Ends lines with a line feed, whatever the writer ends them with."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: str) -> int:
        """Once a row."""
        return self._stream.write(line.removesuffix("\r\n") + "\n")


def csv_writer(stream: TextIO) -> Any:
    """A ``csv.writer`` of lines that end with a line feed.

    That of Python quotes, up to 3.12, only the line ends that it writes itself: of a name with a
    carriage return readers would make two lines.
    """
    return csv.writer(_Lines(stream), lineterminator="\r\n")


def no_formula(value: Value) -> Value | str:
    """A name that a spreadsheet would take for a formula, marked as text by an apostrophe."""
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
