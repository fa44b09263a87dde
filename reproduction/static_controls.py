"""Is it only rows with many labels? Static draws and constant pressures beside D2ACE.

Run it with `python reproduction/static_controls.py`. A cell (dataset, fold, method) that is
in `static_controls.csv` is not run again, so it can be stopped at any time. The rules are in
`rules.md`, part 3.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from trim.cells import Cell, Noise, make_cell
from trim.networks import DROPOUT, HIDDEN, Network, batch_size
from trim.study import Table, shorter

from d2ace import D2ACE, HardImb, Random
from d2ace.selectors import Selector

HERE = Path(__file__).resolve().parent
DATASETS = ("scene", "yeast", "enron", "bibtex")
FOLDS = 5
EPOCHS, WARMUP, RATE = 100, 3, 1e-3
BUDGETS = (10, 25, 50, 100)
BEST = "best"
"""The budget of the epoch with the best validation Macro-AUC."""
SCORES = ("macro_auc", "map", "macro_f1_tuned", "ranking_loss")
KEYS = ("dataset", "fold", "method")
COLUMNS = (*KEYS, "budget", "epoch", *SCORES)


class Static(Selector):
    """Draws rows in proportion to weights that never change."""

    name = "static"

    def __init__(self, labels: Any, weight: Tensor, **common: Any) -> None:
        super().__init__(labels, **common)
        self.weight = weight.to(torch.float64)

    def distribution(self, epoch: int) -> Tensor:
        return self.weight / self.weight.sum()


class ConstantD2ACE(D2ACE):
    """D2ACE whose pressure does not fade."""

    name = "constant_d2ace"

    def selection_pressure(self, epoch: int) -> float:
        return float(self.pressure or 1.0)


def number_of_labels(Y: Tensor) -> Tensor:
    """One more than the labels of each row, so that every row can be drawn."""
    return 1.0 + Y.sum(1)


def number_of_rare_labels(Y: Tensor) -> Tensor:
    """One more than the labels of each row that are of the rarer half."""
    rare = Y.sum(0).argsort(stable=True)[: Y.shape[1] // 2]
    return 1.0 + Y[:, rare].sum(1)


METHODS: dict[str, Callable[..., Selector]] = {
    "Random": lambda Y, X, **how: Random(Y, **how),
    "D2ACE": lambda Y, X, **how: D2ACE(Y, X, **how),
    "number of labels": lambda Y, X, **how: Static(Y, number_of_labels(_tensor(Y)), **how),
    "number of rare labels": lambda Y, X, **how: Static(
        Y, number_of_rare_labels(_tensor(Y)), **how
    ),
    "uniform draws": lambda Y, X, **how: Static(Y, torch.ones(len(Y)), **how),
    "Hard-Imb": lambda Y, X, **how: HardImb(Y, X, **how),
    "D2ACE, pressure 2": lambda Y, X, **how: ConstantD2ACE(Y, X, pressure=2.0, **how),
    "D2ACE, pressure 4": lambda Y, X, **how: ConstantD2ACE(Y, X, pressure=4.0, **how),
    "D2ACE, pressure 10": lambda Y, X, **how: ConstantD2ACE(Y, X, pressure=10.0, **how),
}


def _tensor(Y: Any) -> Tensor:
    return torch.as_tensor(Y, dtype=torch.float64)


def run(cell: Cell, method: str, seed: int, epochs: int = EPOCHS) -> list[dict[str, Any]]:
    """Train a network with a method's batches; test scores at every budget and at the best."""
    features = cell.train.X.csr if cell.train.X.dense is None else cell.train.X.dense.numpy()
    how = {"batch_size": batch_size(len(cell.train.Y)), "epochs": epochs, "warmup": WARMUP}
    selector = METHODS[method](cell.train.Y, features, seed=seed, **how)
    network = Network.new(cell, seed, RATE)
    found = []
    for epoch in range(1, epochs + 1):
        masks = torch.Generator().manual_seed(1_000_003 * (seed + 1) + epoch)
        for numbers in selector:
            rows = torch.tensor(numbers)
            kept = torch.rand(len(numbers), HIDDEN, generator=masks) >= DROPOUT
            mask = kept.float() / (1 - DROPOUT)
            logits, _ = network.step(cell.train.X.take(numbers), rows, mask, None)
            selector.observe(rows, logits=logits)
        network.validate(cell, 0.0)
        if epoch in BUDGETS:
            now = [value.detach() for value in network.parameters]
            found.append(_row(str(epoch), network.tested(cell, (epoch, now))))
    return [*found, _row(BEST, network.tested(cell))]


def _row(budget: str, tested: dict[str, float]) -> dict[str, Any]:
    scores = {score: shorter(tested[score]) for score in SCORES}
    return {"budget": budget, "epoch": tested["best_epoch"], **scores}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folds", type=int, default=FOLDS, help="how many, from the first")
    parser.add_argument("--only", nargs="*", default=DATASETS, help="datasets")
    given = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(HERE / "static_controls.csv", COLUMNS, KEYS)
    done = table.done()
    for fold in range(given.folds):
        for dataset in given.only:
            wanted = [one for one in METHODS if (dataset, str(fold), one) not in done]
            cell = make_cell(dataset, fold, 0, Noise()) if wanted else None
            for method in wanted:
                rows = run(cell, method, seed=1000 * fold)
                key = dict(zip(KEYS, (dataset, fold, method), strict=True))
                table.add([{**key, **row} for row in rows])
                print(dataset, fold, method, rows[-1]["macro_auc"], flush=True)


if __name__ == "__main__":
    main()
