"""Multi-label data of any size and difficulty, for experiments and tests.

Labels: every row belongs to one of several themes and every label to one theme. A label occurs
more often in rows of its theme; ``correlation`` says how much more. Features: every label has a
signature (a direction in dense data, a vocabulary in sparse data), and a row shows the signatures
of its labels plus noise, so there is something to learn.

Nothing here costs more than the entries it makes: labels are drawn as random hits, not by walking
over all n x q cells.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .annotated import AnnotatedData, choose_flawed, flip_labels
from .container import DataError

__all__ = ["make_multilabel"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_THEME_SIZE = 5  # labels that keep company, at least
_LARGEST_RATE = 0.95  # no label is in more than this share of a theme's rows
_SPREAD = 0.5  # standard deviation of the noise in dense features; signatures have unit variance
_ON_TOPIC = 0.7  # share of a sparse row's words that come from its labels
_OUTLIER_SPREAD = 3.0


def make_multilabel(
    n: int = 1000,
    d: int = 50,
    q: int = 10,
    *,
    cardinality: float = 2.0,
    correlation: float = 0.5,
    imbalance: float = 1.0,
    noise: float = 0.0,
    outliers: float = 0.0,
    density: float | None = None,
    seed: int = 0,
) -> AnnotatedData:
    """Make a dataset of ``n`` rows, ``d`` features and ``q`` labels.

    - ``cardinality``: mean number of labels of a row. From 1 on, every row has at least one.
    - ``correlation``: 0 for independent labels, 1 for labels that only occur in their own theme.
    - ``imbalance``: frequencies fall as rank to the power of minus this; 0 makes them equal.
    - ``noise``: share of rows in which a right label is exchanged for a wrong one (``flipped``).
    - ``outliers``: share of rows whose features have nothing to do with their labels.
    - ``density``: ``None`` for dense features; a number makes them word counts in CSR with about
      that share of non-zero entries, and the labels CSR too.
    - ``seed``: same seed and arguments, same data.

    Examples
    --------
    >>> data = make_multilabel(500, 20, 8, cardinality=3.0, noise=0.1, seed=1)
    >>> data.X.shape, data.Y.shape, float(data.true_Y.sum(1).mean()), data.flipped.size
    ((500, 20), (500, 8), 3.0, 50)
    """
    _check(n, d, q, cardinality, correlation, imbalance, noise, outliers, density, seed)
    rng = np.random.default_rng(seed)
    true_Y = _labels(n, q, cardinality, correlation, imbalance, rng)
    flipped, odd = choose_flawed(n, noise, outliers, rng.random(n))
    Y = flip_labels(true_Y, flipped, rng.random((2, flipped.size)))
    X: Any
    if density is None:
        X = _dense_features(true_Y, d, odd, rng)
        Y, true_Y = Y.toarray(), true_Y.toarray()
    else:
        X = _sparse_features(true_Y, d, density, odd, rng)
    return AnnotatedData(
        name=f"synthetic-{n}x{d}x{q}",
        X=X,
        Y=Y,
        feature_names=tuple(f"x{i}" for i in range(d)),
        label_names=tuple(f"y{j}" for j in range(q)),
        flipped=flipped,
        outliers=odd,
        true_Y=true_Y,
    )


def _check(
    n: int,
    d: int,
    q: int,
    cardinality: float,
    correlation: float,
    imbalance: float,
    noise: float,
    outliers: float,
    density: float | None,
    seed: int,
) -> None:
    for name, count, least in (("n", n, 1), ("d", d, 1), ("q", q, 1), ("seed", seed, 0)):
        if not isinstance(count, (int, np.integer)) or count < least:
            raise DataError(f"{name} is {count!r}; it must be a whole number of at least {least}")
    shares = {"correlation": correlation, "noise": noise, "outliers": outliers}
    if density is not None:
        shares["density"] = density
    for name, share in shares.items():
        if not 0.0 <= share <= 1.0:
            raise DataError(f"{name} is {share}; it must lie between 0 and 1")
    if density == 0.0:
        raise DataError("density is 0; it must be above 0, or None for dense features")
    if noise + outliers > 1.0:
        raise DataError(
            f"noise {noise} and outliers {outliers} exceed 1 together; no row can be both"
        )
    if not 0.0 <= imbalance < math.inf:
        raise DataError(f"imbalance is {imbalance}; it must be 0 or more")
    if not 0.0 < cardinality <= 0.9 * q:
        raise DataError(
            f"cardinality is {cardinality}; it must be above 0 and at most {0.9 * q:g} "
            f"(nine tenths of the {q} labels)"
        )


def _labels(
    n: int, q: int, cardinality: float, correlation: float, imbalance: float, rng: Any
) -> sp.csr_matrix:
    # A theme has room for twice the labels of a row, else its rates would all be near one.
    themes = max(1, int(q / max(_THEME_SIZE, 2.0 * cardinality)))
    theme_of_label = np.arange(q) % themes
    # Rows in equal parts per theme: contiguous here, shuffled at the end.
    first = np.arange(themes + 1, dtype=np.int64) * n // themes
    # A few more positives than asked for; the surplus is removed below to meet the target exactly.
    target = round(n * cardinality)
    surplus = target + 5.0 * math.sqrt(target) + 5.0
    frequency: Floats = np.arange(1, q + 1, dtype=np.float64) ** -float(imbalance)
    inside, outside = _rates(surplus / n, frequency, themes, correlation)

    # Poisson many random hits of mean -log(1 - p) per row touch each row with probability p,
    # independently of the others: Bernoulli draws at the cost of the positives alone.
    anywhere = rng.poisson(-n * np.log1p(-outside))
    rows_of_theme = np.diff(first)[theme_of_label]
    extra = (inside - outside) / (1.0 - outside)
    within = rng.poisson(-rows_of_theme * np.log1p(-extra))
    label = np.concatenate([np.repeat(np.arange(q), anywhere), np.repeat(np.arange(q), within)])
    row = np.concatenate(
        [
            (rng.random(anywhere.sum()) * n).astype(np.int64),
            np.repeat(first[theme_of_label], within)
            + (rng.random(within.sum()) * np.repeat(rows_of_theme, within)).astype(np.int64),
        ]
    )
    cell = np.unique(row * q + label)

    if cardinality >= 1.0:
        bare = np.setdiff1d(np.arange(n), cell // q, assume_unique=True)
        theme = np.searchsorted(first, bare, side="right") - 1
        cell = np.append(cell, bare * q + _label_of_theme(theme, theme_of_label, frequency, rng))
    if cell.size < target:  # only where nearly all labels apply to nearly all rows
        absent = np.setdiff1d(np.arange(n * q), cell, assume_unique=True)
        cell = np.append(cell, rng.permutation(absent)[: target - cell.size])
    cell = _trim(cell, cell // q, target, cardinality >= 1.0, rng)

    shuffle = rng.permutation(n)
    entries = (np.ones(cell.size, dtype=np.uint8), (shuffle[cell // q], cell % q))
    return sp.csr_matrix(entries, shape=(n, q))


def _rates(
    cardinality: float, frequency: Floats, themes: int, correlation: float
) -> tuple[Floats, Floats]:
    """Each label's rate in rows of its theme and in other rows, such that all rows average out."""
    contrast = np.array([[1.0 + correlation * (themes - 1)], [1.0 - correlation]]) * frequency
    weight = np.array([[1.0 / themes], [1.0 - 1.0 / themes]])
    low, high = 0.0, 1.0
    while (weight * np.minimum(high * contrast, _LARGEST_RATE)).sum() < cardinality and high < 1e18:
        high *= 2.0
    for _ in range(60):  # rates are capped, so the factor has no closed form
        middle = (low + high) / 2.0
        met = (weight * np.minimum(middle * contrast, _LARGEST_RATE)).sum() >= cardinality
        low, high = (low, middle) if met else (middle, high)
    inside, outside = np.minimum(high * contrast, _LARGEST_RATE)
    return inside, outside


