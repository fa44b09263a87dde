"""The data of one cell: a dataset, a fold, a seed and a kind of label noise."""

from __future__ import annotations

import warnings
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from d2ace import data as d2

VALIDATION = 0.2
_SPARSE_BELOW = 0.1  # share of cells that are not zero, below which a sparse product is faster

Labels = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Noise:
    """Shares of each label's positives that are moved, removed or added."""

    moved: float = 0.0
    missing: float = 0.0
    spurious: float = 0.0
    in_validation: bool = True

    def applied(self, Y: Labels, random: np.random.Generator) -> Labels:
        """A copy of ``Y`` with errors; each label loses or gains by its own count of positives."""
        noisy = Y.copy()
        for j in range(Y.shape[1]):
            positives, negatives = np.flatnonzero(Y[:, j] > 0), np.flatnonzero(Y[:, j] == 0)
            lost = round((self.moved + self.missing) * positives.size)
            gained = min(round((self.moved + self.spurious) * positives.size), negatives.size)
            noisy[random.choice(positives, lost, replace=False), j] = 0
            noisy[random.choice(negatives, gained, replace=False), j] = 1
        return noisy


class Features:
    """Rows of a table, dense or sparse."""

    def __init__(self, X: Any) -> None:
        sparse = _filled(X) < _SPARSE_BELOW
        self.csr = sp.csr_matrix(X, dtype=np.float32) if sparse else None
        whole = X.toarray() if sp.issparse(X) else X
        self.dense = None if sparse else torch.from_numpy(np.ascontiguousarray(whole, np.float32))
        self.shape = X.shape

    def take(self, rows: Any) -> Batch:
        if self.dense is not None:
            return Batch(self.dense[rows], None)
        picked = self.csr[rows]
        return Batch(picked, picked.T.tocsr())


def _filled(X: Any) -> float:
    """The share of cells that are not zero."""
    return (X.nnz if sp.issparse(X) else np.count_nonzero(X)) / (X.shape[0] * X.shape[1])


def _standardised(X: Any, train: Any) -> Any:
    """Measurements with mean 0 and variance 1 over the training rows; words and counts as given."""
    if _filled(X) < 0.5:
        return X
    whole = np.asarray(X.toarray() if sp.issparse(X) else X, np.float64)
    return (whole - whole[train].mean(0)) / np.maximum(whole[train].std(0), 1e-6)


@dataclass(frozen=True)
class Batch:
    """Rows of features, and transposed where they are sparse."""

    rows: Any
    columns: Any

    def times(self, weight: Tensor) -> Tensor:
        if self.columns is None:
            return self.rows @ weight
        return _SparseProduct.apply(weight, self.rows, self.columns)


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: Any, columns: Any) -> Tensor:
        ctx.columns = columns
        return torch.from_numpy(rows @ weight.detach().numpy())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return torch.from_numpy(ctx.columns @ gradient.contiguous().numpy()), None, None


@dataclass(frozen=True)
class Part:
    X: Features
    Y: Labels


@dataclass(frozen=True)
class Cell:
    """What the networks of one comparison share. The labels of ``test`` are as they come."""

    train: Part
    validation: Part
    test: Part


@lru_cache(maxsize=2)
def _prepared(dataset: str) -> d2.Prepared:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", d2.DataWarning)
        return d2.prepare(d2.load(dataset, repair=dataset.startswith("rcv1")))


@lru_cache(maxsize=2)
def _folds(dataset: str) -> Any:
    kept = _prepared(dataset).data
    try:
        return d2.protocol_folds(kept.name, kept.Y).folds()
    except d2.DataError:  # none are published
        return d2.folds(kept.Y, n_splits=5, seed=0)


def make_cell(
    dataset: str, fold: int, seed: int, noise: Noise, *, standardised: bool = True
) -> Cell:
    """As ``d2ace.train`` makes it, with a validation share of 20 %; then the noise."""
    prepared = _prepared(dataset)
    kept = prepared.data
    fold_rows, test = _folds(dataset)[fold]
    train, validation = d2.validation_split(kept.Y, fold_rows, share=VALIDATION, seed=seed)
    X = prepared.scaled(train).X
    X = _standardised(X, train) if standardised else X
    Y = np.asarray(kept.Y.toarray() if sp.issparse(kept.Y) else kept.Y, np.float32)
    random = np.random.default_rng([zlib.crc32(dataset.encode()), fold, seed])
    noisy = noise.applied(Y[train], random)
    checked = noise.applied(Y[validation], random) if noise.in_validation else Y[validation]
    return Cell(
        Part(Features(X[train]), noisy),
        Part(Features(X[validation]), checked),
        Part(Features(X[test]), Y[test]),
    )
