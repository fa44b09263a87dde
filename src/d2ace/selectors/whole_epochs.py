"""All rows of an epoch drawn together, as a pure function of (seed, epoch, probabilities).

``draw="epoch"`` is systematic sampling: each row as often as P says, to the nearest whole number.
``draw="once"`` is successive sampling: each row at most once. Independent batches are in
``drawing.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from .drawing import Array, cut, exponential_keys, generator
from .probability import GUARD

_DEALS = 64  # random orders of the batches; more would only take longer


def systematic(
    probabilities: Tensor, sizes: list[int], key: tuple[int, ...], start: int = 0
) -> Iterator[list[int]]:
    """Row i floor(m P_i) or ceil(m P_i) times among m draws, m P_i times on average.

    No row comes twice in a batch, so no row has more copies than there are batches; the excess goes
    to the other rows in proportion to P.
    """
    source = generator(*key)
    expected = expected_copies(probabilities.cpu().numpy(), sizes)
    order = source.permutation(expected.size)
    # Rows that may be in every batch come first, so that no more of their last copies than expected
    # are drawn: the last batch, which may be short, holds that many.
    order = _first(order, expected[order] > len(sizes) - 1)
    copies = _copies(expected[order], sum(sizes), source)
    everywhere = copies == len(sizes)
    rows = np.repeat(_first(order, everywhere), _first(copies, everywhere))
    table = _dealt(rows, sizes, source)
    for number in range(start, len(sizes)):
        yield table[number, : sizes[number]].tolist()


def once(
    probabilities: Tensor, sizes: list[int], key: tuple[int, ...], start: int = 0
) -> Iterator[list[int]]:
    """The rows with the m smallest exponential keys e_i / P_i, in random order."""
    source, m = generator(*key), sum(sizes)
    keys = exponential_keys(probabilities.cpu().numpy(), source)
    rows = np.flatnonzero(keys <= np.partition(keys, m - 1)[m - 1])[:m]
    source.shuffle(rows)
    return cut(rows, sizes, start)


def expected_copies(p: Array, sizes: list[int]) -> Array:
    """How often each row comes on average: m P_i, if no batch would hold a row twice.

    Otherwise, the sum of what the full batches and the short last one hold.
    """
    full, last = len(sizes) - 1, sizes[-1]
    if p.max() * sizes[0] <= p.sum():
        return p * (sum(sizes) / p.sum())
    if last == sizes[0]:
        return _capped(p, sum(sizes), full + 1)
    return _capped(p, full * sizes[0], full) + _capped(p, last, 1)


def _capped(p: Array, m: int, cap: int) -> Array:
    """min(cap, c P_i), with the c for which these sum to m."""
    most = m // cap  # there cannot be more rows at the cap
    ordered = np.partition(p, p.size - most)
    heaviest = np.sort(ordered[p.size - most :])[::-1]
    lighter = ordered[: p.size - most].sum()
    left = lighter + np.cumsum(heaviest[::-1])[::-1]  # the mass of all rows but the k heaviest
    fits = (m - cap * np.arange(most)) * (heaviest / left) <= cap
    at_cap, mass = (int(fits.argmax()), left[fits.argmax()]) if fits.any() else (most, lighter)
    shared = (m - cap * at_cap) * (np.minimum(p, mass) / mass)
    return np.where(p >= heaviest[at_cap - 1], cap, shared) if at_cap else shared


def _first(values: Array, chosen: Array) -> Array:
    """``values`` with the chosen ones first, otherwise in order."""
    return np.concatenate([values[chosen], values[~chosen]])


def _copies(expected: Array, m: int, source: np.random.Generator) -> Array:
    """Whole copies, and one more for each row whose fractional part contains a point u + k."""
    whole = np.floor(expected + GUARD)
    points = m - whole.sum()
    if points:
        edges = np.cumsum(np.maximum(expected - whole, 0.0))
        edges *= points / edges[-1]
        whole += np.diff(np.floor(edges + source.random()), prepend=0.0)
    return whole.astype(np.int64)


def _dealt(rows: Array, sizes: list[int], source: np.random.Generator) -> Array:
    """Batches [k, b] of ``rows``, where copies of a row are adjacent; no batch holds a row twice.

    Rows are dealt in rounds, one to each batch, until the last batch is full, then one to each of
    the others. So adjacent copies reach different batches. Rows for every batch come first, with a
    round each. The order of the batches changes every few rounds, so that batches do not share the
    same rows. At such a change, a row with copies on both sides skips the batches that hold it.
    """
    count, size, last = len(sizes), sizes[0], sizes[-1]
    table = np.empty((count, size), rows.dtype)
    step = -(-size // _DEALS)
    stops = sorted({*range(step, size, step), last, size})
    place, dealt, order = 0, 0, np.empty(0, np.int64)
    for stop in stops:
        width = count if place < last else count - 1
        rounds = rows[dealt : dealt + (stop - place) * width].reshape(-1, width)
        order = _avoiding(source.permutation(width), order, rows, dealt)
        table[order, place:stop] = rounds.T
        place, dealt = stop, dealt + rounds.size
    return table


def _avoiding(order: Array, before: Array, rows: Array, dealt: int) -> Array:
    """``order``, changed so that the last dealt row skips batches that hold it in ``before``."""
    if not dealt or rows[dealt] != rows[dealt - 1]:
        return order
    behind = np.count_nonzero(rows[dealt - len(before) : dealt] == rows[dealt])
    ahead = np.count_nonzero(rows[dealt : dealt + len(order)] == rows[dealt])
    free = np.ones(len(before), dtype=bool)  # at least as many batches as in the new order
    free[before[len(before) - behind :]] = False
    first = order[free[order]][:ahead]
    free[:] = True
    free[first] = False
    return np.concatenate([first, order[free[order]]])
