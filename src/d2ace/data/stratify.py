"""Folds in which every label is spread as evenly as whole rows allow.

Iterative stratification (Sechidis, Tsoumakas and Vlahavas, "On the stratification of multi-label
data", ECML PKDD 2011): rows of the rarest label are dealt first, each to the fold that still needs
that label most; then those of the next label. Three things differ from the paper's pseudo-code.

- A label's rows are dealt as one block of array operations instead of one row at a time: they go
  out in *rounds* of one row for each fold.
- Where folds need the label equally, the paper looks at fold sizes and then at a coin. Here the
  row's *other* labels decide first, so that labels which only occur beside rarer ones, and would
  never be dealt in their own right, are balanced too.
- Fold sizes are exact: they differ by one row at most.

Scores are integers and the shuffle uses the raw words of PCG64, a stream NumPy promises not to
change, so a seed gives the same folds on every machine and with every version.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from d2ace._util.validation import label_matrix

from .container import DataError

__all__ = ["balance_error", "fold_numbers", "folds", "validation_split"]

Ints = npt.NDArray[np.int64]

_UNIT = 2**32  # a fold that lacks all of its share of a label scores this much
_CLOSED = -(2**62)
_BLOCK = 512  # rows dealt with one look at the needs; smaller is slower, larger is less even
_SORT_BY = 4  # a block's rows are sorted by this many of their rarest labels
_LARGEST_DENOMINATOR = 50


def folds(Y: Any, n_splits: int = 5, seed: int = 0) -> list[tuple[Ints, Ints]]:
    """Stratified cross-validation: a list of ``(train, test)`` row numbers, one pair per fold.

    Every row is in exactly one test fold; all arrays are sorted. ``Y`` is [n, q] with values 0 and
    1, dense or sparse. The order of the label columns does not matter; the order of the rows does.

    Examples
    --------
    >>> import numpy as np
    >>> Y = np.eye(3, dtype=np.uint8).repeat(4, axis=0)
    >>> [Y[test].sum(axis=0).tolist() for _, test in folds(Y, n_splits=4)]
    [[1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1]]
    """
    numbers = fold_numbers(Y, n_splits, seed)
    return [
        (np.flatnonzero(numbers != fold), np.flatnonzero(numbers == fold))
        for fold in range(n_splits)
    ]


def validation_split(
    Y: Any, rows: npt.ArrayLike | None = None, share: float = 0.1, seed: int = 0
) -> tuple[Ints, Ints]:
    """Split ``rows`` (default: all) of ``Y`` into ``(train, validation)``, stratified.

    The validation rows are a whole number of equal folds: one of ten for a share of 0.1, three of
    twenty for 0.15. A share that is no fraction with a denominator up to 50 becomes the nearest.
    """
    share = float(share)
    part = Fraction(share).limit_denominator(_LARGEST_DENOMINATOR) if 0 < share < 1 else Fraction()
    if not 0 < part < 1:
        raise DataError(f"share is {share}; it must lie between 0.02 and 0.98")
    labels = checked_labels(Y)
    n = labels.shape[0]
    chosen = np.arange(n, dtype=np.int64) if rows is None else row_numbers(rows, n)
    if np.unique(chosen).size != chosen.size:
        raise DataError("rows must be row numbers without repetition")
    if chosen.size < part.denominator:
        remedy = "give more rows"
        if chosen.size > 1:
            nearest = Fraction(share).limit_denominator(chosen.size)
            possible = min(max(nearest, Fraction(1, chosen.size)), Fraction(1, 2))
            remedy += f" or a share of {float(possible):.3g}"
        raise DataError(
            f"a validation share of {share} needs at least {part.denominator} rows, "
            f"but there are {chosen.size}; {remedy}"
        )
    held_out = fold_numbers(labels[chosen], part.denominator, seed) < part.numerator
    return np.sort(chosen[~held_out]), np.sort(chosen[held_out])


def balance_error(Y: Any, numbers: npt.ArrayLike) -> float:
    """Mean relative error of label rates: 0 if every fold has every label as often as the whole.

    The mean over folds and over labels with positives of |rate in the fold - rate| / rate.
    ``numbers`` holds the fold number of each row.
    """
    labels = checked_labels(Y)
    fold = np.asarray(numbers, dtype=np.int64)
    if fold.shape != labels.shape[:1]:
        raise DataError(f"{fold.size} fold numbers were given for {labels.shape[0]} rows")
    n, n_splits = fold.size, int(fold.max()) + 1
    member = sp.csr_matrix((np.ones(n), (fold, np.arange(n))), shape=(n_splits, n))
    count = (member @ labels.astype(np.float64)).toarray()
    rate = count.sum(axis=0) / n
    seen = rate > 0
    in_fold = count[:, seen] / np.bincount(fold, minlength=n_splits)[:, None]
    return float(np.mean(np.abs(in_fold - rate[seen]) / rate[seen])) if seen.any() else 0.0


def fold_numbers(Y: Any, n_splits: int = 5, seed: int = 0) -> Ints:
    """The number of each row's test fold, 0 to ``n_splits - 1``: `folds` in one array."""
    labels = checked_labels(Y)
    n = labels.shape[0]
    if not isinstance(n_splits, (int, np.integer)) or n_splits < 2:
        raise DataError(f"n_splits is {n_splits!r}; it must be a whole number of at least 2")
    if n < n_splits:
        raise DataError(f"{n} rows cannot fill {n_splits} folds; lower n_splits")
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise DataError(f"seed is {seed!r}; it must be a whole number of at least 0")
    words = np.random.PCG64(int(seed)).random_raw(n + int(n_splits))
    shuffle = np.argsort(words[:n], kind="stable")
    # Folds differ in nothing but their number, so the names are dealt out at the end;
    # else fold 0 would always be the first choice among equals.
    name = np.argsort(words[n:], kind="stable")
    numbers = np.empty(n, dtype=np.int64)
    numbers[shuffle] = name[_deal(labels[shuffle], int(n_splits))]
    return numbers


