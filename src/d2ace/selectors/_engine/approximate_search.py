"""Nearest rows by an approximate index (faiss): candidates from it, distances exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from d2ace._util.callbacks import Progress

from .exact_search import MeasuredRows, measured, nearest_rows

__all__ = ["approximate_search"]

_WANTED = 0.97  # of the sample's neighbours; a little more than what is promised
_SAMPLE = 256  # rows whose neighbours are also looked for exactly
_SPARE = 16  # candidates beyond k, as exact search has them
_PROJECTED_SPARE = 240  # and where a projection has blurred the distances
_WIDEST = 256  # dimensions of the index; wider features are projected
_PER_LIST = 64  # rows a list is trained with
_BLOCK = 1 << 14  # rows asked for at once


def approximate_search(
    features: Tensor | sp.csr_array,
    source: MeasuredRows,
    k: int,
    *,
    include_self: bool,
    progress: Progress,
) -> tuple[Tensor, float]:
    """As exact search, but for rows that were overlooked: [n, k], and the recall of a sample.

    The rows are cut into cells. A row looks into as many cells around it as a sample needs in
    order to find 97 % of its neighbours.
    """
    import faiss

    points = _points(features)
    n, d = points.shape
    cells = min(1 << 14, n, round(4 * math.sqrt(n)))
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(d), d, cells)
    index.cp.niter, index.cp.seed = 10, 1
    index.cp.min_points_per_centroid = 1  # so that it does not print
    rng = np.random.default_rng(0)
    index.train(points[np.sort(rng.choice(n, min(n, _PER_LIST * cells), replace=False))])
    index.add(points)

    spare = _SPARE if d == features.shape[1] else _PROJECTED_SPARE
    width = min(k + (not include_self) + spare, n)

    def found(rows: Tensor) -> Tensor:
        columns = torch.from_numpy(index.search(points[rows.numpy()], width)[1])
        near, _ = measured(source, rows, columns.clamp_min(0), k, include_self=include_self)
        short = (columns < 0).any(dim=1).nonzero().flatten()  # too few rows in those cells
        for part in short.split(_SAMPLE):
            near[part] = nearest_rows(source, rows[part], k, include_self=include_self)
        return near

    sample = torch.from_numpy(np.sort(rng.choice(n, min(n, _SAMPLE), replace=False)))
    truth = nearest_rows(source, sample, k, include_self=include_self)
    index.nprobe = min(8, cells)
    while (recall := _share(found(sample), truth)) < _WANTED and index.nprobe < cells:
        index.nprobe = min(2 * index.nprobe, cells)
    blocks = []
    for rows in torch.arange(n).split(_BLOCK):
        blocks.append(found(rows))
        progress(int(rows[-1]) + 1, n)
    return torch.cat(blocks), recall


def _share(found: Tensor, truth: Tensor) -> float:
    """Which share of the true neighbours was found."""
    return float((found[:, :, None] == truth[:, None, :]).any(dim=1).double().mean())


def _points(features: Tensor | sp.csr_array) -> np.ndarray[Any, Any]:
    """The features as float32 [n, d]; many columns become few by a random projection."""
    d = features.shape[1]
    if d <= _WIDEST:
        dense = features.numpy() if isinstance(features, Tensor) else features.toarray()
        return np.ascontiguousarray(dense, dtype=np.float32)
    directions = np.random.default_rng(0).standard_normal((d, _WIDEST), dtype=np.float32)
    directions /= math.sqrt(_WIDEST)
    if isinstance(features, Tensor):
        parts = [part.numpy().astype(np.float32) @ directions for part in features.split(_BLOCK)]
    else:
        starts = range(0, features.shape[0], _BLOCK)
        parts = [features[start : start + _BLOCK] @ directions for start in starts]
    return np.ascontiguousarray(np.concatenate(parts), dtype=np.float32)
