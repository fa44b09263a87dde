"""The figures the D2ACE paper prints, to stand beside ours.

`published/` holds them as CSV: scores, average ranks and the p-values of the Wilcoxon test of D2ACE
against each method. A folder of one's own is read in the same way; a file is known by its columns.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from d2ace.data import catalogue
from d2ace.errors import UserError

from .style import base_of

Key = tuple[str, ...]

_KINDS: dict[str, tuple[str, ...]] = {
    "score": ("metric", "model", "dataset", "method"),
    "average_rank": ("metric", "model", "method"),
    "p_value": ("metric", "model", "method"),
}
"""What a file tells -> the columns that say of what."""


@dataclass(frozen=True)
class Published:
    """Printed numbers by what they are of; each question is answered by None where none is."""

    numbers: dict[str, dict[Key, float]] = field(
        default_factory=lambda: {kind: {} for kind in _KINDS}
    )

    def score(self, metric: str, model: str, dataset: str, method: str) -> float | None:
        """The score of a method. Presets of a model or method are compared with the same one."""
        where = (metric, _model(model), _dataset(dataset), base_of(method))
        return self.numbers["score"].get(where)

    def average_rank(self, metric: str, model: str, method: str) -> float | None:
        """The average rank of a method over the paper's datasets."""
        return self.numbers["average_rank"].get((metric, _model(model), base_of(method)))

    def p_value(self, metric: str, model: str, method: str) -> float | None:
        """The p-value of D2ACE against a method."""
        return self.numbers["p_value"].get((metric, _model(model), base_of(method)))


def load(folder: str | Path | None = None) -> Published:
    """The numbers that come with the package, or those in the CSV files of a folder."""
    place: Any = resources.files("d2ace.benchmark").joinpath("published")
    if folder is not None:
        place = Path(folder)
        if not place.is_dir():
            raise UserError(f"there is no folder {folder} of published figures")
    published = Published()
    for path in sorted(place.iterdir(), key=lambda path: path.name):
        if path.name.endswith(".csv"):
            _read(path, published)
    if not any(published.numbers.values()):
        raise UserError(
            f"no CSV file in {folder} has the columns {', '.join(_KINDS['score'])} and score"
        )
    return published


def _read(path: Any, published: Published) -> None:
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is not a CSV file in UTF-8: {error}") from None
    columns = set(rows[0]) if rows else set()
    for kind, named in _KINDS.items():
        if not columns >= {kind, *named}:
            continue
        for line, row in enumerate(rows, start=2):
            key = [row[name] or "" for name in named]
            key[1] = _model(key[1])
            if "dataset" in named:
                key[2] = _dataset(key[2])
            try:
                published.numbers[kind][tuple(key)] = float(row[kind] or "")
            except ValueError:
                raise UserError(
                    f"{path}, line {line}: {kind} is {row[kind]!r}, not a number"
                ) from None


def _model(name: str) -> str:
    return base_of(name).upper()


def _dataset(name: str) -> str:
    """The catalogue's name of a dataset, so that "rcvsubset1" and "rcv1subset1" meet.

    "(reference)" is the preparation of the authors' code. A repaired dataset, or runs with unusual
    settings, are something else than what was printed, and meet nothing.
    """
    plain = name.removesuffix(" (reference)")
    entry = catalogue.find(plain)
    return plain if entry is None else entry.name
