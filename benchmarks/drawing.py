"""Drawing an epoch: the three ways beside each other, and where one row holds nearly everything.

python benchmarks/drawing.py

Processor seconds of one thread, medians of a few repeats in turns.
"""

from __future__ import annotations

import math
import statistics
import time

import torch

from d2ace.selectors import drawing, probability, whole_epochs

BATCH = 128
BATCHES = 200  # of each epoch; all batches cost the same
REPEATS = 3


def seconds(p: torch.Tensor) -> float:
    sizes = drawing.batch_sizes(len(p), BATCH)[:BATCHES]
    spent = []
    for repeat in range(REPEATS):
        start = time.process_time()
        for _ in drawing.weighted(p, sizes, (repeat, 1)):
            pass
        spent.append((time.process_time() - start) / len(sizes) * -(-len(p) // BATCH))
    return statistics.median(spent)


def epoch_seconds(p: torch.Tensor) -> dict[str, float]:
    """Seconds of a whole epoch of n rows, drawn to its last batch, by each way."""
    sizes = drawing.batch_sizes(len(p), BATCH)
    ways = {"batch": drawing.weighted, "epoch": whole_epochs.systematic, "once": whole_epochs.once}
    spent: dict[str, list[float]] = {draw: [] for draw in ways}
    for repeat in range(REPEATS):
        for draw, way in ways.items():
            start = time.process_time()
            for _ in way(p, sizes, (repeat, 1)):
                pass
            spent[draw].append(time.process_time() - start)
    return {draw: statistics.median(seconds) for draw, seconds in spent.items()}


def three_ways() -> None:
    print("| rows | P | batch, s | epoch, ratio | once, ratio |")
    print("|---:|---|---:|---:|---:|")
    for n in (2_000, 35_000, 1_600_000):
        steps = torch.arange(n, dtype=torch.float64)
        for name, pressure in (("uniform", 1.0), ("pressure 100", 100.0)):
            found = epoch_seconds(probability.quantised_probability(steps, pressure))
            ratios = [found[draw] / found["batch"] for draw in ("epoch", "once")]
            cells = " | ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"| {n:,} | {name} | {found['batch']:.4f} | {cells} |", flush=True)


def one_giant() -> None:
    print("| rows | uniform, s | one row holds nearly all, s | ratio |")
    print("|---:|---:|---:|---:|")
    for n in (2_000, 30_000, 100_000, 400_000, 1_600_000):
        peaked = torch.full((n,), math.exp(-50.0), dtype=torch.float64)  # DIHCL's least
        peaked[n // 3] = 1.0
        uniform = seconds(probability.uniform(n))
        uneven = seconds(peaked / peaked.sum())
        print(f"| {n:,} | {uniform:.3f} | {uneven:.3f} | {uneven / uniform:.0f} |")


def main() -> None:
    three_ways()
    print()
    one_giant()


if __name__ == "__main__":
    main()
