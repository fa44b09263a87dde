"""Tables of insights: columns of equal length, as records, a DataFrame or a CSV file."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from d2ace._util.atomic import write_whole
from d2ace._util.csv_text import csv_writer, no_formula
from d2ace._util.errors import RunError, UserError
from d2ace._util.hints import did_you_mean
from d2ace._util.paths import given_path

__all__ = ["Records"]


class Records:
    """A table with named columns: iterate over its records, take a column by name, or write it.

    Each record is a dictionary of plain values.
    """

    def __init__(self, columns: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._columns = dict(columns)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        lists = [column.tolist() for column in self._columns.values()]
        for values in zip(*lists, strict=True):
            yield dict(zip(self._columns, values, strict=True))

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        """A column, as an array."""
        if not isinstance(name, str) or name not in self._columns:
            known = self.columns
            raise KeyError(
                f"There is no column {name!r}{did_you_mean(str(name), known)}; choose from "
                f"{', '.join(known)}."
            )
        return self._columns[name].copy()

    def __repr__(self) -> str:
        return f"Records({len(self)} of {', '.join(self._columns)})"

    def to_pandas(self) -> Any:
        """The table as a ``pandas.DataFrame``."""
        try:
            import pandas
        except ImportError:
            raise RunError(
                "to_pandas needs pandas, which is not installed; install it, or use to_csv(path)."
            ) from None
        return pandas.DataFrame({name: column.copy() for name, column in self._columns.items()})

    def csv(self) -> bytes:
        """The text that :meth:`to_csv` writes."""
        text = io.StringIO()
        writer = csv_writer(text)
        writer.writerow(self._columns)
        writer.writerows(map(no_formula, record.values()) for record in self)
        # A file name may not be valid text; such bytes are escaped.
        return text.getvalue().encode(errors="backslashreplace")

    def to_csv(self, path: Any) -> None:
        """Write the table as CSV (UTF-8), whole or not at all.

        It replaces a table with the same columns, and refuses to replace any other file.
        A name that a spreadsheet would take for a formula gets an apostrophe in front.
        """
        target = given_path(path, "path", kind="file")
        try:
            self._refuse_stranger(target)
            write_whole(target, self.csv())
        except OSError as problem:
            raise RunError(
                f"{target} could not be written ({problem.strerror or problem}); name another file."
            ) from None

    def _refuse_stranger(self, path: Path) -> None:
        if not path.exists() and not path.is_symlink():
            return
        header = ",".join(self._columns).encode() + b"\n"
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(len(header)) == header:
                    return
        raise UserError(
            f"{path} is not a table with the columns {', '.join(self._columns)}, so it was not "
            "replaced; name another file, or move it away."
        )
