"""What one selective epoch costs, method by method, in units of copying eight n x q matrices.

    python benchmarks/selection.py                     # all four sizes, all methods (minutes)
    python benchmarks/selection.py --sizes 2 --methods d2ace,ml_unc --threads 1 --state compact
    python benchmarks/selection.py --information       # ML-Unc's mutual information, many labels

Observing all n rows in batches of 128, recomputing the distribution, drawing the epoch. The unit is
measured in the same run, between the methods, so that a noisy machine slows both alike. With one
thread, times are processor seconds. To compare two versions, run the script with each in turn on
PYTHONPATH.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import d2ace

SIZES = [(2_000, 14, 4.2), (6_000, 159, 2.4), (35_000, 101, 4.4), (123_287, 80, 2.9)]
BATCH = 128


def seconds(action: Callable[[], Any]) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    action()
    return clock() - start


def problem(n: int, q: int, cardinality: float) -> tuple[sp.csr_array, np.ndarray, torch.Tensor]:
    """Labels with a long tail and the wanted cardinality, neighbours that share labels, logits."""
    rng = np.random.default_rng(0)
    popularity = 1.0 / np.arange(1, q + 1) ** 0.8
    share = np.minimum(popularity * (cardinality / popularity.sum()), 0.95)
    for _ in range(20):  # what the cap took away goes to the other labels
        share = np.minimum(share * cardinality / share.sum(), 0.95)
    labels = sp.csr_array((rng.random((n, q)) < share).astype(np.uint8))
    # neighbours tend to have the same labels: take them from a sort by label set
    order = np.lexsort(labels.toarray().T[: min(q, 16)])
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    offsets = np.array([-3, -2, -1, 1, 2, 3])
    neighbors = order[(place[:, None] + offsets) % n]
    return labels, neighbors, torch.randn(n, q)


def arrays_of(thing: Any, seen: set[int] | None = None) -> Iterator[int]:
    """Bytes of every tensor and array a selector holds on to, its input features aside."""
    seen = set() if seen is None else seen
    if isinstance(thing, dict):
        for name, value in thing.items():
            if name not in ("features", "_workspace", "scratch"):  # the caller's; and room
                yield from arrays_of(value, seen)
        return
    place = id(thing)
    if isinstance(thing, torch.Tensor) and thing.numel():
        place = thing.data_ptr()  # arrays and tensors may be the same memory
    elif isinstance(thing, np.ndarray) and thing.size:
        place = thing.ctypes.data
    if place in seen:
        return
    seen.add(place)
    if isinstance(thing, torch.Tensor):
        yield thing.numel() * thing.element_size()
    elif isinstance(thing, np.ndarray):
        yield thing.nbytes
    elif hasattr(thing, "__dict__"):
        yield from arrays_of(vars(thing), seen)


def peak_above(action: Callable[[], Any]) -> float | None:
    """Bytes of memory an action needs beyond what was there before (Linux only)."""

    def status(field: str) -> int:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

    try:
        gc.collect()
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        before = status("VmRSS")
        action()
        return max(0, status("VmHWM") - before)
    except OSError:
        return None


def measure(
    name: str, labels: Any, neighbors: Any, logits: torch.Tensor, repeats: int, given: dict
) -> dict:
    n, q = logits.shape
    options = dict(given)
    if name in ("d2ace", "hard_imb"):
        options["neighbors"] = neighbors
    if name == "hard_imb":
        options["neighbors"] = neighbors[:, :5]
    if name == "trim":
        options["start"] = 3  # it would wait for a validation loss, and cost less until then
    setup = time.perf_counter()
    selector = d2ace.make_selector(name, labels, batch_size=BATCH, warmup=2, **options)
    setup = time.perf_counter() - setup
    batches = torch.randperm(n).split(BATCH)
    predictions = [logits[rows] for rows in batches]

    def observe() -> None:
        for rows, values in zip(batches, predictions, strict=True):
            selector.observe(rows, logits=values)
            selector.loss_weight(rows)  # what a training loop calls: Balance works here
        selector.flush()

    def recompute() -> None:
        selector.begin_epoch(5)  # Trim chooses its pairs here
        _ = selector.probabilities

    source = [torch.rand(n, q) for _ in range(8)]
    target = [torch.empty(n, q) for _ in range(8)]

    def copy() -> None:
        for into, matrix in zip(target, source, strict=True):
            into.copy_(matrix)

    for _ in range(6):  # so often that all the memory of a history has been written to
        for _ in selector:
            pass
        observe()
    selector.set_epoch(5)
    drawn = iter(selector)
    next(drawn)  # a selective epoch is under way, as loss_weight and DIHCL need it
    times: dict[str, list[float]] = {"copy": [], "observe": [], "recompute": [], "draw": []}
    for _ in range(repeats):
        times["copy"].append(min(seconds(copy) for _ in range(3)))
        times["observe"].append(seconds(observe))
        times["recompute"].append(seconds(recompute))
        times["draw"].append(seconds(selector.peek))  # of the epoch under way
    result = {key: statistics.median(values) for key, values in times.items()}
    result["setup"] = setup
    result["state"] = sum(arrays_of(selector)) / (n * q)
    workspace = getattr(selector.memory, "_workspace", None)
    kept = 0 if workspace is None else workspace.numel() * workspace.element_size()
    extra = peak_above(recompute)
    result["temporary"] = float("nan") if extra is None else (kept + extra) / (n * q)
    return result


def information() -> None:
    """An epoch's mutual information for as many labels as delicious has."""
    from d2ace.selectors.correlation import mutual_information

    generator = torch.Generator().manual_seed(0)
    n, q = 12_884, 983
    for name, uncertainty in (
        ("most predictions sure", 0.55 * torch.rand(n, q, generator=generator) ** 3),
        ("spread over all bins", torch.rand(n, q, generator=generator)),
    ):
        taken = seconds(lambda matrix=uncertainty: mutual_information(matrix))
        print(f"mutual information, {n:,} x {q}, {name}: {taken:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="0,1,2,3", help="which of the four sizes")
    parser.add_argument("--methods", default=",".join(d2ace.SELECTORS))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--state", choices=("full", "compact"))
    parser.add_argument("--epochs", type=int, default=100, help="with 10000000 it compiles")
    parser.add_argument("--information", action="store_true", help="that of ML-Unc alone")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.information:
        information()
        return
    given = {"epochs": arguments.epochs}
    if arguments.state is not None:
        given["state"] = arguments.state
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, batch {BATCH}\n")
    for size in (SIZES[int(number)] for number in arguments.sizes.split(",")):
        n, q, _ = size
        labels, neighbors, logits = problem(*size)
        print(f"### n = {n:,}, q = {q}, {labels.nnz / n:.1f} labels per row\n")
        print(
            "| method | observe | recompute | draw | **total** | unit, ms | state, B/pair |"
            " temporary, B/pair |"
        )
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
        for name in arguments.methods.split(","):
            r = measure(name, labels, neighbors, logits, arguments.repeats, given)
            parts = [r[stage] / r["copy"] for stage in ("observe", "recompute", "draw")]
            print(
                f"| {name} | "
                + " | ".join(f"{part:.2f}" for part in parts)
                + f" | **{sum(parts):.2f}** | {1e3 * r['copy']:.1f} | {r['state']:.1f} |"
                f" {r['temporary']:.1f} |"
            )
            sys.stdout.flush()
        print()


if __name__ == "__main__":
    main()
