"""Label correlation: D2ACE's local enhancement of positives, ML-Unc's mutual information."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as functional
from torch import Tensor

from ._engine.compiling import SAME_BITS
from ._engine.kept_rows import KeptRows
from .compact import Blocks
from .scores import Positives, row_blocks

BINS = 5  # equal bins of uncertainty on [0, 1] for mutual information
JOINT = 1 << 20  # entries of a joint-count table: 8 MiB, which stay in cache
_ONE_HOT = 1 << 22  # entries of G multiplied at once
_STRIPE = 256  # columns of G that a product takes on its left
_PAIR = 1 << 12  # more than rows are multiplied at once; its square is exact in float32
_IN_CACHE = 128  # columns of C gathered at once: with a thousand labels half a megabyte
_EMPTY = 1e-12  # a column of M with a norm below this has no direction


def segment_sums(values: Tensor, starts: Tensor) -> Tensor:
    """Sums over the segments of ``values`` that begin at ``starts``, in a fixed order."""
    ends = starts.new_full((1,), len(values))
    return torch.segment_reduce(values, "sum", offsets=torch.cat([starts, ends]))


def gathered_sums(table: Tensor, place: Tensor, starts: Tensor) -> Tensor:
    """Sums of ``table[place]`` over segments of ``place``: one fused gather-and-sum."""
    if place.numel() == 0:
        return table.new_zeros(len(starts), *table.shape[1:])
    return functional.embedding_bag(place, table, starts, mode="sum")


class LocalCorrelation:
    """phi_i = sum_j M_ij (Z C)_ij, with M = Y * A and C the cosines between columns of M.

    Y and Z never change, so their nonzero products are listed once: pairs of positives in one
    row (for C), and pairs of a positive with a label of Z (for Z C). Each epoch gathers and sums
    them. If a list would take more than a byte or two per entry of the matrix, blocks of the
    matrices are multiplied instead (``listed`` overrides this). Both routes give the same numbers.
    """

    def __init__(
        self,
        labels: sp.csr_array,
        around: sp.csr_array,
        device: torch.device,
        *,
        listed: bool | None = None,
        kept: KeptRows | None = None,
    ) -> None:
        self.kept = kept or KeptRows(labels.shape[0])
        labels, around = self.kept.of(labels), self.kept.of(around)
        n, q = labels.shape
        self.n, self.q, self.device = n, q, device
        owned = np.diff(labels.indptr).astype(np.int64)
        nearby = np.diff(around.indptr).astype(np.int64)
        rows = np.repeat(np.arange(n), owned)
        columns = labels.indices.astype(np.int64)
        by_column = np.argsort(columns, kind="stable")
        (flat,) = self._compact(rows * q + columns)
        self.positives = Positives(flat, labels.indptr, q)
        self.row_starts = self._tensor(labels.indptr[:-1])
        self.column_starts = self._tensor(np.searchsorted(columns[by_column], np.arange(q)))
        (self.columns,) = self._compact(labels.indices)
        (self.by_column,) = self._compact(by_column)

        # Sizes of published runs keep the route they had: the last bit may depend on it.
        kept_bits = n * q <= SAME_BITS
        budget = n * q // (2 if kept_bits else 4)
        pairs = owned**2 if kept_bits else owned * (owned - 1) // 2
        self.pairs_listed = listed if listed is not None else bool(pairs.sum() <= budget)
        if self.pairs_listed:
            self._list_pairs(labels.indptr, rows, columns)
        needed = int((owned * nearby).sum())
        self.context_listed = listed if listed is not None else needed <= budget
        if self.context_listed:
            self._list_context(around, nearby, rows, columns)
        else:
            (self.around,) = self._compact(around.indices)
            self.around_pointer = around.indptr

    def fits(self, kept: KeptRows, device: torch.device) -> bool:
        """Whether it was made for these rows, and is on this device."""
        return self.kept is kept and self.device == device

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(np.asarray(array, dtype=np.int64)).to(self.device)

    def _compact(self, *arrays: Any) -> tuple[Tensor, ...]:
        """int32 if every value fits, which halves the bytes that an epoch reads."""
        largest = max((int(array.max()) for array in arrays if array.size), default=0)
        dtype = np.int32 if largest < 2**31 else np.int64
        return tuple(torch.from_numpy(a.astype(dtype, copy=False)).to(self.device) for a in arrays)

    def _list_pairs(self, indptr: Any, rows: Any, columns: Any) -> None:
        """Pairs (e, f) of positives of one row with column_e < column_f, sorted by that cell."""
        later = indptr[rows + 1] - np.arange(columns.size) - 1  # columns ascend within a row
        first = np.repeat(np.arange(columns.size), later)
        second = np.arange(first.size) - np.repeat(np.cumsum(later) - later, later) + first + 1
        cell = columns[first] * self.q + columns[second]
        order = np.argsort(cell, kind="stable")
        cells, starts = np.unique(cell[order], return_index=True)
        self.cells = self._tensor(cells)
        self.cell_starts = self._tensor(starts)
        self.first, self.second = self._compact(first[order], second[order])

    def _list_context(self, around: sp.csr_array, nearby: Any, rows: Any, columns: Any) -> None:
        """For every positive (i, j) the cells (k, j) with k in Z_i."""
        length = nearby[rows]
        starts = np.cumsum(length) - length
        place = np.arange(length.sum()) + np.repeat(around.indptr[rows] - starts, length)
        context = around.indices[place].astype(np.int64) * self.q + np.repeat(columns, length)
        self.context, self.context_starts = self._compact(context, starts)

    def masked(self, matrix: Tensor | Blocks) -> Tensor:
        """M at the ones of Y, row by row: float64 [number of ones]."""
        flat = self.positives.flat
        if isinstance(matrix, Tensor):
            return matrix.view(-1).index_select(0, flat).to(torch.float64)
        return matrix.at(flat).to(torch.float64)

    def cosines(self, masked: Tensor, *, epsilon: float = 0.0) -> Tensor:
        """C [q, q]: symmetric, with ones and zeros as diagonal; ``epsilon`` is added to norms."""
        squares = segment_sums(masked.square().index_select(0, self.by_column), self.column_starts)
        norm = self.kept.sum(squares).sqrt_()
        present = norm >= _EMPTY
        scale = norm + epsilon if epsilon else torch.where(present, norm, torch.inf)
        unit = masked / scale.index_select(0, self.columns)
        if self.pairs_listed:
            cosine = masked.new_zeros(self.q * self.q)
            products = unit.index_select(0, self.first) * unit.index_select(0, self.second)
            cosine[self.cells] = segment_sums(products, self.cell_starts)
            cosine = cosine.view(self.q, self.q)
            cosine = self.kept.symmetric_sum(cosine + cosine.T)
        else:
            cosine = self._gram(unit)
        diagonal = (norm / scale).square() if epsilon else present.to(cosine.dtype)
        cosine.diagonal().copy_(diagonal)
        return cosine

    def _gram(self, unit: Tensor) -> Tensor:
        gram = unit.new_zeros(self.q, self.q)
        for rows in row_blocks(self.n, self.q, self.device):
            block = unit.new_zeros((rows.stop - rows.start) * self.q)
            pointer = self.positives.row_pointer
            block[self.positives.within(rows)] = unit[pointer[rows.start] : pointer[rows.stop]]
            block = block.view(-1, self.q)
            gram.addmm_(block.T, block)
        return self.kept.symmetric_sum((gram + gram.T) / 2)  # symmetric to the last bit

    def local_sums(self, correlation: Tensor) -> Tensor:
        """(Z C)_ij at the ones of Y: [number of ones]."""
        if self.context_listed:
            return gathered_sums(
                correlation.reshape(-1, 1), self.context, self.context_starts
            ).squeeze(1)
        sums = []
        stripes = [stripe.contiguous() for stripe in correlation.split(_IN_CACHE, dim=1)]
        for rows in row_blocks(self.n, self.q, self.device):
            pointer = self.around_pointer[rows.start : rows.stop + 1]
            near = self.around[pointer[0] : pointer[-1]]
            starts = torch.from_numpy(pointer[:-1] - pointer[0]).to(self.device, near.dtype)
            parts = [gathered_sums(stripe, near, starts) for stripe in stripes]
            dense = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
            sums.append(dense.view(-1).index_select(0, self.positives.within(rows)))
        return torch.cat([correlation.new_empty(0), *sums])  # a process may keep no rows

    def enhancement(self, matrix: Tensor | Blocks) -> Tensor:
        """phi: float64 [n]."""
        masked = self.masked(matrix)
        local = self.local_sums(self.cosines(masked).to(matrix.dtype).contiguous())
        return segment_sums(masked * local, self.row_starts)


def mutual_information(uncertainty: Tensor, kept: KeptRows | None = None) -> tuple[Tensor, Tensor]:
    """MI [q, q] between the binned columns of U, in nats, and the entropy [q] of each column."""
    kept = kept or KeptRows(len(uncertainty))
    n, q = kept.n, uncertainty.shape[1]
    counted = _BinCounts(uncertainty, kept)
    joint_entropy = torch.empty(q, q, dtype=torch.float64, device=uncertainty.device)
    single = counted.single.view(q, BINS) / n
    entropy = torch.special.entr(single).sum(dim=1)
    height = max(1, JOINT // (BINS * BINS * q))
    for start in range(0, q, height):
        labels = slice(start, min(start + height, q))
        joint = counted.joint(labels).div_(n)
        joint_entropy[labels] = torch.special.entr(joint).sum(dim=(1, 3))
    return entropy[:, None] + entropy[None, :] - joint_entropy, entropy


class _BinCounts:
    """How often bins of two labels occur together: exact whole numbers.

    A label's counts over its bins are known, so that its most frequent bin follows from the others,
    and a bin that never occurs counts nothing. What is left, seldom more than two bins a label,
    is multiplied as 0/1 columns G: the upper half of G^T G.
    """

    def __init__(self, uncertainty: Tensor, kept: KeptRows) -> None:
        n, q = uncertainty.shape
        device = uncertainty.device
        bins = torch.empty(n, q, dtype=torch.int8, device=device)
        single = torch.zeros(q, BINS, dtype=torch.int64, device=device)
        for rows in row_blocks(n, q, device):
            block = (uncertainty[rows] * BINS).clamp_(0, BINS - 1).floor_()  # quicker than trunc_
            bins[rows], equal = block, torch.empty_like(block)
            for number in range(BINS):  # comparing and adding up floats is quickest
                torch.eq(block, number, out=equal)
                single[:, number] += equal.sum(dim=0, dtype=torch.float64).to(torch.int64)
        single = kept.sum(single)
        self.usual = single.argmax(dim=1)
        """The most frequent bin of each label."""
        self.single = single.to(torch.float64).flatten()
        """How often each bin occurs: [q * BINS]."""
        needed = single > 0
        needed.scatter_(1, self.usual.unsqueeze(1), False)
        self.place = needed.flatten().nonzero().squeeze(1)  # of the columns of G among all bins
        self.together = kept.symmetric_sum(self._products(bins, kept.n))

    def _products(self, bins: Tensor, n: int) -> Tensor:
        """G^T G; whole numbers up to n, which float32 holds exactly below 2^24 rows.

        Two columns of G enter a product as one, the second times _PAIR, as a few thousand rows
        count to less than that: half the work.
        """
        dtype = torch.float32 if n < 1 << 24 else torch.float64
        label, number = self.place // BINS, (self.place % BINS).to(dtype)
        width = len(label)
        counts = torch.zeros(width, width, dtype=dtype, device=bins.device)
        stripes = [slice(at, min(at + _STRIPE, width)) for at in range(0, width, _STRIPE)]
        height = max(1, min(_PAIR - 1, _ONE_HOT // max(1, width)))
        for rows in torch.split(bins, height):
            one_hot = rows.to(dtype).index_select(1, label)
            torch.eq(one_hot, number, out=one_hot)
            for stripe in stripes:
                first, second = one_hot[:, stripe][:, ::2].clone(), one_hot[:, stripe][:, 1::2]
                first[:, : second.shape[1]].add_(second, alpha=_PAIR)
                both = first.T @ one_hot[:, stripe.start :]
                of_second = (both / _PAIR).floor_()
                upper = counts[stripe, stripe.start :]
                upper[::2] += both.sub_(of_second, alpha=_PAIR)
                upper[1::2] += of_second[: second.shape[1]]
        for stripe in stripes:
            counts[stripe, : stripe.start] = counts[: stripe.start, stripe].T
        return counts

    def joint(self, labels: slice) -> Tensor:
        """Of these labels with all labels: float64 [labels, BINS, q, BINS]."""
        q = len(self.usual)
        first, last = labels.start * BINS, labels.stop * BINS
        table = self.single.new_zeros(last - first, q * BINS)
        mine = ((self.place >= first) & (self.place < last)).nonzero().squeeze(1)
        rows = self.place[mine] - first
        together = self.together.index_select(0, mine).to(torch.float64)
        table[rows.unsqueeze(1), self.place] = together
        # the other label's usual bin: what is left of each row
        left = table.new_zeros(len(table), q)
        cells = table.view(-1, q, BINS)
        left[rows] = self.single[self.place[mine], None] - cells[rows].sum(dim=2)
        cells.scatter_(2, self.usual.expand_as(left).unsqueeze(2), left.unsqueeze(2))
        # and this label's: what is left of each column
        table = table.view(-1, BINS, q * BINS)
        usual = self.usual[labels].view(-1, 1, 1).expand(-1, 1, q * BINS)
        table.scatter_(1, usual, (self.single - table.sum(dim=1)).unsqueeze(1))
        return table.view(-1, BINS, q, BINS)


def uncertainty_correlation(uncertainty: Tensor, norm: str, kept: KeptRows | None = None) -> Tensor:
    """ML-Unc's C [q, q]: mutual information off a unit diagonal, scaled as ``norm`` says."""
    information, entropy = mutual_information(uncertainty, kept)
    correlation = information.clamp_min(0.0)
    if norm == "sqrt":
        scale = (entropy[:, None] * entropy[None, :]).sqrt_()
        correlation = torch.where(scale > _EMPTY, correlation / scale.clamp_min(_EMPTY), 0.0)
    correlation.fill_diagonal_(1.0)
    if norm == "row_max":
        correlation = correlation / correlation.amax(dim=1, keepdim=True)
    return correlation
