"""Nearest rows by a k-d tree: the same rows as exact search, sooner in few dimensions."""

from __future__ import annotations

import math
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from .exact_search import MeasuredRows, measured, nearest_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from d2ace._util.callbacks import Progress


__all__ = ["tree_search"]

Rows = np.ndarray[Any, Any]

_LEAF = 64  # rows compared one by one at the end of a search; twice as many in a product
FEW = 4  # columns up to which looking at many rows at once is not worth it
_ROUGH = 2.0  # a rough search finds rows at most so much farther than the nearest, plus one
_ROWS = 1 << 16  # rows that go down the tree at once
CROWD = 1 << 10  # candidates from which a row is asked for alone
_PAIRS = 1 << 22  # candidates kept at once
_BLOCK = 1 << 13  # pairs measured at once
_SLACK = 1e-12  # by which two ways of adding up squares may differ
_TINY = 1e-300  # squares that float64 holds with fewer digits
_FAINT = 1e-30  # what float32 may lose of squares of about 1


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


class _Leaf:
    """Rows that are compared one by one, as they lie around their centre."""

    def __init__(self, start: int, rows: Rows) -> None:
        self.start, self.centre = start, rows.mean(axis=0)[:, None]
        around = rows - self.centre.T
        self.size = max(math.sqrt(np.square(around).sum(axis=1).max()), _TINY)
        # of sums of products, as of all norms in the first look of exact search
        self.rounding = 4.0 * (rows.shape[1] + 8) * float(np.finfo(np.float32).eps)
        around /= self.size
        squares = np.square(around).sum(axis=1) * (1.0 - self.rounding)
        sides = np.column_stack([-2.0 * around, np.ones(len(rows)), squares])
        self.sides = torch.from_numpy(sides.astype(np.float32))

    def excess(self, values: Rows, reach: Rows) -> Tensor:
        """[m, b]: squared distances to columns of ``values`` [d, b], less ``reach`` [b].

        One product in float32, lowered by what rounding may add. Each column is in a unit of its
        own, so that an outlier does not blur others.
        """
        unit = 1.0 / (self.size + np.sqrt(reach))
        own = np.empty((len(values) + 2, len(reach)), dtype=np.float32)
        around = np.multiply(values - self.centre, unit, out=own[:-2], casting="same_kind")
        own[-2] = np.square(around).sum(axis=0) * (1.0 - self.rounding)
        own[-2] -= reach * np.square(unit) * (1.0 + self.rounding)
        unit *= self.size
        around *= unit.astype(np.float32)
        own[-1] = np.square(unit)
        return self.sides @ torch.from_numpy(own)


class _Fork(NamedTuple):
    """Rows divided by one of their columns."""

    column: int
    last: float
    """The largest value of the lesser half."""
    first: float
    """The smallest value of the greater half."""
    lesser: _Fork | _Leaf
    greater: _Fork | _Leaf


def _divided(node: Any, points: Rows) -> _Fork | _Leaf:
    """A node of scipy's tree of ``points``, which lie in its order."""
    start, end = node.start_idx, node.end_idx
    if node.lesser is None:
        return _Leaf(start, points[start:end])
    column, values = node.split_dim, points[start:end, node.split_dim]
    last, first = values[: node.greater.start_idx - start], values[node.greater.start_idx - start :]
    halves = _divided(node.lesser, points), _divided(node.greater, points)
    return _Fork(column, last.max(), first.min(), *halves)


