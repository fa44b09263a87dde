"""What tables and figures read from stored runs: scores, differences, curves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from d2ace.benchmark.store import StoredRun
from d2ace.evaluation import METRICS
from d2ace.training import still_improving

from .intervals import Pair, over_folds

Array = np.ndarray[Any, np.dtype[np.float64]]
Recording = dict[str, Any]
"""What a run recorded for case studies: the arrays of its ``record.npz``, by name."""


def test_score(run: StoredRun, metric: str) -> float:
    """A run's score on the test fold; NaN where it is undefined."""
    return number((run.result or {}).get("test", {}).get(metric))


def mean_score(runs: Iterable[StoredRun], metric: str) -> float:
    """The mean test score, seeds averaged within folds; without undefined ones, NaN of none."""
    scores = [(run.fold, test_score(run, metric)) for run in runs]
    return over_folds((fold, score) for fold, score in scores if not np.isnan(score))


def paired(metric: str, runs: Iterable[StoredRun], base: Iterable[StoredRun]) -> list[Pair]:
    """Scores minus those of ``base`` on the same dataset, by fold and seed, where both have one."""
    sign = 1.0 if METRICS[metric].higher_is_better else -1.0
    known = {(run.fold, run.seed): test_score(run, metric) for run in base}
    found = [
        Pair(
            run.fold,
            run.seed,
            sign * (test_score(run, metric) - known[run.fold, run.seed]),
            test_to_train(run),
        )
        for run in runs
        if (run.fold, run.seed) in known
    ]
    return [pair for pair in found if not np.isnan(pair.difference)]


def test_to_train(run: StoredRun) -> float:
    """Rows that a run tested over rows that it trained on."""
    rows = (run.result or {})["dataset"]
    return float(rows["test"] / rows["train"])


def rows_of(run: StoredRun) -> list[str]:
    """The checksum of the rows that a run had, in a list; empty where it was not stored."""
    digest = (run.result or {})["dataset"].get("digest")
    return [str(digest)] if digest else []


def was_improving(run: StoredRun) -> bool:
    """Whether a run was still improving when its epochs ended; not where nobody knows."""
    best = (run.result or {}).get("best_epoch")
    return best is not None and still_improving(best, run.config["epochs"])


def curve(run: StoredRun, *keys: str) -> Array:
    """One value per epoch of a run's history; NaN where there is none."""
    values = []
    for epoch in (run.result or {}).get("history") or ():
        value: Any = epoch
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        values.append(number(value))
    return np.array(values, dtype=float)


def number(value: Any) -> float:
    """A float of what JSON holds; NaN for null."""
    return float("nan") if value is None else float(value)


def pairs(runs: tuple[StoredRun, ...]) -> frozenset[tuple[int, int]]:
    """The seeds and folds of runs."""
    return frozenset((run.seed, run.fold) for run in runs)
