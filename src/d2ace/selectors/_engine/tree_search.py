"""Nearest rows by a k-d tree: the same rows as exact search, sooner in few dimensions."""

from __future__ import annotations

import torch
from scipy.spatial import cKDTree
from torch import Tensor

from d2ace._util.callbacks import Progress

from .exact_search import MeasuredRows, measured, nearest_rows

__all__ = ["tree_search"]

_SPARE = 1  # rows beyond the k-th, by which a tie is noticed
_LEAF = 32  # rows compared one by one at the end of a search
_BLOCK = 1 << 15  # rows asked for at once
_SLACK = 1e-12  # by which two ways of adding up squares may differ


def tree_search(
    features: Tensor, source: MeasuredRows, k: int, *, include_self: bool, progress: Progress
) -> Tensor:
    """As exact search: int64 [n, k], nearest first, ties to the lower index."""
    points = features.to(torch.float64).numpy()
    order = cKDTree(points).indices  # rows that are near each other are visited after each other
    points = points[order]
    tree = cKDTree(points, leafsize=_LEAF)
    n = len(points)
    width = min(k + (not include_self) + _SPARE, n)
    numbers = torch.from_numpy(order).to(torch.int64)
    found = torch.empty(n, k, dtype=torch.int64)
    for start in range(0, n, _BLOCK):
        rows = numbers[start : start + _BLOCK]
        far, columns = tree.query(points[start : start + _BLOCK], k=width, workers=-1)
        columns = numbers[torch.from_numpy(columns).reshape(len(rows), width)]
        near, reach = measured(source, rows, columns, k, include_self=include_self)
        if width < n:  # rows as near as the k-th may not have been among those found
            last = torch.from_numpy(far).reshape(len(rows), width)[:, -1].square()
            tied = (last <= reach * (1.0 + _SLACK)).nonzero().flatten()
            for part in tied.split(max(1, (1 << 24) // n)):
                near[part] = nearest_rows(source, rows[part], k, include_self=include_self)
        found[rows] = near
        progress(min(start + _BLOCK, n), n)
    return found
