"""What it costs that freed memory goes back to the system between training steps (Linux, glibc).

    python benchmarks/memory.py
    python benchmarks/memory.py --models paca --rounds 9 --steps 40

Every measurement is a process of its own that trains on the processor with one thread; those with
and without the settings that `d2ace bench` gives its workers take turns. Printed are the medians
of processor seconds per step, and their ratio.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

from d2ace.benchmark.run.engines import KEEP_MEMORY

FEATURES, LABELS, BATCH = 294, 6, 128
"""The size of scene."""


def seconds_per_step(model_name: str, steps: int) -> float:
    """Train here."""
    import torch

    from d2ace.models import make_model

    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.rand(BATCH, FEATURES), (torch.rand(BATCH, LABELS) < 0.2).float()
    model = make_model(model_name, FEATURES, y.numpy()).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    start = 0.0
    for step in range(steps + 1):
        if step == 1:  # the first one builds things
            start = time.process_time()
        model.loss(model(x), y).total.backward()
        optimizer.step()
        optimizer.zero_grad()
    return (time.process_time() - start) / steps


def elsewhere(model_name: str, steps: int, settings: dict[str, str]) -> float:
    """Train in a process with these settings, and with none of its own."""
    clean = {key: value for key, value in os.environ.items() if key not in KEEP_MEMORY}
    words = [sys.executable, __file__, "--here", model_name, "--steps", str(steps)]
    done = subprocess.run(  # noqa: S603
        words, env=clean | settings, check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="clif,dela,paca")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--here", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        print(seconds_per_step(arguments.here, arguments.steps))
        return
    print("| model | returned, ms | kept, ms | ratio |\n|---|---:|---:|---:|")
    for name in arguments.models.split(","):
        taken: dict[str, list[float]] = {"returned": [], "kept": []}
        for _ in range(arguments.rounds):
            taken["returned"].append(elsewhere(name, arguments.steps, {}))
            taken["kept"].append(elsewhere(name, arguments.steps, KEEP_MEMORY))
        returned, kept = (1000 * statistics.median(values) for values in taken.values())
        print(f"| {name} | {returned:.0f} | {kept:.0f} | {returned / kept:.2f} |", flush=True)


if __name__ == "__main__":
    main()
