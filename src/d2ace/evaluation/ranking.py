"""Where the relevant items of a list stand when the list is ordered by score, highest first.

A list is an instance's labels (a row) or a label's instances (a column). Five metrics are read off
the same few counts, so that one sort serves them all. Only relevant items are looked at after
the sort, ties are exact, and blocks of lists bound the memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .inputs import Array, Pairs

BLOCK = 1 << 20  # pairs sorted at once: some 40 to 60 MiB beside what the caller holds


class Ranking(NamedTuple):
    """Counts of every list, each [lists] in float64."""

    relevant: Array
    irrelevant: Array
    reversed: Array  # (relevant, irrelevant) pairs in which the irrelevant item scores higher
    tied: Array  # such pairs with equal scores
    precision: Array  # sum over relevant items of the precision down to the item and its ties
    depth: Array  # items down to the last relevant one and its ties; 0 without a relevant item
    top: Array  # relevant share of the items that share the highest score

    @property
    def pairs(self) -> Array:
        """Number of (relevant, irrelevant) pairs."""
        return self.relevant * self.irrelevant


def rank_rows(pairs: Pairs) -> Ranking:
    """Order every instance's labels."""
    truth, scores = pairs
    step = max(1, BLOCK // truth.shape[1])
    return _joined(
        [
            _rank(truth[begin : begin + step], scores[begin : begin + step])
            for begin in range(0, len(truth), step)
        ]
    )


def rank_columns(pairs: Pairs) -> Ranking:
    """Order every label's instances."""
    truth, scores = pairs
    step = max(1, BLOCK // len(truth))
    return _joined(
        [
            _rank(truth[:, begin : begin + step].T, scores[:, begin : begin + step].T)
            for begin in range(0, truth.shape[1], step)
        ]
    )


def _joined(blocks: list[Ranking]) -> Ranking:
    if len(blocks) == 1:
        return blocks[0]
    return Ranking(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def _rank(truth: Array, scores: Array) -> Ranking:
    """One block of lists, a list per row."""
    lists, length = truth.shape
    key = np.negative(scores, order="C")  # highest first
    order = np.argsort(key, axis=1)
    order += np.arange(0, lists * length, length)[:, None]  # positions in the flat block
    hit = np.flatnonzero(truth.reshape(-1)[order])  # flat positions of relevant items, list by list
    owner = hit // length
    relevant = np.bincount(owner, minlength=lists)
    before = (np.cumsum(relevant) - relevant)[owner]  # relevant items of earlier lists
    first, last = _tie_groups(key.reshape(-1)[order], hit)
    if first is hit:
        higher_hits = np.arange(hit.size)
        level_hits = higher_hits + 1
    else:
        higher_hits = np.searchsorted(hit, first)
        level_hits = np.searchsorted(hit, last, side="right")
    # Of every relevant item: items that score higher, and at least as high (itself included);
    # and how many of these are relevant.
    start = owner * length
    higher, level = first - start, last + 1 - start
    higher_hits, level_hits = higher_hits - before, level_hits - before
    higher_misses = higher - higher_hits

    def total(values: Array) -> Array:
        return np.bincount(owner, weights=values, minlength=lists)

    depth = np.zeros(lists)
    depth[owner] = level  # the last relevant item of a list is written last
    return Ranking(
        relevant=relevant.astype(np.float64),
        irrelevant=(length - relevant).astype(np.float64),
        reversed=total(higher_misses),
        tied=total(level - level_hits - higher_misses),
        precision=total(level_hits / level),
        depth=depth,
        top=total((higher == 0) / level),
    )


def _tie_groups(ordered: Array, hit: Array) -> tuple[Array, Array]:
    """First and last flat position of the items that share each hit's score.

    Without ties both are ``hit`` itself.
    """
    same = ordered[:, 1:] == ordered[:, :-1]
    if not same.any():
        return hit, hit
    opens = np.ones(ordered.shape, dtype=bool)
    np.logical_not(same, out=opens[:, 1:])
    starts = np.flatnonzero(opens)
    group = np.cumsum(opens)[hit]  # counted from 1
    return starts[group - 1], np.append(starts, opens.size)[group] - 1
