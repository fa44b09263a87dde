"""Nearest rows by exact Euclidean distance: all of them looked at in float32, few re-measured."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

__all__ = ["MeasuredRows", "measured", "measured_rows", "nearest_rows", "within_range"]

BLOCK = 1 << 24  # distances held at once: 64 MiB in float32, whatever n is
_GROUP = 32  # columns whose minimum stands for them in the first look
_SPARE = 16  # candidates kept beyond k, re-measured without cancellation
_FAR = 1e100  # features between this and its inverse have squares that float64 can add up
_PART = 1 << 20  # differences held at once where many rows are re-measured
_SIDE = 128  # sparse rows made dense at once, so that they stay in cache
_SPARSE_PRODUCT = 10  # what one product of two sparse entries costs, in those of one with dense
_FAINT = 1e-30  # what float32 may lose of distances of rows whose size is about 1


def within_range(features: Tensor | sp.csr_array) -> Tensor | sp.csr_array:
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
            "that its nearest rows are undefined; scale or clip the features first."
        )
    return scaled


def nearest_rows(source: MeasuredRows, rows: Tensor, k: int, *, include_self: bool) -> Tensor:
    """The k nearest of all rows to each of ``rows``, nearest first, ties to the lower index."""
    least = source.least_distances(rows)
    if not include_self:
        least[torch.arange(len(rows), device=source.device), rows] = torch.inf
    width = min(k + _SPARE, least.shape[1])
    columns, bound = _smallest(least, width)
    found, reach = measured(source, rows, columns, k, include_self=include_self)
    if width == least.shape[1]:
        return found.cpu()
    # A row that may be as near as the k-th is a candidate, unless all candidates may.
    crowd = bound <= source.first_look(reach)
    coarse = crowd & source.too_coarse(rows, reach)
    if bool(coarse.any()):
        again = nearest_rows(source.finer, rows[coarse], k, include_self=include_self)
        found[coarse] = again.to(source.device)
    crowded = (crowd & ~coarse).nonzero().flatten()
    numbers = torch.arange(least.shape[1], device=source.device)
    while len(crowded):
        width = min(4 * width, least.shape[1])
        left = []
        for part in crowded.split(max(1, _PART // (width * source.width))):
            near = least[part] <= source.first_look(reach[part])[:, None]
            lowest, _ = _smallest(torch.where(near, numbers, len(numbers)), width)
            found[part], reach[part] = measured(
                source, rows[part], lowest, k, include_self=include_self
            )
            # nothing is nearer than a duplicate, and those of lower index came first
            left.append(part[(near.sum(dim=1) > width) & (reach[part] > 0)])
        crowded = torch.cat(left)
    return found.cpu()


def measured(
    source: MeasuredRows, rows: Tensor, columns: Tensor, k: int, *, include_self: bool
) -> tuple[Tensor, Tensor]:
    """The k nearest among ``columns`` [b, c] by exact distance, and the distance of the k-th."""
    columns = columns.sort(dim=1).values
    exact = source.exact_distances(rows, columns)
    if not include_self:
        exact.masked_fill_(columns == rows[:, None], torch.inf)
    # columns ascend and the sort is stable: ties go to the lower index
    exact, order = exact.sort(dim=1, stable=True)
    return columns.gather(1, order)[:, :k], exact[:, k - 1]


def _smallest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Columns of the k smallest entries of each row, in any order, and the largest of them.

    The k smallest lie in the k groups of columns with the smallest minima, so that only those
    groups are searched: one cheap pass instead of a partial sort of the whole row.
    """
    height, n = values.shape
    groups = n // _GROUP
    if groups <= 2 * k:
        best = values.topk(k, dim=1, largest=False)
        return best.indices, best.values.amax(dim=1)
    whole = values[:, : groups * _GROUP].view(height, groups, _GROUP)
    chosen = whole.amin(dim=2).topk(k, dim=1, largest=False).indices
    columns = (chosen[:, :, None] * _GROUP + torch.arange(_GROUP, device=values.device)).flatten(1)
    rest = torch.arange(groups * _GROUP, n, device=values.device).expand(height, -1)
    columns = torch.cat([columns, rest], dim=1)
    best = values.gather(1, columns).topk(k, dim=1, largest=False)
    return columns.gather(1, best.indices), best.values.amax(dim=1)


