"""Drawing an epoch where one row holds nearly all probability, against drawing it uniformly.

python benchmarks/drawing.py
"""

from __future__ import annotations

import math
import statistics
import time

import torch

from d2ace.selectors import drawing, probability

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


def main() -> None:
    print("| rows | uniform, s | one row holds nearly all, s | ratio |")
    print("|---:|---:|---:|---:|")
    for n in (2_000, 30_000, 100_000, 400_000, 1_600_000):
        peaked = torch.full((n,), math.exp(-50.0), dtype=torch.float64)  # DIHCL's least
        peaked[n // 3] = 1.0
        uniform = seconds(probability.uniform(n))
        uneven = seconds(peaked / peaked.sum())
        print(f"| {n:,} | {uniform:.3f} | {uneven:.3f} | {uneven / uniform:.0f} |")


if __name__ == "__main__":
    main()
