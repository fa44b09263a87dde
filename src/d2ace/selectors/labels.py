"""Label weights: how uncertain the labels are, and how imbalanced."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ._engine.kept_rows import KeptRows
from .compact import Blocks
from .scores import row_blocks


def column_moments(matrix: Tensor | Blocks, kept: KeptRows | None = None) -> tuple[Tensor, Tensor]:
    """Mean and population standard deviation of every column, float64.

    Two passes inside each block of rows, blocks merged in float64: the variance is never negative.
    """
    kept = kept or KeptRows(len(matrix))
    n, q = kept.n, matrix.shape[1]
    blocks = list(row_blocks(len(matrix), q, matrix.device))
    # Rows made beforehand: small tensors that stay between large ones that go would break up the
    # memory that the next block needs.
    means, squares = torch.empty(2, len(blocks), q, dtype=matrix.dtype, device=matrix.device)
    height = max((rows.stop - rows.start for rows in blocks), default=0)
    room = torch.empty(height, q, dtype=matrix.dtype, device=matrix.device)
    for number, rows in enumerate(blocks):
        block = matrix[rows]
        torch.mean(block, dim=0, out=means[number])
        deviation = torch.sub(block, means[number], out=room[: len(block)])
        torch.sum(deviation.square_(), dim=0, out=squares[number])
    counts = [float(rows.stop - rows.start) for rows in blocks]
    mean = means.to(torch.float64)
    share = torch.tensor(counts, dtype=torch.float64, device=matrix.device).unsqueeze(1) / n
    mu = kept.sum((mean * share).sum(dim=0))
    within = squares.to(torch.float64).sum(dim=0) / n
    between = ((mean - mu).square() * share).sum(dim=0)
    return mu, kept.sum(within + between).sqrt_()


def dynamic_weights(matrix: Tensor | Blocks, form: str, kept: KeptRows | None = None) -> Tensor:
    """v_j = exp((mu_j + sd_j)/2), or its linear form, or ones: float64 [q]."""
    if form == "none":
        return torch.ones(matrix.shape[1], dtype=torch.float64, device=matrix.device)
    mean, deviation = column_moments(matrix, kept)
    half = (mean + deviation) / 2
    return half.exp() if form == "exp" else half


def weighted_sum(matrix: Tensor | Blocks, weights: Tensor) -> Tensor:
    """delta_i = sum_j A_ij v_j, float64 [n]."""
    weights = weights.to(matrix.dtype)
    if isinstance(matrix, Tensor):
        return torch.mv(matrix, weights).to(torch.float64)
    found = weights.new_empty(len(matrix))
    for rows in row_blocks(len(matrix), matrix.shape[1], matrix.device):
        torch.mv(matrix[rows], weights, out=found[rows])
    return found.to(torch.float64)


def imbalance_ratio(labels: sp.csr_array) -> np.ndarray:
    """IR_j = max_k cnt_k / cnt_j; NaN for a label without positives."""
    count = np.bincount(labels.indices, minlength=labels.shape[1]).astype(np.float64)
    count[count == 0] = np.nan
    return np.asarray(np.nanmax(count) / count if not np.isnan(count).all() else count)


def local_imbalance(labels: sp.csr_array, neighbors: Tensor) -> np.ndarray:
    """Hard-Imb's static weights W_i = 1 + sum_j B'_ij / sum_k B'_kj: float64 [n].

    B'_ij is the share of neighbours that lack j, for minority labels j that i has. A share of 0
    is safe and a share of 1 is noise; neither counts. It needs no dense [n, q] matrix.
    """
    n = labels.shape[0]
    ratio = imbalance_ratio(labels)
    weights = np.ones(n)
    k = neighbors.shape[1]
    if k == 0 or np.isnan(ratio).all():
        return weights
    minority = ratio > np.nanmean(ratio)  # False for NaN: an empty label is not a minority label
    rows = np.repeat(np.arange(n), np.diff(labels.indptr))
    chosen = minority[labels.indices]
    rows, columns = rows[chosen], labels.indices[chosen]
    if rows.size == 0:
        return weights
    having = sp.csr_array(labels.astype(np.int32))
    around = neighbors.numpy()
    lacking = np.full(rows.size, float(k))
    for place in range(k):
        lacking -= np.asarray(having[around[rows, place], columns]).ravel()
    share = lacking / k
    share[share == 1.0] = 0.0
    total = np.bincount(columns, weights=share, minlength=labels.shape[1])
    scaled = np.divide(share, total[columns], out=np.zeros_like(share), where=share > 0)
    weights += np.bincount(rows, weights=scaled, minlength=n)
    return weights
