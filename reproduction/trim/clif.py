"""CLIF (`reference`) with Random and with Trim: as in the paper, with noise, and converged.

In the folder `reproduction`: `python -m trim.clif scene yeast`. Finished runs are kept. `clif.csv`
has the runs with Trim's first trigger, `clif-again.csv` those with the second, and
`clif-rates.csv` those that a dataset's learning rate is chosen by.
"""

from __future__ import annotations

import json
import sys
import warnings
import zlib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from trim.cells import Noise
from trim.study import COLUMNS, HERE, KEYS, REGIMES, Table, shorter

from d2ace.data import DataWarning
from d2ace.training.config import RunConfig
from d2ace.training.fabric import launch, make_fabric
from d2ace.training.problem import Problem, Split
from d2ace.training.result import RunResult
from d2ace.training.run import Run
from d2ace.training.split import make_problem

FOLDS = 3
EPOCHS = 100
PAPER = 1e-4
RATES = (3e-4, 1e-3)
LAST = 0.95
"""A best epoch after this share of all epochs is that of a network which is still learning."""
SCORES = {
    "macro_auc": "macro_auc",
    "map": "mean_average_precision",
    "macro_f1_tuned": "macro_f1_tuned",
    "ranking_loss": "ranking_loss",
}
GIVEN, MOVED = "as they come", "20 % moved"
RATE_COLUMNS = ("dataset", "noise", "rate", "best_epoch", "validation_macro_auc")


@dataclass(frozen=True)
class Regime:
    """How a dataset is changed, and whether the rate is the paper's or the one chosen for it."""

    name: str
    noise: str
    converged: bool


REGIMES_OF_CLIF = (
    Regime("CLIF, 100 epochs", GIVEN, converged=False),
    Regime("CLIF, 100 epochs, 20 % moved", MOVED, converged=False),
    Regime("CLIF, converged, 20 % moved", MOVED, converged=True),
    Regime("CLIF, converged", GIVEN, converged=True),
)


def main(datasets: list[str]) -> None:
    torch.set_num_threads(1)
    table = Table(HERE / "clif-again.csv", COLUMNS, KEYS)
    for fold in range(FOLDS):
        for regime in REGIMES_OF_CLIF:
            for dataset in datasets:
                key = (dataset, regime.name, str(fold), "0", str(fold))
                if key not in table.done():
                    rate = chosen_rate(dataset) if regime.converged else PAPER
                    cell = dict(zip(KEYS, key, strict=True))
                    rows = pair(dataset, fold, rate, regime.noise)
                    table.add([{**cell, **row} for row in rows])
                    print(*key, rate, flush=True)


def chosen_rate(dataset: str) -> float:
    """By Random on fold 0: of the rates that converge, the one with the best validation score."""
    table = Table(HERE / "clif-rates.csv", RATE_COLUMNS, RATE_COLUMNS[:3])
    if not any(row["dataset"] == dataset for row in table.rows()):
        found = []
        for rate in RATES:
            for noise in (GIVEN, MOVED):
                run = trained(dataset, 0, rate, noise, "random")
                score = shorter(run.validation["macro_auc"])
                found.append((dataset, noise, rate, run.best_epoch, score))
        table.add([dict(zip(RATE_COLUMNS, row, strict=True)) for row in found])
    rows = [row for row in table.rows() if row["dataset"] == dataset]
    return max(RATES, key=lambda rate: _merit([row for row in rows if float(row["rate"]) == rate]))


def _merit(rows: list[dict[str, str]]) -> tuple[bool, float]:
    """Whether both runs of a rate converge, and their mean validation Macro-AUC."""
    early = all(int(row["best_epoch"]) <= LAST * EPOCHS for row in rows)
    return early, float(np.mean([float(row["validation_macro_auc"]) for row in rows]))


def pair(dataset: str, fold: int, rate: float, noise: str) -> list[dict[str, Any]]:
    """Random and Trim on one fold; Trim starts in the epoch whose validation scores differ."""
    random, trim = (trained(dataset, fold, rate, noise, name) for name in ("random", "trim"))
    epochs = zip(random.history, trim.history, strict=True)
    apart = [one["epoch"] for one, other in epochs if one["validation"] != other["validation"]]
    return [
        {
            "rule": rule,
            "rate": rate,
            "epochs": len(result.history),
            "start": start,
            **scores(result),
        }
        for rule, result, start in (("random", random, 0), ("Trim", trim, min(apart, default=0)))
    ]


def scores(result: RunResult) -> dict[str, Any]:
    """Of a run's best epoch."""
    found = {ours: shorter(result.test[theirs]) for ours, theirs in SCORES.items()}
    return {"best_epoch": result.best_epoch, **found}


@lru_cache(maxsize=8)
def trained(
    dataset: str, fold: int, rate: float, noise: str, selector: str, start: int | None = None
) -> RunResult:
    """A run as `d2ace.train` makes it, but for the noise; test rows are as they come."""
    config = RunConfig.from_dict(
        {
            "data": dataset,
            "model": "clif",
            "selector": selector,
            "selector_options": {} if start is None else {"start": start},
            "fold": fold,
            "epochs": EPOCHS,
            "learning_rate": rate,
            "model_options": {"preset": "reference"},
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        problem = make_problem(config)
    fabric = make_fabric(1, "cpu", config.precision)
    run = Run(config, noisy(problem, REGIMES[noise], fold), None, None, 1, None)
    return RunResult.from_dict(json.loads(launch(fabric, run)))


def noisy(problem: Problem, noise: Noise, fold: int) -> Problem:
    """The problem with noise in the labels of training and validation rows."""
    random = np.random.default_rng([zlib.crc32(problem.name.encode()), fold, 0])

    def changed(part: Split) -> Split:
        Y = noise.applied(part.Y.toarray(), random)
        return replace(part, Y=sp.csr_matrix(Y, dtype=part.Y.dtype))

    return replace(problem, train=changed(problem.train), validation=changed(problem.validation))


if __name__ == "__main__":
    main(sys.argv[1:])
