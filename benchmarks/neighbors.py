"""What finding neighbours costs: processor seconds and recall, by size and method.

    python benchmarks/neighbors.py [--rows 50000 --features 8 32 128] [--threads 2]

"clusters" stands for real features (rows around common centres), "noise" for the hardest ones:
independent normal numbers, among which nothing is near.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from d2ace.selectors.neighbors import search


def features(kind: str, n: int, d: int) -> torch.Tensor:
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((n, d), dtype=np.float32)
    if kind == "clusters":
        centres = 2 * rng.standard_normal((max(2, n // 50), d), dtype=np.float32)
        noise += centres[rng.integers(0, len(centres), n)]
    return torch.from_numpy(noise)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 50_000])
    parser.add_argument("--features", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--methods", nargs="+", default=["exact", "tree", "approximate"])
    parser.add_argument("--kinds", nargs="+", default=["clusters", "noise"])
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print("| rows | features | kind | method | processor s | wall s | recall |")
    print("|---:|---:|---|---|---:|---:|---:|")
    for n in given.rows:
        for d in given.features:
            for kind in given.kinds:
                x = features(kind, n, d)
                for method in given.methods:
                    if method == "tree" and d > 10:
                        continue
                    processor, wall = time.process_time(), time.perf_counter()
                    found = search(x, 6, method=method)
                    processor = time.process_time() - processor
                    wall = time.perf_counter() - wall
                    cells = (f"{n:,}", d, kind, method, f"{processor:.1f}", f"{wall:.1f}")
                    print(f"| {' | '.join(map(str, cells))} | {found.recall:.3f} |", flush=True)


if __name__ == "__main__":
    main()
