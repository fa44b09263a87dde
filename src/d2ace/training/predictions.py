"""Predictions as CSV: on standard output, or in a file that is written atomically."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from d2ace._util.atomic import whole
from d2ace._util.csv_text import csv_writer
from d2ace._util.errors import RunError, UserError

__all__ = ["refuse_other_file", "write_predictions"]


def refuse_other_file(path: Path, header: Sequence[str]) -> None:
    """Refuse to replace anything but predictions with the same header, or an empty file."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; it was left alone: name a file with -o.")
    if not path.is_file():
        return
    first = io.StringIO()
    csv_writer(first).writerow(header)
    expected = first.getvalue().encode()
    with _naming(path), path.open("rb") as file:
        found = file.read(len(expected))
    if found not in (b"", expected):
        raise UserError(
            f"{path} holds something other than predictions of this run; it was left alone: name "
            "another file with -o, or move it away."
        )


def write_predictions(
    path: Path | None, header: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Write CSV to ``path``, or to standard output."""
    with _naming(path), _stream(path) as stream:
        writer = csv_writer(stream)
        writer.writerow(header)
        writer.writerows(rows)


@contextmanager
def _stream(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
    elif path.exists() and not path.is_file():  # a pipe or a device is not replaced
        with path.open("w", newline="", encoding="utf-8") as stream:
            yield stream
    else:
        with whole(Path(os.path.realpath(path))) as file:  # a link stays a link
            text = io.TextIOWrapper(file, newline="", encoding="utf-8")
            yield text
            text.detach()


@contextmanager
def _naming(path: Path | None) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # reported by the command line
        raise
    except OSError as problem:
        place, why = path or "standard output", problem.strerror or problem
        raise RunError(f"{place} could not be written ({why}); choose another file.") from problem
