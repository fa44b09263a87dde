"""CLIF (`reference`) by the paper's protocol, 100 epochs, with Random and with Trim.

In the folder `reproduction`: `python -m trim.clif emotions birds`. Finished runs are kept.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from trim.study import COLUMNS, HERE, KEYS, Table, shorter

import d2ace

REGIME = "CLIF, 100 epochs"
SCORES = {
    "macro_auc": "macro_auc",
    "map": "mean_average_precision",
    "macro_f1_tuned": "macro_f1_tuned",
    "ranking_loss": "ranking_loss",
}


def main(datasets: list[str]) -> None:
    torch.set_num_threads(1)
    table = Table(HERE / "clif.csv", COLUMNS, KEYS)
    for fold in range(5):
        for dataset in datasets:
            key = (dataset, REGIME, str(fold), "0", str(fold))
            if key not in table.done():
                cell = dict(zip(KEYS, key, strict=True))
                table.add([{**cell, **row} for row in pair(dataset, fold)])
                print(*key, flush=True)


def pair(dataset: str, fold: int) -> list[dict[str, Any]]:
    """Random and Trim on one fold; Trim starts in the epoch whose validation scores differ."""
    options = {"fold": fold, "model_options": {"preset": "reference"}}
    random, trim = (d2ace.train(dataset, "clif", name, **options) for name in ("random", "trim"))
    epochs = zip(random.history, trim.history, strict=True)
    apart = [one["epoch"] for one, other in epochs if one["validation"] != other["validation"]]
    return [
        {
            "rule": rule,
            "rate": result.config["learning_rate"],
            "epochs": len(result.history),
            "start": start,
            "best_epoch": result.best_epoch,
            **{ours: shorter(result.test[theirs]) for ours, theirs in SCORES.items()},
        }
        for rule, result, start in (("random", random, 0), ("Trim", trim, min(apart, default=0)))
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
