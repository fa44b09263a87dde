"""What stands out in a row of a table: its features furthest from what is usual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from d2ace.data import MultiLabelData

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class StrongFeature:
    """A feature, and how strong it is in a row, as printed."""

    name: str
    strength: str


class RowFeatures:
    """The strongest features of rows.

    In a dense table: the features furthest from their mean over all rows, in standard deviations.
    In a sparse one (words in texts): the present features with the largest value times the
    logarithm of their rarity (all rows divided by the rows that have it).
    """

    def __init__(self, data: MultiLabelData) -> None:
        self._X: Any = data.X
        self._names = data.feature_names
        self.sparse = sp.issparse(data.X)
        if self.sparse:
            having = (self._X != 0).sum(axis=0, dtype=np.int64)
            having = np.asarray(having).ravel()
            self._rarity = np.log(data.n / np.maximum(having, 1))
        else:
            self._mean, self._deviation = _moments(data.X)

    def strongest(self, row: int, count: int = 3) -> list[StrongFeature]:
        """At most ``count`` features of a row, the strongest first."""
        if self.sparse:
            own = sp.csr_array(self._X[[row]])
            columns, values = own.indices, own.data.astype(np.float64)
            strength = np.abs(values) * self._rarity[columns]
        else:
            columns = np.arange(len(self._names))
            own = self._X[row].astype(np.float64) - self._mean
            values = np.divide(own, self._deviation, out=own * 0, where=self._deviation > 0)
            strength = np.nan_to_num(np.abs(values), nan=0.0)
        order = np.argsort(-strength, kind="stable")[:count]
        return [
            StrongFeature(self._names[columns[place]], self._printed(values[place]))
            for place in order
            if strength[place] > 0
        ]

    def _printed(self, value: float) -> str:
        if self.sparse:  # a count of 1 is not shown
            return "" if value == 1.0 else f"{value:.3g}".replace("-", "−")
        return f"{value:+.1f}".replace("-", "−")


def _moments(X: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Mean and standard deviation of the columns, without a second copy of the table."""
    blocks = [slice(start, start + _ROWS_AT_ONCE) for start in range(0, len(X), _ROWS_AT_ONCE)]
    mean = X.mean(axis=0, dtype=np.float64)
    squares = sum(np.square(X[block] - mean).sum(axis=0) for block in blocks)
    return mean, np.sqrt(squares / len(X))