class _Search:
    """A tree of rows, and the nearest ones [n, wanted] that are found in it.

    A rough search says how far the nearest rows are at most. Then many rows at once go down the
    tree, into each half that reaches so near, which is about half the work of one at a time.
    """

    def __init__(self, points: Rows, rows: Rows, source: MeasuredRows, near: Tensor) -> None:
        # rows that are near each other are asked for after each other, and lie side by side
        self.few = points.shape[1] <= FEW
        leaf = _LEAF if self.few else 2 * _LEAF
        self.numbers = rows[cKDTree(points[rows], leafsize=leaf).indices]
        self.tree = cKDTree(points[self.numbers], leafsize=leaf)
        self.points, self.source, self.near = points, source, near

    @cached_property
    def root(self) -> _Fork | _Leaf:
        """The tree's nodes; not all searches need them."""
        return _divided(self.tree.tree, self.points[self.numbers])

    def run(self, rows: Rows, progress: Progress) -> None:
        """Find those of ``rows``."""
        chosen = np.zeros(len(self.points), dtype=bool)
        chosen[rows] = True
        left, done, step, crowded = self.numbers[chosen[self.numbers]], 0, _ROWS // 4, []
        while done < len(left):
            part = left[done : done + step]
            asked, reach = self._ask(part) if self.few else (part, self._reach(part))
            with _one_thread():
                kept = self._walk(asked, reach)
            crowded.append(asked[reach == 0.0])
            done += len(part)
            step = max(1, min(_ROWS, _PAIRS * len(part) // max(1, kept)))
            progress(done, len(self.points))
        last = np.concatenate(crowded) if crowded else rows[:0]
        if not self.few and len(last):
            last, _ = self._ask(last)
        for some in torch.from_numpy(last).split(max(1, (1 << 24) // len(self.points))):
            self.near[some] = nearest_rows(self.source, some, self.near.shape[1], include_self=True)

    def _reach(self, rows: Rows) -> Rows:
        """Squared distances of which none to a nearest row is larger."""
        k, threads = self.near.shape[1], torch.get_num_threads()
        far, _ = self.tree.query(self.points[rows], k=k, eps=_ROUGH, workers=threads)
        farthest: Rows = far.reshape(len(rows), k)[:, -1]
        return np.square(farthest) * (1.0 + _SLACK) + _TINY

    def _ask(self, rows: Rows) -> tuple[Rows, Rows]:
        """Find those of ``rows`` one at a time, but for ties: these rows, and their reach."""
        wanted = self.near.shape[1]
        width = min(wanted + 1, len(self.numbers))
        far, columns = self.tree.query(self.points[rows], k=width, workers=torch.get_num_threads())
        squares = np.square(far.reshape(len(rows), width))
        columns = torch.from_numpy(self.numbers[columns.reshape(len(rows), width)])
        asked = torch.from_numpy(rows)
        self.near[asked], _ = measured(self.source, asked, columns, wanted, include_self=True)
        reach = squares[:, wanted - 1] * (1.0 + _SLACK) + _TINY
        # rows as near as the last one wanted may not have been among those looked at
        tied = (squares[:, -1] <= reach) & (width < len(self.numbers))
        return rows[tied], reach[tied]

    def _walk(self, rows: Rows, reach: Rows) -> int:
        """Find those of ``rows`` together, and set the reach of those with a crowd around to 0.

        Returns how many pairs were kept meanwhile, from which one learns how many rows to take.
        """
        if not len(rows):
            return 0
        most, counts = max(CROWD, 16 * self.near.shape[1]), np.zeros(len(rows), np.int64)
        found = [np.empty(0, np.int64)]
        for places, columns in self._within(np.ascontiguousarray(self.points[rows].T), reach):
            found.append(places * len(self.points) + self.numbers[columns])
            np.add.at(counts, places, 1)
            reach[places[counts[places] > most]] = 0.0
        pairs = np.sort(np.concatenate(found))
        self._measure(rows, pairs[reach[pairs // len(self.points)] > 0.0])
        return len(pairs)

    def _within(self, values: Rows, reach: Rows) -> Iterator[tuple[Rows, Rows]]:
        """Pairs of columns of ``values`` [d, b] and places in the tree, not farther than ``reach``.

        All of them, and by rounding perhaps a few that are a little farther.
        """
        everyone, nothing = np.arange(len(reach)), np.zeros(len(reach))
        ahead = [(self.root, everyone, nothing, self.tree.mins, self.tree.maxes)]
        while ahead:
            node, who, gap, low, high = ahead.pop()
            most = reach.take(who)
            if isinstance(node, _Leaf):
                if not most.all():
                    who, most = who[most > 0.0], most[most > 0.0]
                excess = node.excess(values.take(who, axis=1), most)
                # few have any, which is soon found
                some = (excess.amin(dim=0) <= _FAINT).nonzero().flatten()
                found = (excess.index_select(1, some) <= _FAINT).nonzero()
                columns, places = found[:, 0], some[found[:, 1]]
                yield who[places.numpy()], node.start + columns.numpy()
                continue
            column, value = node.column, values[node.column].take(who)
            # of the distance to a box, squared, only this column's part differs in its halves
            beyond = gap + _square(value - node.last) - _square(value - high[column])
            before = gap + _square(node.first - value) - _square(low[column] - value)
            high_lesser, low_greater = high.copy(), low.copy()
            high_lesser[column], low_greater[column] = node.last, node.first
            for half, distance, bottom, top in (
                (node.lesser, beyond, low, high_lesser),
                (node.greater, before, low_greater, high),
            ):
                near = np.flatnonzero(distance <= most)
                if len(near):
                    ahead.append((half, who.take(near), distance.take(near), bottom, top))

    def _measure(self, rows: Rows, pairs: Rows) -> None:
        """The nearest of the candidates, of which a row has enough or none."""
        places, numbers = np.divmod(pairs, len(self.points))
        counts = np.bincount(places, minlength=len(rows))
        starts = np.cumsum(counts) - counts
        order, wanted = np.argsort(counts), self.near.shape[1]
        none, end = np.count_nonzero(counts == 0), len(order)
        while end > none:
            width = counts[order[end - 1]]
            part = order[max(none, end - max(1, _BLOCK // width)) : end]
            spare = np.arange(width) >= counts[part, None]
            where = np.where(spare, 0, starts[part, None] + np.arange(width))
            columns, asked = torch.from_numpy(numbers[where]), torch.from_numpy(rows[part])
            exact = self.source.exact_distances(asked, columns)
            exact[torch.from_numpy(spare)] = torch.inf
            # candidates ascend and the sort is stable: ties go to the lower index
            nearest = exact.sort(dim=1, stable=True).indices[:, :wanted]
            self.near[asked] = columns.gather(1, nearest)
            end -= len(part)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Many small products: threads that wait for each other at each cost ten times the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _square(excess: Rows) -> Rows:
    """The square of what is positive, else zero."""
    np.maximum(excess, 0.0, out=excess)
    return np.square(excess, out=excess)
