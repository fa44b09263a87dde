"""Processor seconds of runs that train as one, over those of the same runs trained one by one.

    python benchmarks/stack.py                  # yeast, 8 methods x 3 seeds of one fold
    python benchmarks/stack.py --width 64 --epochs 20 --rounds 3

Both sides take turns, with one thread in one process, folders and checkpoints included.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from time import process_time

import torch

from d2ace.training import RunConfig, StackedRun, train_config, train_stack

METHODS = ("random", "active", "recent", "dihcl", "balance", "hard_imb", "ml_unc", "d2ace")


def raise_if(error: Exception | None) -> None:
    if error is not None:
        raise error


def stacked(configs: list[RunConfig], folder: Path) -> float:
    started = process_time()
    places = enumerate(configs)
    runs = [StackedRun(one, folder / f"one{n}", lambda _: None, raise_if) for n, one in places]
    train_stack(runs, threads=1)
    return process_time() - started


def separate(configs: list[RunConfig], folder: Path) -> float:
    started = process_time()
    for number, config in enumerate(configs):
        train_config(config, out=folder / f"each{number}", threads=1, accelerator="cpu")
    return process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="yeast")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    options = {"h": asked.width}
    configs = [
        RunConfig(asked.data, "mlp", method, model_options=options, seed=seed, epochs=asked.epochs)
        for seed in range(asked.seeds)
        for method in METHODS
    ]
    with tempfile.TemporaryDirectory() as folder:  # imports, and what is read once
        separate([RunConfig(asked.data, "mlp", "d2ace", epochs=1)], Path(folder))
    ratios = []
    for _ in range(asked.rounds):
        with tempfile.TemporaryDirectory() as folder:
            one = stacked(configs, Path(folder)) / len(configs)
            each = separate(configs, Path(folder)) / len(configs)
        ratios.append(one / each)
        print(f"{one:.3f} s a run stacked, {each:.3f} s alone: {one / each:.3f}", flush=True)
    print(f"median of {asked.rounds}: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
