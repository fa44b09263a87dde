"""The embedded dataset: real handwritten digits, one to four on a canvas.

The scans are the 1,797 digits of 8 x 8 pixels that come with scikit-learn (test part of the UCI
"Optical Recognition of Handwritten Digits" by Alpaydin and Kaynak). They are pasted, unchanged,
into the quarters of a 24 x 24 canvas; the labels are the digits that occur. All randomness is
derived from uniform numbers of one seeded generator, so the dataset is the same everywhere.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .annotated import AnnotatedData, choose_flawed, flip_labels
from .container import DataError

__all__ = ["load_digits"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

DIGIT_ROWS = 3000
DIGIT_SIDE = 24
_SEED = 20140813
_FLIPPED = _OUTLIERS = 0.04
_HOW_MANY = np.array([0.30, 0.35, 0.22, 0.13])  # canvases with one, two, three, four digits
_DECAY = 0.76  # each digit is this much rarer than the one before it
_FRIENDS = 8.0  # how much likelier a digit is beside a friend of its own


def load_digits() -> AnnotatedData:
    """About 3,000 canvases of 24 x 24 pixels (in [0, 1]) with ten labels, the digits on them.

    The labels are imbalanced (0 is the most frequent, 9 the rarest) and correlated (digits keep
    company in pairs: 0 with 5, 1 with 6, ...). Four per cent of the rows have a wrong label
    (``flipped``) and four per cent show scrambled pixels (``outliers``). Needs scikit-learn, no
    network and no files. A scan may occur on several canvases.
    """
    scans, digit = _scans()
    rng = np.random.Generator(np.random.PCG64(_SEED))
    sets = _digit_sets(rng)
    X = _paste(scans, digit, sets, rng)
    true_Y = sp.csr_matrix(sets.any(axis=1).astype(np.uint8))
    flipped, outliers = choose_flawed(DIGIT_ROWS, _FLIPPED, _OUTLIERS, rng.random(DIGIT_ROWS))
    Y = flip_labels(true_Y, flipped, rng.random((2, flipped.size)))
    scramble = rng.random((outliers.size, DIGIT_SIDE * DIGIT_SIDE)).argsort(axis=1, kind="stable")
    X[outliers] = np.take_along_axis(X[outliers], scramble, axis=1)
    return AnnotatedData(
        name="digits",
        X=X,
        Y=Y.toarray(),
        feature_names=tuple(f"pixel_{i}_{j}" for i in range(DIGIT_SIDE) for j in range(DIGIT_SIDE)),
        label_names=tuple("0123456789"),
        flipped=flipped,
        outliers=outliers,
        true_Y=true_Y.toarray(),
    )


def _scans() -> tuple[Floats, Ints]:
    try:
        from sklearn.datasets import load_digits as bundled
    except ImportError as missing:
        raise DataError(
            "the embedded digits come with scikit-learn, which is not installed; install it with "
            'pip install ".[bench]" in a checkout of d2ace'
        ) from missing
    found = bundled()
    return found.images / 16.0, found.target.astype(np.int64)


def _digit_sets(rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """[rows, 4, 10]: which digit is the first, second, ... of a canvas; no digit comes twice."""
    popularity = _DECAY ** np.arange(10)
    company = np.ones((10, 10))
    for first in range(5):
        company[first, first + 5] = company[first + 5, first] = _FRIENDS
    size = 1 + np.searchsorted(np.cumsum(_HOW_MANY)[:-1], rng.random(DIGIT_ROWS), side="right")
    sets = np.zeros((DIGIT_ROWS, 4, 10), dtype=bool)
    weight = np.tile(popularity, (DIGIT_ROWS, 1))
    for place in range(4):
        heap = np.cumsum(weight, axis=1)
        drawn = (heap < rng.random(DIGIT_ROWS)[:, None] * heap[:, -1:]).sum(axis=1)
        rows = np.flatnonzero(size > place)
        sets[rows, place, drawn[rows]] = True
        weight *= company[drawn]
        weight[np.arange(DIGIT_ROWS), drawn] = 0.0
    return sets


def _paste(
    scans: Floats, digit: Ints, sets: npt.NDArray[np.bool_], rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    """Each digit somewhere in a quarter of its own."""
    canvas = np.zeros((DIGIT_ROWS, DIGIT_SIDE, DIGIT_SIDE), dtype=np.float32)
    by_digit = np.argsort(digit, kind="stable")
    many = np.bincount(digit, minlength=10)
    first = np.cumsum(many) - many
    quarter = rng.random((DIGIT_ROWS, 4)).argsort(axis=1, kind="stable")
    pixel = np.arange(8)
    for place in range(4):
        which, luck = rng.random(DIGIT_ROWS), rng.random((2, DIGIT_ROWS))
        rows, value = np.nonzero(sets[:, place])
        scan = scans[by_digit[first[value] + (which[rows] * many[value]).astype(np.int64)]]
        down, right = (luck[:, rows] * 5).astype(np.int64)  # 8 of a quarter's 12 pixels: 5 places
        down += 12 * (quarter[rows, place] // 2)
        right += 12 * (quarter[rows, place] % 2)
        canvas[
            rows[:, None, None],
            (down[:, None] + pixel)[:, :, None],
            (right[:, None] + pixel)[:, None, :],
        ] = scan
    return canvas.reshape(DIGIT_ROWS, DIGIT_SIDE * DIGIT_SIDE)
