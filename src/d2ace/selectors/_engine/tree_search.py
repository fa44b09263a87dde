"""Nearest rows by a k-d tree: the same rows as exact search, sooner in few dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from d2ace._util.callbacks import Progress

from .exact_search import MeasuredRows, measured, nearest_rows

__all__ = ["tree_search"]

Rows = np.ndarray[Any, Any]

_SPARE = 1  # rows beyond those wanted, by which a tie is noticed
_WIDER, _WIDEST = 4, 512  # with ties, so many times as many are asked for, up to this many
_LEAF = 64  # rows compared one by one at the end of a search
_BLOCK = 1 << 18  # pairs asked for at once
_SLACK = 1e-12  # by which two ways of adding up squares may differ


def tree_search(
    features: Tensor, source: MeasuredRows, k: int, *, include_self: bool, progress: Progress
) -> Tensor:
    """As exact search: int64 [n, k], nearest first, ties to the lower index.

    Equal rows have the same nearest rows, themselves among them, and are searched for once. The
    tree holds no more copies of a row than are wanted, however many there are.
    """
    points = features.to(torch.float64).numpy()
    n, wanted = len(points), k + (not include_self)
    order, starts, counts = _alike(points)
    near = torch.empty(n, wanted, dtype=torch.int64)  # used at the first of equal rows
    crowds = starts[counts >= wanted]  # whose nearest rows are copies of their own
    near[order[crowds]] = torch.from_numpy(order[crowds[:, None] + np.arange(wanted)])
    copy = np.arange(n) - np.repeat(starts, counts)
    search = _Search(points, order[copy < wanted], source, near)
    search.run(order[starts[counts < wanted]], progress)
    first = np.empty(n, np.int64)
    first[order] = np.repeat(order[starts], counts)
    found = near[torch.from_numpy(first)]
    progress(n, n)
    return found if include_self else _without_itself(found)


def _alike(points: Rows) -> tuple[Rows, Rows, Rows]:
    """Rows sorted so that equal ones follow each other, lower numbers first.

    Also where in that order the first of equal ones stands, and how many they are.
    """
    order = np.lexsort(points.T)
    begins = np.zeros(len(points), dtype=bool)
    begins[0] = True
    for column in points.T:
        values = column[order]
        begins[1:] |= values[1:] != values[:-1]
    starts = np.flatnonzero(begins)
    return order, starts, np.diff(starts, append=len(points))


def _without_itself(found: Tensor) -> Tensor:
    """All but the row itself or, where it is not among them, all but the last: [n, k]."""
    itself = found == torch.arange(len(found)).unsqueeze(1)
    others = itself.to(torch.uint8).argsort(dim=1, stable=True)[:, :-1]
    return found.gather(1, others)


class _Search:
    """A tree of rows, and the nearest ones [n, wanted] that are found in it."""

    def __init__(self, points: Rows, rows: Rows, source: MeasuredRows, near: Tensor) -> None:
        # rows that are near each other are asked for after each other, and lie side by side
        self.numbers = rows[cKDTree(points[rows], leafsize=_LEAF).indices]
        self.tree = cKDTree(points[self.numbers], leafsize=_LEAF)
        self.points, self.source, self.near = points, source, near

    def run(self, rows: Rows, progress: Progress) -> None:
        """Find those of ``rows``."""
        wanted = self.near.shape[1]
        chosen = np.zeros(len(self.points), dtype=bool)
        chosen[rows] = True
        left, width = self.numbers[chosen[self.numbers]], wanted + _SPARE
        while len(left) and width <= max(_WIDEST, wanted + _SPARE):
            tied, step = [], max(1, _BLOCK // width)
            for start in range(0, len(left), step):
                tied.append(self._ask(left[start : start + step], min(width, len(self.numbers))))
                if len(left) == len(rows):
                    progress(min(start + step, len(rows)), len(self.points))
            left, width = np.concatenate(tied), _WIDER * width
        for part in torch.from_numpy(left).split(max(1, (1 << 24) // len(self.points))):
            self.near[part] = nearest_rows(self.source, part, wanted, include_self=True)

    def _ask(self, rows: Rows, width: int) -> Rows:
        """Look at the ``width`` nearest; the rows of which that may not have been enough."""
        shape = (len(rows), width)
        far, columns = self.tree.query(self.points[rows], k=width, workers=torch.get_num_threads())
        columns = torch.from_numpy(self.numbers[columns].reshape(shape))
        asked, wanted = torch.from_numpy(rows), self.near.shape[1]
        self.near[asked], reach = measured(self.source, asked, columns, wanted, include_self=True)
        if width == len(self.numbers):
            return rows[:0]
        # rows as near as the last one wanted may not have been among those looked at
        last = torch.from_numpy(far).reshape(shape)[:, -1].square()
        tied: Rows = rows[(last <= reach * (1.0 + _SLACK)).numpy()]
        return tied
