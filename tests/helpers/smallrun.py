"""A run that takes a second, and what of it must be the same every time."""

from __future__ import annotations

from typing import Any

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


def without_times(result: RunResult) -> dict[str, Any]:
    """All of a result that must be the same when a run is repeated."""
    content = result.to_dict()
    for name in ("seconds", "cpu_seconds"):
        del content[name]
    for entry in content["history"]:
        del entry["seconds"]
    return content
