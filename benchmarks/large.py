"""What selection costs as n, q and the labels of a row grow: processor seconds and memory.

    python benchmarks/large.py                                       # small ones (minutes)
    python benchmarks/large.py --rows 1000000 --labels 1000 --methods random hard_imb

A line is a process of its own, with one thread unless you say. Features are rows around common
centres. "epoch" is observing all n rows in batches of 1,024, recomputing, and drawing n rows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import d2ace

BATCH = 1024
SIZES = ["rows", "labels", "per_row", "features"]


def labels(n: int, q: int, per_row: int) -> sp.csr_array:
    """So many labels in every row; rows 0 to 49 and so on have the same first one."""
    rng = np.random.default_rng(0)
    columns = rng.integers(0, q, (n, per_row))
    columns[:, 0] = np.arange(n) // 50 % q
    pointer, ones = np.arange(n + 1) * per_row, np.ones(n * per_row, dtype=np.uint8)
    matrix = sp.csr_array((ones, columns.ravel(), pointer), shape=(n, q))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def features(n: int, d: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(1)
    centres = 2 * rng.standard_normal((max(2, n // 50), d), dtype=np.float32)
    return centres[np.arange(n) // 50 % len(centres)] + rng.standard_normal((n, d), np.float32)


def peak() -> float:
    """The most memory this process has had, in GiB."""
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 2**30


def measure(given: dict[str, Any]) -> dict[str, float]:
    """One method at one size."""
    torch.set_num_threads(given["threads"])
    n, q = given["rows"], given["labels"]
    y = labels(n, q, given["per_row"])
    x = features(n, given["features"]) if given["features"] else None
    options = {} if given["state"] is None else {"state": given["state"]}
    seconds = {"before": peak()}
    start = time.process_time()
    selector = d2ace.make_selector(
        given["method"], y, x, warmup=1, epochs=100, batch_size=BATCH, **options
    )
    seconds["construction"] = time.process_time() - start
    seconds["constructed"] = peak()
    logits = torch.randn(16, BATCH, q)
    batches = list(selector)
    start = time.process_time()
    for number, batch in enumerate(batches):
        selector.observe(batch, logits=logits[number % 16, : len(batch)])
    selector.flush()
    seconds["observe"] = time.process_time() - start
    for name in ("recompute 1", "recompute"):  # what is made once is in the first
        start = time.process_time()
        _ = selector.probabilities
        seconds[name] = time.process_time() - start
    start = time.process_time()
    count = sum(1 for _ in selector)
    seconds["draw"] = time.process_time() - start - seconds["recompute"]
    seconds["epoch"] = seconds["observe"] + seconds["recompute"] + seconds["draw"]
    selector.loss_weight(batches[0])  # Balance's mask
    seconds["peak"] = peak()
    return seconds | {"batches": count, "recall": getattr(selector, "neighbor_recall", 1.0)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 30_000, 100_000])
    parser.add_argument("--labels", type=int, nargs="+", default=[30, 100])
    parser.add_argument("--per-row", type=int, nargs="+", default=[3])
    parser.add_argument("--features", type=int, nargs="+", default=[0], help="0: none")
    parser.add_argument("--methods", nargs="+", default=["d2ace"])
    parser.add_argument("--state", choices=["full", "compact"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(json.loads(given.one))))
        return
    shown = ["construction", "observe", "recompute 1", "recompute", "draw", "epoch"]
    titles = ["method", "n", "q", "labels a row", "d", *(f"{name} s" for name in shown)]
    print(f"| {' | '.join(titles)} | ns a pair | GiB with data | constructed | peak |")
    print("|---" * (len(titles) + 4) + "|")
    sizes = [getattr(given, name) for name in SIZES]
    for method, *size in itertools.product(given.methods, *sizes):
        one = dict(zip(SIZES, size, strict=True))
        task = json.dumps({"method": method, "state": given.state, "threads": given.threads, **one})
        words = [sys.executable, __file__, "--one", task]
        done = subprocess.run(words, stdout=subprocess.PIPE, check=True)  # noqa: S603
        found = json.loads(done.stdout)
        pair = found["epoch"] / (one["rows"] * one["labels"]) * 1e9
        cells = [method, *(f"{value:,}" for value in one.values())]
        cells += [f"{found[name]:.2f}" for name in shown]
        cells += [f"{pair:.1f}", *(f"{found[at]:.2f}" for at in ("before", "constructed", "peak"))]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
