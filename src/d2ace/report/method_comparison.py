"""The methods of one study with one model, side by side on every dataset."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from d2ace.benchmark.store import StoredRun

from .intervals import Pair, over_folds
from .method_names import BASELINE, order
from .naming import dataset_names
from .run_values import Array, mean_score, paired, rows_of, test_score
from .wording import ranging

DIGITS = 4
"""Decimals of a printed score. Ranks are those of the printed scores, as in the paper."""
_TRIED = 1000  # sets of methods to search for the largest block

Scores = dict[str, dict[str, float]]
"""Dataset -> method -> score."""


@dataclass(frozen=True)
class MethodComparison:
    """The finished runs of one study with one model, by dataset and method."""

    study: str
    model: str
    cells: dict[tuple[str, str], tuple[StoredRun, ...]]

    @property
    def heading(self) -> str:
        """What is compared: the model, and the study unless it is the main one."""
        return self.model if self.study == "main" else f"{self.model}, {self.study}"

    @property
    def datasets(self) -> list[str]:
        """Datasets, by name."""
        return sorted({dataset for dataset, _ in self.cells})

    @property
    def methods(self) -> list[str]:
        """Methods, in the paper's order."""
        return order(method for _, method in self.cells)

    @property
    def every_run(self) -> list[StoredRun]:
        """The runs of all cells."""
        return [run for runs in self.cells.values() for run in runs]

    def runs(self, dataset: str, method: str) -> tuple[StoredRun, ...]:
        """The runs of a cell by seed and fold; none is empty."""
        return self.cells.get((dataset, method), ())

    def values(self, metric: str, dataset: str, method: str) -> Array:
        """Test scores of a cell, without undefined ones."""
        scores = [test_score(run, metric) for run in self.runs(dataset, method)]
        return np.array([score for score in scores if not np.isnan(score)])

    def means(self, metric: str) -> Scores:
        """Printed mean scores; a cell without a defined score is missing."""
        table: Scores = {dataset: {} for dataset in self.datasets}
        for dataset in self.datasets:
            for method in self.methods:
                mean = mean_score(self.runs(dataset, method), metric)
                if not np.isnan(mean):
                    table[dataset][method] = round(mean, DIGITS)
        return table

    def block(self, metric: str) -> Scores:
        """The largest part of `means` without a gap; ranks and tests need one.

        Largest by cells, so that neither a dataset with few methods nor a method with few
        datasets empties it; two methods go before one alone. Methods that some datasets have in
        common are tried, which are few unless gaps lie everywhere; then the most promising.
        """
        table = self.means(metric)

        def size(methods: frozenset[str]) -> tuple[bool, int, int, list[str]]:
            held = sum(methods <= set(row) for row in table.values())
            return len(methods) > 1, held * len(methods), len(methods), sorted(methods)

        choices: set[frozenset[str]] = set()
        for kind in sorted({frozenset(row) for row in table.values()}, key=size, reverse=True):
            choices |= {kind} | {kind & other for other in choices}
            if len(choices) > _TRIED:
                choices = set(heapq.nlargest(_TRIED, choices, key=size))
        best = max(choices, key=size, default=frozenset())
        whole = [dataset for dataset, row in table.items() if best and best <= set(row)]
        block = {dataset: self._common_means(metric, dataset, sorted(best)) for dataset in whole}
        return {dataset: row for dataset, row in block.items() if row}

    def _common_means(self, metric: str, dataset: str, methods: list[str]) -> dict[str, float]:
        """Printed means over the folds and seeds that all the methods have; none is empty."""
        scores = {
            method: {
                (run.fold, run.seed): test_score(run, metric) for run in self.runs(dataset, method)
            }
            for method in methods
        }
        common = set.intersection(
            *({pair for pair, score in own.items() if score == score} for own in scores.values())
        )
        if not common:
            return {}
        return {
            method: round(
                over_folds((fold, own[fold, seed]) for fold, seed in sorted(common)), DIGITS
            )
            for method, own in scores.items()
        }

    def fair(self, metric: str, dataset: str) -> bool:
        """Whether all methods on a dataset have scores of the same folds and seeds."""
        cells = [self.runs(dataset, method) for method in self.methods]
        scored = [
            frozenset((run.fold, run.seed) for run in runs if not np.isnan(test_score(run, metric)))
            for runs in cells
        ]
        return len({own for own in scored if own}) <= 1

    def other_rows(self, datasets: Iterable[str]) -> list[str]:
        """Those of these datasets where methods had other rows on the same fold and seed."""
        return [dataset for dataset in datasets if self._had_other_rows(dataset)]

    def _had_other_rows(self, dataset: str) -> bool:
        had: dict[tuple[int, int], set[str]] = {}
        for method in self.methods:
            for run in self.runs(dataset, method):
                had.setdefault((run.fold, run.seed), set()).update(rows_of(run))
        return any(len(digests) > 1 for digests in had.values())

    def differences(
        self, metric: str, method: str, baseline: str = BASELINE, datasets: Iterable[str] = ()
    ) -> list[list[Pair]]:
        """Score minus the baseline's, dataset by dataset; those without a pair are left out."""
        found = [
            paired(metric, self.runs(dataset, method), self.runs(dataset, baseline))
            for dataset in datasets or self.datasets
        ]
        return [pairs for pairs in found if pairs]

    def spread(self, datasets: Iterable[str] = ()) -> str:
        """How many folds and seeds a cell has, in words."""
        wanted = set(datasets or self.datasets)
        cells = [runs for (dataset, _), runs in self.cells.items() if dataset in wanted]
        folds = [len({run.fold for run in runs}) for runs in cells]
        seeds = [len({run.seed for run in runs}) for runs in cells]
        return f"{ranging(folds, 'fold')} and {ranging(seeds, 'seed')}"


def by_model(runs: list[StoredRun]) -> list[MethodComparison]:
    """One comparison per model."""
    names = dataset_names(runs)
    found: dict[str, dict[tuple[str, str], dict[tuple[int, int], StoredRun]]] = {}
    for run in runs:
        cell = found.setdefault(run.model, {}).setdefault((names[run.key], run.method), {})
        # The same run with and without a recording gives the same scores: it counts once.
        cell.setdefault((run.seed, run.fold), run)
    return [
        MethodComparison(
            study=runs[0].study,
            model=model,
            cells={
                where: tuple(cell[key] for key in sorted(cell))
                for where, cell in sorted(cells.items())
            },
        )
        for model, cells in sorted(found.items())
    ]
