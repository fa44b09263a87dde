"""Processor seconds of a grid whose runs train side by side, over those of separate runs.

    python benchmarks/stack.py                        # yeast, MLP, 8 methods x 3 seeds of one fold
    python benchmarks/stack.py --units 256 --layers 1 --epochs 40

Both are whole commands (``d2ace bench --stack`` and ``--no-stack``) with one job: starts, files
and store included. On Linux all of it runs on one core.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

GRID = """
datasets = ["{data}"]
models = [{{ name = "mlp", options = {{ h = {units}, L = {layers} }} }}]
selectors = ["random", "active", "recent", "dihcl", "balance", "hard_imb", "ml_unc", "d2ace"]
seeds = {seeds}
run_folds = [0]
epochs = {epochs}
"""


def seconds(grid: str, *options: str) -> float:
    """Of the processor, for one command and all its processes."""
    before = _spent()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "grid.toml").write_text(grid)
        command = [sys.executable, "-m", "d2ace", "bench", "grid.toml", *options]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)  # noqa: S603
    return _spent() - before


def _spent() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="yeast")
    parser.add_argument("--units", type=int, default=64)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    asked = vars(parser.parse_args())
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    seeds = list(range(asked.pop("seeds")))
    runs = 8 * len(seeds)
    start = seconds(GRID.format(**asked | {"epochs": 1}, seeds=[0]), "--only", "method=Random")
    one, each = (
        seconds(GRID.format(**asked, seeds=seeds), way) for way in ("--stack", "--no-stack")
    )
    print(f"{asked}, {runs} runs; {start:.1f} s for one run of one epoch, mostly imports")
    print(f"stacked {one:.1f} s, separate {each:.1f} s, ratio {one / each:.2f}")
    net = [(spent - start) / runs for spent in (one, each)]
    print(f"without that start {net[0]:.3f} and {net[1]:.3f} s a run, {net[0] / net[1]:.2f}")


if __name__ == "__main__":
    main()
