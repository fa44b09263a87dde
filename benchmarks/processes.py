"""What several processes that share a selector send each other in an epoch.

    python benchmarks/processes.py
    python benchmarks/processes.py --rows 100000 --labels 100 --processes 4 --methods d2ace,ml_unc

Each process trains its part of every batch, with random predictions, by gloo. Counted are the
numbers of every tensor given to torch.distributed, and their bytes, as one process receives them:
of a gathered or routed tensor what comes from the others, of a sum its own length. "Observed" are
predictions on their way to the processes that keep the rows; "weights" is all else. The epoch
counted is the second one, drawn by the method.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

import d2ace
from d2ace.selectors import DistributedSelector

PER_ROW = 3
"""Labels of a row, on average."""

counted: Counter[str] = Counter()


def count_what_is_sent(labels: int) -> None:
    """Count on the way to torch.distributed."""
    world, rank = distributed.get_world_size(), distributed.get_rank()
    received: dict[str, Callable[..., tuple[Tensor, int]]] = {
        "all_reduce": lambda tensor, *_: (tensor, tensor.numel()),
        "broadcast": lambda tensor, *_: (tensor, tensor.numel()),
        "all_gather": lambda _, tensor: (tensor, tensor.numel() * (world - 1)),
        "all_to_all_single": lambda tensor, _, sizes, __: (
            tensor,
            (sum(sizes) - sizes[rank]) * labels,
        ),
    }

    def counting(name: str) -> Callable[..., Any]:
        original = getattr(distributed, name)

        def run(*arguments: Any) -> Any:
            tensor, numbers = received[name](*arguments)
            rows_of_labels = name != "all_reduce" and tensor.shape[1:] == (labels,)
            what = "observed" if rows_of_labels else "weights"
            counted[what] += numbers
            counted[f"{what} bytes"] += numbers * tensor.element_size()
            return original(*arguments)

        return run

    for name in received:
        setattr(distributed, name, counting(name))


def run(rank: int, given: argparse.Namespace, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=given.processes
    )
    count_what_is_sent(given.labels)
    source = torch.Generator().manual_seed(0)
    Y = (torch.rand(given.rows, given.labels, generator=source) < PER_ROW / given.labels).float()
    for method in given.methods.split(","):
        for shard in (False, True):
            selector = d2ace.make_selector(
                method, Y, batch_size=given.batch_size, epochs=10, warmup=1
            )
            batches = DistributedSelector(selector, shard=shard)
            for epoch in range(2):
                if epoch:
                    batches.share()
                    counted.clear()
                for rows in batches:
                    batches.observe(rows, logits=torch.randn(len(rows), given.labels))
            batches.share()
            memory = selector.memory.state_dict().values()
            kept = sum(value.numel() * value.element_size() for value in memory)
            if rank == 0:
                print(
                    f"| {method} | {'on' if shard else 'off'} | {kept / 1e6:.1f} "
                    f"| {counted['observed']:,} | {counted['observed bytes'] / 1e6:.2f} "
                    f"| {counted['weights']:,} | {counted['weights bytes'] / 1e6:.2f} |",
                    flush=True,
                )
    distributed.barrier()
    distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=1024, help="of all processes together")
    parser.add_argument("--methods", default="random,active,recent,hard_imb,ml_unc,d2ace")
    given = parser.parse_args()
    print(f"n = {given.rows:,}, q = {given.labels}, {given.processes} processes:", end=" ")
    print(f"n q = {given.rows * given.labels:,}, n + q^2 = {given.rows + given.labels**2:,}\n")
    print("| method | shard | state kept, MB | observed | MB | weights | MB |", flush=True)
    print("|---|---|---:|---:|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(
            run, (given, str(Path(folder))), nprocs=given.processes, start_method="spawn"
        )


if __name__ == "__main__":
    main()
