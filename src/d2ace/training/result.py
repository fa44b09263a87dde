"""What a run leaves behind: its numbers, and how they came about."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

import d2ace
from d2ace.errors import RunError

__all__ = ["FORMAT", "RunResult", "environment"]

FORMAT = 1


@dataclass(frozen=True)
class RunResult:
    """The end of a run.

    ``test`` holds the metrics on the test fold of the weights of ``best_epoch``, which is the epoch
    with the best monitored score on the validation rows, whose metrics are in ``validation``.
    ``history`` has an entry for each epoch. ``undefined`` counts the labels that had one class only
    and so do not count in label-wise means. ``seconds`` are wall-clock seconds by part.
    """

    config: dict[str, Any]
    environment: dict[str, Any]
    dataset: dict[str, Any]
    best_epoch: int
    validation: dict[str, float]
    test: dict[str, float]
    undefined: dict[str, int]
    seconds: dict[str, float]
    cpu_seconds: float
    history: list[dict[str, Any]]
    tuning: list[dict[str, Any]] | None = None
    """With ``tune``: the combinations that were tried, each with its best validation score."""

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON holds it; a number that is not defined becomes None."""
        return {"format": FORMAT, **_map_floats(asdict(self), _to_plain)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunResult:
        """The result that :meth:`to_dict` gave."""
        names = {item.name for item in fields(cls)}
        if values.get("format") != FORMAT or names - {"tuning"} - set(values):
            raise RunError(
                f"This is not the result of a run (format {values.get('format')!r}, expected "
                f"{FORMAT})."
            )
        kept = {name: values[name] for name in names if name in values}
        for split in ("validation", "test"):
            kept[split] = _defined(kept[split])
        kept["history"] = [
            {**entry, "validation": _defined(entry["validation"])} for entry in kept["history"]
        ]
        return cls(**kept)

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict())

    @classmethod
    def read(cls, path: str | Path) -> RunResult:
        """The result in a ``result.json``."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError, AttributeError, TypeError, KeyError, RunError) as problem:
            raise RunError(
                f"{path} cannot be read as the result of a run ({problem}); it was left alone."
            ) from problem

    def __repr__(self) -> str:
        config = self.config
        return (
            f"RunResult({config['data']}, {config['model']}, {config['selector']}, fold "
            f"{config['fold']}, seed {config['seed']}: test "
            + ", ".join(f"{name} {self.test[name]:.4f}" for name in _SHOWN)
            + f", best epoch {self.best_epoch})"
        )


_SHOWN = ("macro_auc", "macro_f1", "ranking_loss")


def environment(devices: int, accelerator: str) -> dict[str, Any]:
    """What a number may depend on beside the configuration."""
    return {
        "d2ace": d2ace.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "devices": devices,
        "accelerator": accelerator,
    }


def _defined(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in values.items()}


def _to_plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _map_floats(value: Any, change: Any) -> Any:
    if isinstance(value, dict):
        return {key: _map_floats(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map_floats(item, change) for item in value]
    return change(value) if isinstance(value, float) else value
