"""Nearest neighbours by exact Euclidean distance, and the labels found around each instance."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from d2ace._util.validation import as_array

BLOCK = 1 << 24  # distances held at once: 128 MiB in float64, whatever n is
_GROUP = 32  # columns whose minimum stands for them in the first look
_SPARE = 16  # candidates kept beyond k, re-measured without cancellation
_FAR = 1e100  # features between this and its inverse have squares that float64 can add up
_PART = 1 << 20  # differences held at once where many rows are re-measured


def nearest(features: Tensor | sp.csr_array, k: int, *, include_self: bool = False) -> Tensor:
    """The k nearest rows of every row, nearest first, ties to the lower index: int64 [n, k].

    The row itself is excluded by its index, so its duplicates remain; ``include_self`` treats it
    like any other row instead (then it can drop out among duplicates). k is capped at n - 1
    (n with ``include_self``). Memory is bounded: never an n x n matrix.
    """
    n = features.shape[0]
    k = min(k, n if include_self else n - 1)
    if k == 0:
        return torch.empty(n, 0, dtype=torch.int64)
    features = _within_range(features)
    source = DenseRows(features) if isinstance(features, Tensor) else SparseRows(features)
    height = max(1, BLOCK // n)
    blocks = (range(start, min(start + height, n)) for start in range(0, n, height))
    return torch.cat([_nearest_of(block, source, k, include_self) for block in blocks])


def _within_range(features: Tensor | sp.csr_array) -> Tensor | sp.csr_array:
    """Features whose squares neither overflow nor vanish: ordinary ones as they are.

    Others are multiplied by a power of two, which rounds nothing.
    """
    values = features if isinstance(features, Tensor) else torch.from_numpy(features.data)
    largest = float(values.abs().max()) if values.numel() else 0.0
    if largest == 0.0 or 1 / _FAR < largest < _FAR:
        return features
    exponent = math.frexp(largest)[1]
    scaled: Any = features.to(torch.float64) if isinstance(features, Tensor) else features
    for part in (exponent // 2, exponent - exponent // 2):  # 2**exponent itself may be infinite
        scaled = scaled * 2.0**-part
    sizes = abs(scaled).amax(1) if isinstance(scaled, Tensor) else abs(scaled).max(axis=1).toarray()
    sizes = torch.as_tensor(np.asarray(sizes.cpu() if isinstance(sizes, Tensor) else sizes)).ravel()
    tiny = (sizes < 1 / _FAR) & (sizes > 0)
    if largest > 1 and bool(tiny.any()):
        row = int(tiny.nonzero()[0])
        raise ValueError(
            f"features hold values up to {largest:.3g}, beside which those of row {row} vanish, so "
            "that nobody can say which rows are near it; scale or clip the features first."
        )
    return scaled


def _nearest_of(block: range, source: DenseRows | SparseRows, k: int, include_self: bool) -> Tensor:
    rows = torch.arange(block.start, block.stop, device=source.device)
    least = source.least_distances(rows)
    if not include_self:
        least[rows - block.start, rows] = torch.inf
    width = min(k + _SPARE, least.shape[1])
    found, reach = _measured(source, rows, _smallest(least, width), k, include_self)
    # where more rows may be as near as the k-th than there are candidates, look at all of them
    near = least <= reach[:, None]
    crowd = near.sum(dim=1)
    crowded = (crowd > width).nonzero().flatten()
    columns = torch.arange(least.shape[1], device=source.device)
    while len(crowded):
        width = min(4 * width, least.shape[1])
        for part in crowded.split(max(1, _PART // (width * source.values.shape[1]))):
            lowest = _smallest(torch.where(near[part], columns, len(columns)), width)
            found[part], reach[part] = _measured(source, rows[part], lowest, k, include_self)
        # nothing is nearer than a duplicate, and those of lower index came first
        crowded = crowded[(crowd[crowded] > width) & (reach[crowded] > 0)]
    return found.cpu()


def _measured(
    source: DenseRows | SparseRows, rows: Tensor, columns: Tensor, k: int, include_self: bool
) -> tuple[Tensor, Tensor]:
    """The k nearest among ``columns`` [b, c] by exact distance, and the distance of the k-th."""
    columns = columns.sort(dim=1).values
    exact = source.exact_distances(rows, columns)
    if not include_self:
        exact.masked_fill_(columns == rows[:, None], torch.inf)
    # columns ascend and the sort is stable: ties go to the lower index
    exact, order = exact.sort(dim=1, stable=True)
    return columns.gather(1, order)[:, :k], exact[:, k - 1]


def _smallest(values: Tensor, k: int) -> Tensor:
    """Columns of the k smallest entries of each row, in any order.

    The k smallest lie in the k groups of columns with the smallest minima, so that only those
    groups are searched: one cheap pass instead of a partial sort of the whole row.
    """
    height, n = values.shape
    groups = n // _GROUP
    if groups <= 2 * k:
        return values.topk(k, dim=1, largest=False).indices
    whole = values[:, : groups * _GROUP].view(height, groups, _GROUP)
    best = whole.amin(dim=2).topk(k, dim=1, largest=False).indices
    columns = (best[:, :, None] * _GROUP + torch.arange(_GROUP, device=values.device)).flatten(1)
    rest = torch.arange(groups * _GROUP, n, device=values.device).expand(height, -1)
    columns = torch.cat([columns, rest], dim=1)
    return columns.gather(1, values.gather(1, columns).topk(k, dim=1, largest=False).indices)


def _lowered(norms: Tensor, width: int) -> Tensor:
    """Squared norms, less what |x|^2 + |y|^2 - 2xy may be too large by through rounding.

    A sum of ``width`` products is off by at most that many halves of epsilon of its terms' size,
    and so are the two norms; the factor leaves a reserve.
    """
    return norms * (1.0 - 4.0 * (width + 8) * torch.finfo(torch.float64).eps)


class DenseRows:
    def __init__(self, features: Tensor) -> None:
        self.values = features.to(torch.float64)
        self.centred = self.values - self.values.mean(dim=0)  # loses less to cancellation
        self.norms = _lowered(self.centred.square().sum(dim=1), self.values.shape[1])
        self.device = features.device

    def least_distances(self, rows: Tensor) -> Tensor:
        """What the squared distances are at least; nearly what they are."""
        cross = self.centred[rows] @ self.centred.T
        return cross.mul_(-2).add_(self.norms).add_(self.norms[rows, None])

    def exact_distances(self, rows: Tensor, columns: Tensor) -> Tensor:
        width = max(1, BLOCK // max(1, len(rows) * self.values.shape[1]))
        own = self.values[rows].unsqueeze(1)
        parts = [
            (own - self.values[part]).square_().sum(dim=2) for part in columns.split(width, dim=1)
        ]
        return torch.cat(parts, dim=1)


class SparseRows:
    def __init__(self, features: sp.csr_array) -> None:
        self.values = features
        self.transposed = features.T.tocsr()
        norms = torch.from_numpy(np.asarray(features.multiply(features).sum(axis=1)).ravel())
        self.norms = _lowered(norms, features.shape[1])
        self.device = torch.device("cpu")

    def least_distances(self, rows: Tensor) -> Tensor:
        """What the squared distances are at least; nearly what they are."""
        chosen = rows.numpy()
        cross = torch.from_numpy((self.values[chosen] @ self.transposed).toarray())
        return cross.mul_(-2).add_(self.norms).add_(self.norms[rows, None])

    def exact_distances(self, rows: Tensor, columns: Tensor) -> Tensor:
        entries = max(1, self.values.nnz // max(1, self.values.shape[0])) * columns.shape[1]
        height = max(1, _PART // max(1, entries))
        exact = torch.empty(columns.shape, dtype=torch.float64, device=self.device)
        for start in range(0, len(rows), height):
            part = columns[start : start + height].numpy()
            own = rows[start : start + height].numpy()
            difference = self.values[np.repeat(own, part.shape[1])] - self.values[part.ravel()]
            squared = np.asarray(difference.multiply(difference).sum(axis=1))
            exact[start : start + height] = torch.from_numpy(squared.reshape(part.shape))
        return exact


def is_number(neighbors: Any) -> bool:
    """Whether ``neighbors`` is meant as K, not as an index array."""
    return not isinstance(neighbors, Tensor) and as_array("neighbors", neighbors).ndim == 0


def neighbor_index(value: Any, n: int) -> Tensor:
    """A caller's own index array [n, K], checked."""
    value = value.detach().cpu() if isinstance(value, Tensor) else value
    array = as_array("neighbors", value)
    if array.ndim != 2 or array.shape[0] != n or array.dtype.kind not in "iu":
        raise ValueError(
            f"neighbors must be a whole number or an index array of shape [{n}, K], "
            f"got {array.dtype} of shape {array.shape}."
        )
    if array.size and (array.min() < 0 or array.max() >= n):
        wrong = array[(array < 0) | (array >= n)][0]
        raise ValueError(f"neighbors holds {wrong}, but rows run from 0 to {n - 1}.")
    return torch.from_numpy(array.astype(np.int64))


def named_neighbors(value: Any) -> int | str:
    """K, or a name by which the same index array is known again."""
    if is_number(value):
        return int(value)
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else as_array("", value)
    return f"array with checksum {zlib.crc32(np.ascontiguousarray(array, dtype='<i8').data):08x}"


def local_labels(labels: sp.csr_array, neighbors: Tensor, *, include_self: bool) -> sp.csr_array:
    """Z: which labels occur in the neighbourhood of each instance, as CSR ones."""
    n = labels.shape[0]
    k = neighbors.shape[1]
    adjacency = sp.csr_array(
        (np.ones(n * k, np.int32), neighbors.numpy().ravel(), np.arange(n + 1) * k), shape=(n, n)
    )
    around = adjacency @ labels.astype(np.int32)
    if include_self:
        around = around + labels.astype(np.int32)
    around = sp.csr_array(around)
    around.eliminate_zeros()
    around.sort_indices()
    ones = np.ones(around.nnz, dtype=np.uint8)
    return sp.csr_array((ones, around.indices, around.indptr), shape=around.shape)
