"""Stratified folds: speed and balance beside the package iterative-stratification, in one run.

    python benchmarks/folds.py                 # both parts
    python benchmarks/folds.py --repeats 7     # steadier ratio

Speed: five folds of n = 44,000 rows and q = 101 labels (the size of mediamill), both given the same
dense matrix; the two take turns, and the ratio is that of the medians. Balance: mean relative error
of label rates over five folds on every dataset at hand (set D2ACE_DATA), mean over seeds; the floor
is the least that whole rows allow. Processor time, so that neighbours on the machine matter less.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from iterstrat.ml_stratifiers import MultilabelStratifiedKFold

from d2ace.data import DataError, balance_error, catalogue, fold_numbers, load, make_multilabel

PROJECT = Path(__file__).resolve().parents[1]
SPLITS = 5


def reference(Y: np.ndarray, seed: int) -> np.ndarray:
    numbers = np.empty(len(Y), dtype=np.int64)
    splitter = MultilabelStratifiedKFold(SPLITS, shuffle=True, random_state=seed)
    for fold, (_, test) in enumerate(splitter.split(np.zeros(len(Y)), Y)):
        numbers[test] = fold
    return numbers


def seconds(action: Callable[..., Any], *arguments: Any) -> float:
    start = time.process_time()
    action(*arguments)
    return time.process_time() - start


def floor(Y: np.ndarray) -> float:
    """Error of exactly equal folds in which no label's count is off by a whole row."""
    count = Y.sum(axis=0, dtype=np.int64)
    count = count[count > 0]
    over = count % SPLITS
    return float(np.mean(2 * over * (SPLITS - over) / (SPLITS * count)))


def speed(repeats: int) -> None:
    print(f"{'speed':24}{'iterstrat s':>12}{'d2ace s':>10}{'ratio':>8}")
    for name, correlation in (("independent labels", 0.0), ("correlated labels", 0.7)):
        Y = make_multilabel(44_000, 1, 101, cardinality=4.4, correlation=correlation).Y
        fold_numbers(Y[:1000], SPLITS)
        theirs, ours = [], []
        for seed in range(repeats):
            theirs.append(seconds(reference, Y, seed))
            ours.append(seconds(fold_numbers, Y, SPLITS, seed))
        old, new = statistics.median(theirs), statistics.median(ours)
        print(f"{name:24}{old:12.3f}{new:10.3f}{old / new:8.1f}")


def balance(seeds: int) -> None:
    print(f"\n{'balance':20}{'floor':>9}{'iterstrat':>11}{'d2ace':>9}{'ratio':>8}{'sizes':>9}")
    for name in catalogue.catalogue():
        try:
            data = load(name, cache=False)
        except DataError as absent:
            print(f"{name:20} {absent}")
            continue
        Y = sp.csr_matrix(data.Y).toarray()
        theirs = statistics.mean(balance_error(Y, reference(Y, seed)) for seed in range(seeds))
        found = [fold_numbers(Y, SPLITS, seed) for seed in range(seeds)]
        ours = statistics.mean(balance_error(Y, numbers) for numbers in found)
        off = max(np.abs(np.bincount(numbers) * SPLITS / len(Y) - 1).max() for numbers in found)
        print(
            f"{name:20}{floor(Y):9.4f}{theirs:11.4f}{ours:9.4f}{ours / theirs:8.3f}{off:9.2%}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="runs for the speed ratio")
    parser.add_argument("--seeds", type=int, default=3, help="seeds for the balance error")
    arguments = parser.parse_args()
    local = PROJECT.parent / "shared" / "data"
    if local.is_dir():
        os.environ.setdefault("D2ACE_DATA", str(local))
    warnings.simplefilter("ignore")  # what the datasets warn of is beside the point here
    speed(arguments.repeats)
    balance(arguments.seeds)


if __name__ == "__main__":
    main()
