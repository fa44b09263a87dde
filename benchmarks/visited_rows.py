"""Which share of its training rows a method visits in an epoch, on real data: a markdown table.

    python benchmarks/visited_rows.py                  # yeast and bibtex, 100 epochs each (minutes)
    python benchmarks/visited_rows.py --datasets yeast

Trains a small MLP (one layer of 128 units) by the paper's protocol (fold 0, seed 0, warm-up of 10
epochs) and counts the distinct rows of each epoch: their mean share over all epochs, the first ten
selective ones, and the last ten.
"""

from __future__ import annotations

import argparse
from typing import Any

import d2ace

WARMUP, SPAN = 10, 10
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("dihcl", {"preset": "original"}),
    ("d2ace", {"draw": "epoch"}),
    ("d2ace", {"draw": "once"}),
]
"""Options that change what an epoch visits, beside every method as it is."""


def label(method: str, options: dict[str, Any]) -> str:
    return ", ".join([f"`{method}`", *(f"`{name}={value!r}`" for name, value in options.items())])


def shares(dataset: str, method: str, options: dict[str, Any], epochs: int) -> list[float]:
    """The share of the training rows that each epoch visited."""
    result = d2ace.train(
        dataset,
        "mlp",
        method,
        epochs=epochs,
        warmup=WARMUP,
        seed=0,
        threads=1,
        model_options={"h": 128, "L": 1},
        selector_options=options,
    )
    rows = result.dataset["train"]
    return [entry["distinct_rows"] / rows for entry in result.history]


def mean(values: list[float]) -> str:
    return f"{100 * sum(values) / len(values):.0f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default="yeast,bibtex")
    parser.add_argument("--epochs", type=int, default=100)
    arguments = parser.parse_args()
    first, last = f"{WARMUP + 1} to {WARMUP + SPAN}", f"last {SPAN}"
    runs = [(method, {}) for method in d2ace.SELECTORS] + VARIANTS
    for dataset in arguments.datasets.split(","):
        print(f"\n| {dataset} | all epochs | epochs {first} | {last} |\n|---|---:|---:|---:|")
        for method, options in runs:
            found = shares(dataset, method, options, arguments.epochs)
            parts = (found, found[WARMUP : WARMUP + SPAN], found[-SPAN:])
            row = (label(method, options), *map(mean, parts))
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
