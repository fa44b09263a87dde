"""Prototypes of HST: what each label typically sees where it is present, as cluster centres."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .hst_losses import unit


class Clustering(NamedTuple):
    """How hard k-means tries."""

    rows: float
    """How many positives of a label are clustered; a uniform sample if it has more."""
    starts: int
    """Of these the result with the least sum of squared distances is taken."""
    iterations: int


CLUSTERINGS = {"quick": Clustering(5000, 1, 30), "thorough": Clustering(math.inf, 10, 300)}
"""Ten starts of 300 iterations over all rows: scikit-learn's defaults when HST was published."""


class Reservoir:
    """At most ``limit`` vectors of each label, every one seen with the same chance to be kept."""

    def __init__(self, n_labels: int, seed: int, limit: float = math.inf) -> None:
        self.limit = limit
        self._rows: list[list[Tensor]] = [[] for _ in range(n_labels)]
        self._seen = [0] * n_labels
        self._random = np.random.default_rng(seed)

    def add(self, semantic: Tensor, y: Tensor) -> None:
        """See the vectors F_bj [B, q, h] of the pairs with y_bj = 1."""
        present = y > 0.5
        vectors = semantic[present].float().cpu()
        for vector, label in zip(vectors, present.nonzero()[:, 1].tolist(), strict=True):
            rows = self._rows[label]
            self._seen[label] += 1
            if len(rows) < self.limit:
                rows.append(vector.clone())  # else all vectors of the batch would stay in memory
            elif (place := self._random.integers(self._seen[label])) < self.limit:
                rows[place] = vector.clone()

    def rows(self, label: int) -> Tensor:
        """What was kept of a label [m, h]."""
        rows = self._rows[label]
        return torch.stack(rows) if rows else torch.empty(0, 0)


def mean_centres(
    reservoir: Reservoir, n_labels: int, width: int, clusters: int, how: Clustering
) -> Tensor:
    """π̄ [q, h]: for each label the mean direction of its centres; zero where it has no positives.

    The losses average cosines over the centres, so that this mean is all they need.
    """
    result = torch.zeros(n_labels, width)
    generator = torch.Generator().manual_seed(0)
    for label in range(n_labels):
        rows = reservoir.rows(label)
        if len(rows):
            result[label] = unit(kmeans(rows, clusters, generator, how)).mean(0)
    return result


def kmeans(rows: Tensor, clusters: int, generator: torch.Generator, how: Clustering) -> Tensor:
    """Centres [min(clusters, m), h] of rows [m, h]: k-means++ seeds, then Lloyd's iterations."""
    if len(rows) <= clusters:
        return rows
    results = [
        _lloyd(rows, _seeds(rows, clusters, generator), how.iterations) for _ in range(how.starts)
    ]
    return results[0] if len(results) == 1 else min(results, key=lambda one: _spread(rows, one))


def _spread(rows: Tensor, centres: Tensor) -> float:
    """The sum of squared distances of rows to their nearest centres."""
    return float(torch.cdist(rows, centres).min(1).values.double().square().sum())


def _lloyd(rows: Tensor, centres: Tensor, iterations: int) -> Tensor:
    """Move centres to the means of the rows nearest to them until no row changes its centre."""
    assigned = torch.full((len(rows),), -1)
    for _ in range(iterations):
        nearest = torch.cdist(rows, centres).argmin(1)
        if torch.equal(nearest, assigned):
            break
        assigned = nearest
        counts = torch.bincount(assigned, minlength=len(centres))[:, None]
        sums = torch.zeros_like(centres).index_add_(0, assigned, rows)
        centres = torch.where(counts > 0, sums / counts.clamp_min(1), centres)
    return centres


def _seeds(rows: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """Rows far from each other: each drawn with a chance ∝ its squared distance to the others."""
    chance = torch.rand(clusters, generator=generator, dtype=torch.float64)
    chosen = [int(chance[0] * len(rows))]
    distance = torch.full((len(rows),), torch.inf, dtype=torch.float64)
    for step in range(1, clusters):
        distance = torch.minimum(distance, (rows - rows[chosen[-1]]).double().square().sum(1))
        mass = distance.cumsum(0)
        place = int(torch.searchsorted(mass, chance[step] * mass[-1], right=True))
        chosen.append(min(place, len(rows) - 1))  # all rows taken: any will do
    return rows[chosen]