class MeasuredRows:
    """Rows between which distances are asked for.

    The first look is in float32, at rows divided by their largest size. It never says more than
    the distance is: norms are lowered by what rounding may add. Where that says nothing, because
    distances are small beside the rows' sizes, :attr:`finer` looks again in float64.
    """

    width: int
    device: torch.device
    scale: float
    norms: Tensor
    """Lowered squared norms [n], scaled, in the precision of the first look."""

    def __init__(self, squares: Tensor, terms: int, precision: torch.dtype) -> None:
        """Of rows with squared norms ``squares`` [n], sums of ``terms`` products.

        Such a sum is off by at most that many halves of epsilon of its terms' size, and so are
        the two norms; the factor leaves a reserve. What float32 cannot hold at all is
        :data:`_FAINT`.
        """
        largest = float(squares.max()) if len(squares) else 0.0
        self.scale = 1.0 if largest == 0.0 else 2.0 ** -(math.frexp(largest)[1] // 2 + 1)
        self._rounding = 4.0 * (terms + 8) * torch.finfo(precision).eps
        lowered = squares * self.scale**2 * (1.0 - self._rounding) - _FAINT
        self.norms = lowered.to(precision)

    def first_look(self, distances: Tensor) -> Tensor:
        """Exact squared distances in the units of the first look, rounded up."""
        scaled = (distances * self.scale**2).to(self.norms.dtype)
        return torch.nextafter(scaled, torch.full_like(scaled, torch.inf))

    def too_coarse(self, rows: Tensor, distances: Tensor) -> Tensor:
        """Whether distances are not much larger than what rounding may add to them."""
        if self.norms.dtype == torch.float64:
            return torch.zeros_like(distances, dtype=torch.bool)
        return self.first_look(distances) < 32.0 * self._rounding * self.norms[rows]

    @cached_property
    def finer(self) -> MeasuredRows:
        """The same rows, looked at in float64."""
        raise NotImplementedError

    def least_distances(self, rows: Tensor) -> Tensor:
        """[b, n]: what the scaled squared distances are at least, nearly what they are."""
        raise NotImplementedError

    def exact_distances(self, rows: Tensor, columns: Tensor) -> Tensor:
        """[b, c], float64: squared distances of ``rows`` [b] to ``columns`` [b, c]."""
        raise NotImplementedError

    def _add_norms(self, cross: Tensor, rows: Tensor) -> Tensor:
        return cross.mul_(-2).add_(self.norms).add_(self.norms[rows, None])


def measured_rows(features: Tensor | sp.csr_array) -> MeasuredRows:
    """The quickest way to look at features that are :func:`within_range`."""
    if isinstance(features, Tensor):
        return DenseRows(features)
    n, d = features.shape
    entries = np.bincount(features.indices, minlength=d).astype(np.float64)
    if n * features.nnz < _SPARSE_PRODUCT * float(entries @ entries):
        return WideRows(features)
    return SparseRows(features)


class DenseRows(MeasuredRows):
    def __init__(self, features: Tensor, precision: torch.dtype = torch.float32) -> None:
        self.values = features.to(torch.float64)
        self.width, self.device = self.values.shape[1], features.device
        centred = self.values - self.values.mean(dim=0)  # loses less to cancellation
        super().__init__(centred.square().sum(dim=1), self.width, precision)
        self.small = (centred * self.scale).to(precision)

    @cached_property
    def finer(self) -> MeasuredRows:
        return DenseRows(self.values, torch.float64)

    def least_distances(self, rows: Tensor) -> Tensor:
        return self._add_norms(self.small[rows] @ self.small.T, rows)

    def exact_distances(self, rows: Tensor, columns: Tensor) -> Tensor:
        width = max(1, BLOCK // max(1, len(rows) * self.width))
        own = self.values[rows].unsqueeze(1)
        parts = [
            (own - self.values[part]).square_().sum(dim=2) for part in columns.split(width, dim=1)
        ]
        return torch.cat(parts, dim=1)


class SparseRows(MeasuredRows):
    def __init__(self, features: sp.csr_array, precision: torch.dtype = torch.float32) -> None:
        self.values = features
        self.width, self.device = features.shape[1], torch.device("cpu")
        sums = np.asarray(features.multiply(features).sum(axis=1), dtype=np.float64).ravel()
        most = int(np.diff(features.indptr).max(initial=1))
        super().__init__(torch.from_numpy(sums), most, precision)
        kind = np.float32 if precision == torch.float32 else np.float64
        self.small = (features * self.scale).astype(kind)

    @cached_property
    def finer(self) -> MeasuredRows:
        return SparseRows(self.values, torch.float64)

    @cached_property
    def transposed(self) -> sp.csr_array:
        return self.small.T.tocsr()

    def least_distances(self, rows: Tensor) -> Tensor:
        cross = torch.from_numpy((self.small[rows.numpy()] @ self.transposed).toarray())
        return self._add_norms(cross, rows)

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


class WideRows(SparseRows):
    """Sparse rows that have much in common: products of all of them with a few dense ones."""

    def least_distances(self, rows: Tensor) -> Tensor:
        shape = (len(rows), self.small.shape[0])
        cross = torch.empty(shape, dtype=torch.float32, device=self.device)
        for start in range(0, len(rows), _SIDE):
            part = slice(start, start + _SIDE)
            own = np.ascontiguousarray(self.small[rows[part].numpy()].toarray().T)
            cross[part] = torch.from_numpy(self.small @ own).T
        return self._add_norms(cross, rows)
