"""Results in the form `d2ace.train` gives, without training."""

from __future__ import annotations

from typing import Any

from d2ace.benchmark.plan.specs import RunSpec

METRICS = (
    "macro_auc",
    "macro_f1",
    "ranking_loss",
    "mean_average_precision",
    "micro_f1",
    "hamming_loss",
    "one_error",
    "coverage",
    "subset_accuracy",
)
PARTS = ("recompute", "draw", "observe", "train", "evaluation")


def spec(method: str = "D2ACE", study: str = "main", **config: Any) -> RunSpec:
    return RunSpec(study, method, {"data": "emotions", **config})


def result(run: RunSpec, score: float = 0.8123456789012345, epochs: int = 3) -> dict[str, Any]:
    values = {name: score - i / 100 for i, name in enumerate(METRICS)}
    seconds = dict.fromkeys(PARTS, 0.25)
    return {
        "format": 1,
        "config": run.config,
        "environment": {
            "d2ace": "0.1.0",
            "python": "3.11.2",
            "torch": "2.13.0",
            "numpy": "2.4.1",
            "platform": "Linux",
            "threads": 1,
            "devices": 1,
            "accelerator": "cpu",
        },
        "dataset": {
            "name": "emotions",
            "features": 72,
            "labels": 6,
            "train": 427,
            "validation": 47,
            "test": 119,
            "digest": "5e1f" * 16,
        },
        "best_epoch": 2,
        "validation": {**values, "coverage": None},
        "test": values,
        "undefined": {"validation": 1, "test": 0},
        "seconds": {"setup": 0.5, **seconds, "total": 1.75},
        "cpu_seconds": 1.5,
        "history": [
            {
                "epoch": epoch,
                "train_loss": 0.5 / epoch,
                "epoch_loss": None,
                "validation": values,
                "undefined": 1,
                "seconds": seconds,
                "effective_rows": 427.0,
                "distinct_rows": 427,
            }
            for epoch in range(1, epochs + 1)
        ],
    }
