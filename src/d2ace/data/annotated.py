"""Datasets whose wrong rows are known, so that one can watch how selection treats them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .container import MultiLabelData

__all__ = ["AnnotatedData"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class AnnotatedData(MultiLabelData):
    """A dataset that knows its flaws; otherwise an ordinary `MultiLabelData`.

    ``flipped`` are the rows with wrong labels, ``outliers`` those with wrong features (sorted, no
    row is both), and ``true_Y`` is ``Y`` as it was before labels were flipped.
    """

    flipped: Ints
    outliers: Ints
    true_Y: Any


def choose_flawed(n: int, noise: float, outliers: float, luck: npt.NDArray[Any]) -> list[Ints]:
    """Two disjoint sorted sets of rows, of the given shares of ``n``, by the order of ``luck``."""
    order = np.argsort(luck, kind="stable")
    flipped, odd = round(noise * n), round(outliers * n)
    return [np.sort(order[:flipped]), np.sort(order[flipped : flipped + odd])]


def flip_labels(labels: sp.csr_matrix, rows: Ints, luck: npt.NDArray[np.float64]) -> sp.csr_matrix:
    """In each of ``rows``, one label that applies is exchanged for one that does not.

    A row with all labels only loses one and a row without labels only gains one. ``luck`` [2, rows]
    holds uniform numbers in [0, 1).
    """
    labels.sort_indices()
    q = labels.shape[1]
    begin, degree = labels.indptr[:-1][rows], np.diff(labels.indptr)[rows]
    width = int(degree.max(initial=0))
    # The labels of each row in increasing order; q stands for "no more".
    held = np.full((rows.size, width), q, dtype=np.int64)
    position = np.arange(width) < degree[:, None]
    held[position] = labels.indices[(begin[:, None] + np.arange(width))[position]]
    loses, gains = degree > 0, degree < q
    at = (luck[0] * degree).astype(np.int64)
    lost = held[loses, at[loses]]
    # The g-th label that the row lacks: step over each one it holds.
    gained = (luck[1] * (q - degree)).astype(np.int64)
    for column in held.T:
        gained += gained >= column
    change = sp.csr_matrix(
        (
            np.concatenate([-np.ones(lost.size), np.ones(np.count_nonzero(gains))]),
            (np.concatenate([rows[loses], rows[gains]]), np.concatenate([lost, gained[gains]])),
        ),
        shape=labels.shape,
    )
    flipped = (labels.astype(np.int8) + change.astype(np.int8)).astype(np.uint8)
    flipped.eliminate_zeros()
    return sp.csr_matrix(flipped)
