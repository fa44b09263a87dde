"""A run that takes a second, and what of it must be the same every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import d2ace
from d2ace.training import RunResult

SMALL: dict[str, Any] = {
    "model": "mlp",
    "model_options": {"h": 16, "L": 2},
    "epochs": 5,
    "warmup": 2,
    "batch_size": 32,
    "learning_rate": 1e-2,
    "threads": 1,
}


def small_run(data: Any, **changes: Any) -> RunResult:
    return d2ace.train(data, **(SMALL | changes))


def small_table(folder: Path) -> str:
    """A data file so small that what a run costs is its process."""
    random = np.random.default_rng(5)
    X = random.random((300, 12))
    Y = X @ random.random((12, 4)) + random.random((300, 4)) > 3.5
    path = folder / "table.npz"
    np.savez(path, X=X, Y=Y.astype(np.int8))
    return str(path)


def without_times(result: RunResult) -> dict[str, Any]:
    """All of a result that must be the same when a run is repeated."""
    content = result.to_dict()
    for name in ("seconds", "cpu_seconds"):
        del content[name]
    for entry in content["history"]:
        del entry["seconds"]
    return content
