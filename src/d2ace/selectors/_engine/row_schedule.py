"""How many rows an epoch draws: the option ``rows_per_epoch``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from d2ace._util.errors import ContractError


@dataclass(frozen=True)
class RowSchedule:
    """Numbers of rows that run from ``start`` to ``end``."""

    given: float | tuple[float, float] | str
    """A share, a number of rows or two alike, as given; or a method's word for its own."""
    start: float
    end: float

    @classmethod
    def of(cls, given: Any, n: int) -> RowSchedule:
        """The schedule that the option asks for, of ``n`` rows; anything else is refused."""
        if not isinstance(given, (list, tuple)) and np.ndim(given) != 1:
            value = _checked(given, given, n)
            return cls(value, _rows(value, n), _rows(value, n))
        values = [_checked(value, given, n) for value in given]
        if len(values) != 2 or type(values[0]) is not type(values[1]):  # (1, 0.5) begins with a row
            _refuse(given, n)
        start, end = values
        return cls((start, end), _rows(start, n), _rows(end, n))

    def rows(self, progress: float) -> int:
        """How many rows, at a progress from 0 to 1: the nearest whole number, at least 1."""
        return max(1, round(self.start + progress * (self.end - self.start)))


def _checked(value: Any, given: Any, n: int) -> float:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and 1 <= value <= n:
        return int(value)
    if not isinstance(value, (float, np.floating)) or not 0.0 < value <= 1.0:
        _refuse(given, n)
    return float(value)


def _rows(value: float, n: int) -> float:
    return float(value) if isinstance(value, int) else value * n


def _refuse(given: Any, n: int) -> NoReturn:
    raise ValueError(
        f"rows_per_epoch must be a share above 0.0 and up to 1.0, a whole number of rows from 1 "
        f"to {n}, or a pair (start, end) of two shares or two numbers, got {given!r}."
    )


def checked_rows(selector: Any, rows: Any) -> int:
    """What a method's ``epoch_rows`` returned."""
    whole = isinstance(rows, (int, np.integer)) and not isinstance(rows, bool)
    if not whole or not 1 <= rows <= selector.n:
        raise ContractError(
            f"{type(selector).__name__}.epoch_rows must return a whole number of rows from 1 to "
            f"{selector.n}, got {rows!r}."
        )
    return int(rows)