def row_numbers(rows: npt.ArrayLike, n: int) -> Ints:
    """``rows`` of ``n`` as numbers; a mask says the same."""
    given = np.asarray(rows)
    if given.dtype == np.bool_ and given.shape == (n,):
        return np.flatnonzero(given)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise DataError(
            f"rows must be a flat list of row numbers or a mask of {n} rows, got {given.dtype} of "
            f"shape {given.shape}"
        )
    if given.size and not (given.min() >= 0 and given.max() < n):
        raise DataError(f"rows go from {given.min()} to {given.max()}, but there are {n} rows")
    return given.astype(np.int64)


def checked_labels(Y: Any) -> sp.csr_matrix:
    """``Y`` as CSR of ones without explicit zeros, after checking that it holds only 0 and 1."""
    try:
        return sp.csr_matrix(label_matrix(Y, "Y", empty=True))
    except (TypeError, ValueError) as problem:
        raise DataError(problem) from None


def _deal(labels: sp.csr_matrix, k: int) -> Ints:
    """A fold for each row; rows are taken to be in random order."""
    n, q = labels.shape
    rows, start, label, count = _by_rarity(labels)
    first = label[start[:-1]]
    need = np.repeat(count[:, None], k, axis=1)  # k times what each fold lacks of each label
    placed = np.zeros((q, k), dtype=np.int64)
    weight = _UNIT // np.maximum(count, 1)
    # Rows without labels fill the folds at the end; each fold keeps most of its share of them free.
    # Not all of it, because a few seats to spare let the labels come out even.
    size = np.full(k, n // k, dtype=np.int64)
    size[: n % k] += 1
    share = (n - rows.size) // k
    room = size - (share - share // 8)
    dealt = np.empty(rows.size, dtype=np.int64)
    for begin, end in _blocks(first):
        cells = label[start[begin] : start[end]]
        offsets = start[begin:end] - start[begin]
        claim = np.add.reduceat(need[cells] * weight[cells, None], offsets, axis=0)
        claim += room * (k * _UNIT // n)  # a fold's size counts like a label that all rows have
        fold = _deal_block(claim, placed[first[begin]], room)
        where = cells * k + np.repeat(fold, np.diff(start[begin : end + 1]))
        np.add.at(placed.reshape(-1), where, 1)
        np.subtract.at(need.reshape(-1), where, k)
        room -= np.bincount(fold, minlength=k)
        dealt[begin:end] = fold
    left = size - np.bincount(dealt, minlength=k)
    numbers = np.empty(n, dtype=np.int64)
    numbers[rows] = dealt
    numbers[np.diff(labels.indptr) == 0] = np.repeat(np.arange(k), left)
    return numbers


def _by_rarity(labels: sp.csr_matrix) -> tuple[Ints, Ints, Ints, Ints]:
    """Labelled rows in dealing order, and their labels renumbered from the rarest up.

    Returns ``rows``, ``start`` and ``label`` (the labels of ``rows[i]``, rarest first, are
    ``label[start[i]:start[i + 1]]``) and the positives of each renumbered label. Rows are sorted by
    their rarest label, then by the next ones, so that neighbours are alike: dealt in rounds, they
    go to different folds.
    """
    n, q = labels.shape
    columns = labels.tocsc()
    count = np.diff(columns.indptr).astype(np.int64)
    content = [
        part.tobytes() for part in np.split(columns.indices.astype(">i8"), columns.indptr[1:-1])
    ]
    # Ties between equally frequent labels are broken by content, not by column number.
    order = np.array(sorted(range(q), key=lambda j: (count[j], content[j])), dtype=np.int64)
    rank = np.empty(q, dtype=np.int64)
    rank[order] = np.arange(q)
    degree = np.diff(labels.indptr).astype(np.int64)
    cells = np.repeat(np.arange(n, dtype=np.int64) * (q + 1), degree) + rank[labels.indices]
    cells.sort()
    label = cells % (q + 1)

    begin = labels.indptr[:-1].astype(np.int64)
    bits = (q + 1).bit_length()
    key = np.zeros(n, dtype=np.int64)
    for position in range(min(_SORT_BY, 62 // bits)):
        has = degree > position
        key <<= bits
        key[has] += label[begin[has] + position]
        key[~has] += q
    rows = np.argsort(key, kind="stable")[: np.count_nonzero(degree)]
    start = np.concatenate([[0], np.cumsum(degree[rows])])
    moved = np.repeat(begin[rows] - start[:-1], degree[rows]) + np.arange(start[-1])
    return rows, start, label[moved], count[order]


def _blocks(first: Ints) -> list[tuple[int, int]]:
    """Runs of equal values, cut into pieces of at most `_BLOCK` rows."""
    bounds = [*np.flatnonzero(np.diff(first, prepend=-1)).tolist(), first.size]
    return [
        (begin, min(begin + _BLOCK, end))
        for run, end in pairwise(bounds)
        for begin in range(run, end, _BLOCK)
    ]


def _deal_block(claim: Ints, placed: Ints, room: Ints) -> Ints:
    """Folds for the rows of one label.

    ``claim`` [m, k] says how much each fold wants each row, ``placed`` [k] how many rows of this
    label each fold already has, ``room`` [k] how many rows it can still take.
    """
    m, k = claim.shape
    # Level by level: at level c, every fold that would get its c-th row of this label takes one.
    level = np.arange(placed.min(), placed.max() + m)[:, None]
    takes = (placed <= level) & (level < placed + room)
    seats = takes.sum(axis=1)
    filled = np.cumsum(seats)
    rounds = int(np.searchsorted(filled, m)) + 1
    takes, seats, filled = takes[:rounds], seats[:rounds], filled[:rounds]
    row = (filled - seats)[:, None] + np.arange(k)
    row = np.where((np.arange(k) < seats[:, None]) & (row < m), row, m)  # m: an empty chair

    # Inside a round, the row to which the choice matters most chooses first.
    claim = np.append(claim, np.zeros((1, k), dtype=np.int64), axis=0)
    stake = k * claim.max(axis=1) - claim.sum(axis=1)
    stake[m] = -1
    row = np.take_along_axis(row, np.argsort(-stake[row], axis=1, kind="stable"), axis=1)

    fold = np.empty(m + 1, dtype=np.int64)
    barred = np.where(takes, 0, _CLOSED)
    each = np.arange(rounds)
    for chooser in row.T:
        choice = (claim[chooser] + barred).argmax(axis=1)
        fold[chooser] = choice
        barred[each, choice] = _CLOSED
    return fold[:m]
