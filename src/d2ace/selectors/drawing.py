"""Batches of row numbers for one epoch, as a pure function of (seed, epoch, probabilities).

Blocks of batches are drawn together from generators of their own, so that an epoch can be
continued at any batch without drawing what came before. Everything runs on the host in float64:
the row axis has no limit, and nothing depends on the device or the number of loader workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

_BLOCK = 1 << 16  # draws a block
_ROUNDS = 20  # fruitless rounds of redrawing before the rest is drawn by keys

Array = np.ndarray[Any, Any]


def generator(*key: int) -> np.random.Generator:
    """An independent stream for every key: seed, epoch, block."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))


def batch_sizes(n: int, batch_size: int, *, full: bool = False) -> list[int]:
    """ceil(n/b) sizes that sum to n (the last one short), or all min(b, n) with ``full``."""
    count = -(-n // batch_size)
    last = n - (count - 1) * batch_size
    return [min(batch_size, n)] * (count - 1) + [min(batch_size, n) if full else last]


def shuffled(n: int, sizes: list[int], key: tuple[int, ...], start: int) -> Iterator[list[int]]:
    """Every row once: a fresh permutation cut into batches, from batch ``start`` on."""
    order = generator(*key).permutation(n)
    return _cut(order, sizes, start)


def in_order(n: int, sizes: list[int], start: int) -> Iterator[list[int]]:
    """Rows 0..n-1 as they stand (the authors' code does not shuffle)."""
    return _cut(np.arange(n), sizes, start)


def _cut(order: Array, sizes: list[int], start: int) -> Iterator[list[int]]:
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
    """Batches drawn from P, from batch ``start`` on; no row twice in one unless ``replacement``."""
    p = probabilities.cpu().numpy()
    batch_size = sizes[0]
    by_keys = not replacement and 2 * batch_size > p.size
    cumulative = np.cumsum(p)
    cumulative /= cumulative[-1]
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
            batches = _distinct(p, cumulative, (len(chosen), batch_size), source)
        for number, (size, batch) in enumerate(zip(chosen, batches, strict=True), start=first):
            if number >= start:
                yield batch[:size].tolist()


def _independent(cumulative: Array, shape: tuple[int, int], source: np.random.Generator) -> Array:
    """I.i.d. draws: sorted uniforms search the cumulative sum in cache order, then a shuffle."""
    uniforms = np.sort(source.random(shape[0] * shape[1]))
    rows = np.searchsorted(cumulative, uniforms, side="right")
    np.minimum(rows, cumulative.size - 1, out=rows)
    source.shuffle(rows)
    return rows.reshape(shape)


def _distinct(
    p: Array, cumulative: Array, shape: tuple[int, int], source: np.random.Generator
) -> Array:
    """Successive sampling without replacement: draw, keep first occurrences, until full."""
    batches = _independent(cumulative, shape, source)
    ordered = np.sort(batches, axis=1)
    repeated = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    for number in np.flatnonzero(repeated):
        batches[number] = _complete(batches[number], p, cumulative, source)
    return batches


def _complete(batch: Array, p: Array, cumulative: Array, source: np.random.Generator) -> Array:
    size = batch.size
    kept = _first_occurrences(batch)
    for _ in range(_ROUNDS):
        if kept.size == size:
            return kept
        more = _independent(cumulative, (1, 2 * (size - kept.size) + 8), source)[0]
        kept = _first_occurrences(np.concatenate([kept, more]))[:size]
    if kept.size < size:  # the mass sits on a few rows: draw the missing ones by keys
        rest = np.ones(p.size, dtype=bool)
        rest[kept] = False
        rows = np.flatnonzero(rest)
        kept = np.concatenate([kept, rows[_smallest_keys(p[rows], size - kept.size, source)]])
    return kept


def _first_occurrences(rows: Array) -> Array:
    _, first = np.unique(rows, return_index=True)
    return rows[np.sort(first)]


def _smallest_keys(p: Array, size: int, source: np.random.Generator) -> Array:
    """Successive sampling in one pass: the smallest exponential keys e_i / P_i, in their order."""
    keys = source.standard_exponential(p.size) / p
    return np.argsort(keys, kind="stable")[:size]