def _label_of_theme(theme: Ints, theme_of_label: Ints, frequency: Floats, rng: Any) -> Ints:
    """For each entry of ``theme``, a label of that theme, drawn by frequency."""
    label = np.argsort(theme_of_label, kind="stable")
    total = np.cumsum(frequency[label])
    last = np.cumsum(np.bincount(theme_of_label)) - 1
    low, high = np.append(0.0, total[last[:-1]])[theme], total[last][theme]
    at = np.searchsorted(total, low + rng.random(theme.size) * (high - low), side="right")
    return np.asarray(label[np.minimum(at, last[theme])], dtype=np.int64)


def _trim(cell: Ints, row: Ints, target: int, keep_one: bool, rng: Any) -> Ints:
    """Remove random cells until ``target`` are left; with ``keep_one``, never a row's last."""
    luck = rng.random(cell.size)
    if keep_one:  # the luckiest cell of each row cannot be removed
        order = np.lexsort((-luck, row))
        luck[order[np.diff(row[order], prepend=-1) > 0]] = 2.0
    return cell[np.sort(np.argsort(-luck, kind="stable")[:target])]


def _dense_features(labels: sp.csr_matrix, d: int, odd: Ints, rng: Any) -> Any:
    n, q = labels.shape
    signature = rng.standard_normal((q, d), dtype=np.float32)
    shown = sp.diags_array(1.0 / np.sqrt(np.maximum(np.diff(labels.indptr), 1))) @ labels
    X = np.asarray(shown.astype(np.float32) @ signature)
    X += _SPREAD * rng.standard_normal((n, d), dtype=np.float32)
    X[odd] = _OUTLIER_SPREAD * rng.standard_normal((odd.size, d), dtype=np.float32)
    return X


def _sparse_features(labels: sp.csr_matrix, d: int, density: float, odd: Ints, rng: Any) -> Any:
    """Each row is a bag of words, most of them from the vocabularies of its labels."""
    n, q = labels.shape
    vocabulary = min(d, max(4, math.ceil(2.0 * density * d)))
    words = (rng.random((q, vocabulary)) * d).astype(np.int64)
    # Longer than d * density, because some words are drawn twice: anywhere in the row (the
    # logarithm), and a little more often in the labels' small vocabularies (the factor).
    length = max(1, round(-1.07 * d * math.log1p(-min(density, 0.99))))
    row = np.repeat(np.arange(n), length)
    word = (rng.random(row.size) * d).astype(np.int64)
    degree = np.diff(labels.indptr).astype(np.int64)
    on_topic = (rng.random(row.size) < _ON_TOPIC) & (degree > 0)[row]
    on_topic &= ~np.isin(row, odd)
    speaker = row[on_topic]
    pick = (rng.random(speaker.size) * degree[speaker]).astype(np.int64)
    label = labels.indices[labels.indptr[speaker] + pick]
    word[on_topic] = words[label, (rng.random(speaker.size) * vocabulary).astype(np.int64)]
    X = sp.csr_matrix((np.ones(row.size, dtype=np.float32), (row, word)), shape=(n, d))
    X.sum_duplicates()
    return X
