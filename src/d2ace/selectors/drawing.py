"""Batches of row indices for one epoch, as a pure function of (seed, epoch, probabilities).

Blocks of batches are drawn together, each block from its own generator, so that an epoch can
resume at any batch without drawing the batches before it. Everything runs on the host in float64:
the number of rows has no limit, and nothing depends on the device or the number of loader workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

_BLOCK = 1 << 16  # draws per block
_ROUNDS = 20  # failed rounds of redrawing before the rest is drawn in another way
_LEAST = 1e-290  # smaller probabilities are raised to it, as 1/P would overflow
MANY = 1 << 15  # with more rows, one key per row and batch would be slow

Array = np.ndarray[Any, Any]


def generator(*key: int) -> np.random.Generator:
    """An independent stream for every key: seed, epoch, block."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))


def batch_sizes(rows: int, batch_size: int, *, full: bool = False) -> list[int]:
    """ceil(m/b) batch sizes that sum to m, the last one short; all min(b, m) with ``full``."""
    count = -(-rows // batch_size)
    last = rows - (count - 1) * batch_size
    return [min(batch_size, rows)] * (count - 1) + [min(batch_size, rows) if full else last]


def shuffled(n: int, sizes: list[int], key: tuple[int, ...], start: int) -> Iterator[list[int]]:
    """A fresh permutation, or its first rows, cut into batches, from batch ``start``."""
    order = generator(*key).permutation(n)
    return cut(order, sizes, start)


def in_order(n: int, sizes: list[int], key: tuple[int, ...], start: int) -> Iterator[list[int]]:
    """Rows 0..n-1 in stored order (the authors' code does not shuffle), or a sample of them."""
    m = sum(sizes)
    rows = np.arange(n) if m == n else np.sort(generator(*key).permutation(n)[:m])
    return cut(rows, sizes, start)


def cut(order: Array, sizes: list[int], start: int) -> Iterator[list[int]]:
    """Rows in stored order as batches, from batch ``start``."""
    position = sum(sizes[:start])
    for size in sizes[start:]:
        yield order[position : position + size].tolist()
        position += size


def weighted(
    probabilities: Tensor,
    sizes: list[int],
    key: tuple[int, ...],
    start: int = 0,
    *,
    replacement: bool = False,
) -> Iterator[list[int]]:
    """Batches drawn from P, from batch ``start``; rows repeat in one only with ``replacement``."""
    p = probabilities.cpu().numpy()
    batch_size = sizes[0]
    by_keys = not replacement and 2 * batch_size > p.size
    cumulative = _cumulative(p)
    rest = _Keys(p) if p.size < MANY else _Arrivals(p, batch_size)
    per_block = max(1, _BLOCK // batch_size)
    for block in range(start // per_block, -(-len(sizes) // per_block)):
        first = block * per_block
        chosen = sizes[first : first + per_block]
        source = generator(*key, block)
        if by_keys:
            batches: Any = (_smallest_keys(p, size, source) for size in chosen)
        elif replacement:
            batches = _independent(cumulative, (len(chosen), batch_size), source)
        else:
            batches = _distinct(cumulative, (len(chosen), batch_size), source, rest)
        for number, (size, batch) in enumerate(zip(chosen, batches, strict=True), start=first):
            if number >= start:
                yield batch[:size].tolist()


def _cumulative(p: Array) -> Array:
    total = np.cumsum(p)
    total /= total[-1]
    return total


def _independent(cumulative: Array, shape: tuple[int, int], source: np.random.Generator) -> Array:
    """I.i.d. draws: sorted uniforms search the cumulative sum in cache order, then a shuffle."""
    uniforms = np.sort(source.random(shape[0] * shape[1]))
    rows = np.searchsorted(cumulative, uniforms, side="right")
    np.minimum(rows, cumulative.size - 1, out=rows)
    source.shuffle(rows)
    return rows.reshape(shape)


def _distinct(
    cumulative: Array, shape: tuple[int, int], source: np.random.Generator, rest: _Keys | _Arrivals
) -> Array:
    """Successive sampling without replacement: draw, keep first occurrences, until full."""
    batches = _independent(cumulative, shape, source)
    ordered = np.sort(batches, axis=1)
    repeated = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    for number in np.flatnonzero(repeated):
        batches[number] = _complete(batches[number], cumulative, source, rest)
    return batches


def _complete(
    batch: Array, cumulative: Array, source: np.random.Generator, rest: _Keys | _Arrivals
) -> Array:
    size = batch.size
    kept = rest.first_occurrences(batch)
    for _ in range(rest.rounds):
        if kept.size == size:
            return kept
        more = _independent(cumulative, (1, 2 * (size - kept.size) + 8), source)[0]
        kept = rest.first_occurrences(np.concatenate([kept, more]))[:size]
    if kept.size < size:  # few rows hold most of the probability
        kept = np.concatenate([kept, rest.draw(kept, size - kept.size, source)])
    return kept


class _Keys:
    """More rows for a batch, each in proportion to P among the rows that are left."""

    rounds = _ROUNDS

    def __init__(self, p: Array) -> None:
        self.p = p
        self._place = np.empty(p.size, dtype=np.int32)  # of a row among those drawn

    def first_occurrences(self, rows: Array) -> Array:
        """Each row once, in the order drawn; several times quicker than by sorting."""
        order = np.arange(rows.size, dtype=np.int32)
        self._place[rows[::-1]] = order[::-1]  # what is written last stays
        return rows[self._place[rows] == order]

    def draw(self, kept: Array, count: int, source: np.random.Generator) -> Array:
        left = np.ones(self.p.size, dtype=bool)
        left[kept] = False
        rows = np.flatnonzero(left)
        return rows[_smallest_keys(self.p[rows], count, source)]


class _Arrivals(_Keys):
    """The same for many rows, in time that does not grow with their number.

    If row i arrives at rate P_i, its first arrival is an exponential key e_i / P_i. The heaviest
    rows, fewer than b, get a key each. All other rows share a stream of arrivals, where the
    heaviest rows, drawn again and again, no longer crowd them out.
    """

    rounds = 2

    def __init__(self, p: Array, batch_size: int) -> None:
        super().__init__(p)
        self._batch_size = batch_size
        self._light: Array | None = None

    def draw(self, kept: Array, count: int, source: np.random.Generator) -> Array:
        if self._light is None:  # only very uneven distributions need it
            place = self.p.size - self._batch_size
            self._heavy = np.flatnonzero(self.p > np.partition(self.p, place)[place])
            light = self.p.copy()
            light[self._heavy] = 0.0
            self._light, self._mass = _cumulative(light), light.sum()
        heavy = np.setdiff1d(self._heavy, kept, assume_unique=True)
        keys = exponential_keys(self.p[heavy], source)
        rows, times, now = np.empty(0, np.int64), np.empty(0), 0.0
        for _ in range(_ROUNDS):
            drawn = _independent(self._light, (1, 2 * count + 8), source)[0]
            came = now + np.cumsum(source.standard_exponential(drawn.size)) / self._mass
            now = came[-1]
            rows, times = np.concatenate([rows, drawn]), np.concatenate([times, came])
            first = np.sort(np.unique(rows, return_index=True)[1])
            first = first[~np.isin(rows[first], kept)]
            rows, times = rows[first], times[first]
            if rows.size >= count:
                order = np.argsort(np.concatenate([keys, times]), kind="stable")[:count]
                return np.concatenate([heavy, rows])[order]
        return super().draw(kept, count, source)  # the other rows are as uneven


def exponential_keys(p: Array, source: np.random.Generator) -> Array:
    """e_i / P_i, which sort rows as successive sampling does; finite, however small P_i."""
    keys: Array = source.standard_exponential(p.size) / np.maximum(p, _LEAST)
    return keys


def _smallest_keys(p: Array, size: int, source: np.random.Generator) -> Array:
    """Successive sampling in one pass: the smallest exponential keys e_i / P_i, in their order."""
    keys = exponential_keys(p, source)
    if size >= p.size:
        return np.argsort(keys, kind="stable")
    near = np.argpartition(keys, size)[:size]
    return near[np.argsort(keys[near], kind="stable")]
