"""A table of scores, a row per dataset and a column per method, in the forms people hold it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .inputs import Array


class Table(NamedTuple):
    """Scores [datasets, methods] in float64, all finite, with the names of both."""

    values: Array
    datasets: list[Hashable]
    methods: list[Hashable]

    def column(self, method: Hashable) -> Array:
        """Scores of one method."""
        if method not in self.methods:
            known = ", ".join(repr(name) for name in self.methods)
            raise ValueError(f"the table has no method {method!r}; it has {known}.")
        return self.values[:, self.methods.index(method)]


def as_table(table: Any) -> Table:
    """``table`` checked.

    A DataFrame; or ``{dataset: {method: score}}``; or an array, whose datasets and methods are
    called by their numbers 0, 1, ...
    """
    if isinstance(table, Mapping):
        found = _from_mapping(table)
    elif hasattr(table, "columns") and hasattr(table, "to_numpy"):  # a DataFrame, without pandas
        found = Table(_frame(table), list(table.index), list(table.columns))
    else:
        values = _numbers(table)
        shape = values.shape if values.ndim == 2 else (0, 0)
        found = Table(values, list(range(shape[0])), list(range(shape[1])))
    if found.values.ndim != 2 or len(found.datasets) < 1 or len(found.methods) < 2:
        raise ValueError(
            f"the table must have a row per dataset (at least one) and a column per method "
            f"(at least two), got shape {found.values.shape}."
        )
    _refuse_twice("dataset", found.datasets)
    _refuse_twice("method", found.methods)
    bad = np.argwhere(~np.isfinite(found.values))
    if bad.size:
        row, column = bad[0]
        method, dataset = found.methods[column], found.datasets[row]
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise ValueError(
            f"the score of method {method!r} on dataset {dataset!r} is missing or not finite"
            f"{more}; run it, or leave out the method or the dataset."
        )
    return found


def _from_mapping(table: Mapping[Hashable, Any]) -> Table:
    datasets = list(table)
    for dataset in datasets:
        if not isinstance(table[dataset], Mapping):
            raise TypeError(
                f"the table must be {{dataset: {{method: score}}}}, but dataset {dataset!r} holds "
                f"{type(table[dataset]).__name__}."
            )
    methods = list(dict.fromkeys(method for row in table.values() for method in row))
    rows = [[table[dataset].get(method) for method in methods] for dataset in datasets]
    return Table(_numbers(rows, methods), datasets, methods)


def _frame(table: Any) -> Array:
    try:
        values = table.to_numpy(dtype=np.float64, na_value=np.nan)  # of nullable types, too
    except (TypeError, ValueError):  # other things than numbers, or no frame of pandas
        values = table.to_numpy()
    names = list(table.columns)
    return _numbers(values, names, "leave it out, or make it the index: table.set_index({name!r})")


def _numbers(
    values: Any, names: Sequence[Hashable] = (), remedy: str = "give its scores as numbers"
) -> Array:
    """``values`` [datasets, methods] in float64; ``names`` are those of the methods."""
    try:
        return np.asarray(values, dtype=np.float64)  # None becomes NaN
    except (TypeError, ValueError):
        wrong = _first_word(values)
    if wrong is None:
        raise TypeError("the table must have rows of equal length that hold numbers only.")
    place, value = wrong
    name = names[place] if place < len(names) else place
    raise TypeError(
        f"the column {name!r} of the table holds {value!r}, which is no number; "
        f"{remedy.format(name=name)}."
    )


def _first_word(values: Any) -> tuple[int, Any] | None:
    """Column and value of the first cell that is no number."""
    for row in values:
        if isinstance(row, str) or not isinstance(row, Iterable):
            return None
        for place, value in enumerate(row):
            try:
                np.float64(value if value is not None else np.nan)
            except (TypeError, ValueError):
                return place, value
    return None


def _refuse_twice(kind: str, names: Sequence[Hashable]) -> None:
    seen: set[Hashable] = set()
    for name in names:
        if name in seen:
            raise ValueError(
                f"the table has the {kind} {name!r} twice; average its runs beforehand."
            )
        seen.add(name)
