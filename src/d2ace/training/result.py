"""The result of a run: its numbers, and how they were obtained."""

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

from d2ace._util.errors import RunError
from d2ace._util.version import VERSION
from d2ace.evaluation import METRICS

from .config import fault_of_config
from .label_scores import LABEL_COUNTS, LABEL_SCORES
from .verified import FORMAT, NUMBER, Parts, fault_of, load_json, save_json

__all__ = ["STILL_IMPROVING", "RunResult", "environment", "still_improving"]

STILL_IMPROVING = "more epochs or a higher learning rate would probably gain more than selection"
"""The remark on a run with :func:`still_improving`."""


def still_improving(best_epoch: int, epochs: int) -> bool:
    """Whether the best epoch is within the last 5 % of a run's epochs, or the last of all."""
    return 20 * best_epoch > 19 * epochs


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    ``best_epoch`` has the best monitored score on the validation rows. ``validation`` and ``test``
    hold the metrics of its weights on the validation rows and the test fold. ``history`` has an
    entry for each epoch. ``undefined`` counts the labels with only one class, which label-wise
    means leave out. ``seconds`` are wall-clock seconds by part.
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
    """With ``tune``: the tried combinations, each with its best validation score."""
    per_label: dict[str, list[Any]] | None = None
    """A table in columns, a row per label: ``label``, ``train_positives``, ``test_positives``, and
    on the test rows ``auc``, ``average_precision``, ``f1`` at 0.5, ``f1_tuned``. NaN where a label
    lacks a class. None for results stored by an older version."""

    @property
    def still_improving(self) -> bool:
        """Whether the best epoch is within the last 5 % of the epochs, or the last of all.

        More epochs or a higher learning rate would then probably gain more than selection.
        """
        return still_improving(self.best_epoch, self.config["epochs"])

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values; an undefined number becomes None."""
        return {"format": FORMAT, **_map_floats(asdict(self), _to_plain)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunResult:
        """The result from the values of :meth:`to_dict`."""
        names = {item.name for item in fields(cls)}
        if values.get("format") != FORMAT or names - set(_OPTIONAL) - set(values):
            raise RunError(
                f"This is not the result of a run (format {values.get('format')!r}, expected "
                f"{FORMAT})."
            )
        kept = {name: values[name] for name in names if name in values}
        kept["test"] = _defined(kept["test"], _TESTED)
        kept["validation"] = _defined(kept["validation"], _VALIDATED)
        kept["history"] = [
            {**entry, "validation": _defined(entry["validation"], _VALIDATED)}
            for entry in kept["history"]
        ]
        if kept.get("per_label") is not None:
            kept["per_label"] = {
                name: [math.nan if value is None else value for value in column]
                for name, column in kept["per_label"].items()
            }
        return cls(**kept)

    def to_json(self) -> str:
        """One line of JSON: :meth:`to_dict`, and whether the run was ``still_improving``."""
        return json.dumps({**self.to_dict(), "still_improving": self.still_improving})

    @classmethod
    def read(cls, path: str | Path) -> RunResult:
        """The result in a ``result.json``."""
        what = "the result of a run"
        content = load_json(Path(path), what, _PARTS, optional=_OPTIONAL, remedy=_remedy)
        fault = _fault(content)
        if fault is not None:
            raise RunError(
                f"{path} cannot be read as {what} ({fault}); it was left alone: {_remedy()}."
            )
        return cls.from_dict(content)

    def write(self, path: Path) -> None:
        """Write the result atomically, with a checksum."""
        save_json(path, self.to_dict())

    def __repr__(self) -> str:
        config = self.config
        return (
            f"RunResult({config['data']}, {config['model']}, {config['selector']}, fold "
            f"{config['fold']}, seed {config['seed']}: test "
            + ", ".join(f"{name} {self.test[name]:.4f}" for name in _SHOWN)
            + f", best epoch {self.best_epoch}"
            + (", still improving)" if self.still_improving else ")")
        )


_PARTS: Parts = {
    "config": dict,
    "environment": dict,
    "dataset": dict,
    "best_epoch": int,
    "validation": dict,
    "test": dict,
    "undefined": dict,
    "seconds": dict,
    "cpu_seconds": NUMBER,
    "history": list,
    "tuning": (list, type(None)),
    "per_label": (dict, type(None)),
}
_OPTIONAL = ("tuning", "per_label")
_UNDEFINED = (*NUMBER, type(None))
_TUNED = tuple(name for name, one in METRICS.items() if one.needs_thresholds)
"""Metrics at thresholds tuned on the validation rows: for test rows only."""
_TESTED: Parts = dict.fromkeys(METRICS, _UNDEFINED)
_VALIDATED: Parts = {name: kind for name, kind in _TESTED.items() if name not in _TUNED}
_SIZES = ("features", "labels", "train", "validation", "test")
_DATASET: Parts = {"name": str, "digest": str, **dict.fromkeys(_SIZES, int)}
_COLUMNS: dict[str, tuple[type, ...]] = {
    "label": (str,),
    **dict.fromkeys(LABEL_COUNTS, (int,)),
    **dict.fromkeys(LABEL_SCORES, _UNDEFINED),
}
_TRIED: Parts = {
    "model_options": dict,
    "selector_options": dict,
    "validation": _UNDEFINED,
    "epoch": int,
}


def _fault(content: Mapping[str, Any]) -> str | None:
    """The fault inside the parts of a result, or None."""
    faults = {
        "config": fault_of_config(content["config"]),
        "dataset": fault_of(content["dataset"], _DATASET),
        "undefined": fault_of(content["undefined"], {"validation": int, "test": int}),
        "seconds": fault_of(content["seconds"], dict.fromkeys(content["seconds"], NUMBER)),
    }
    # Metrics may be newer: all parts lack the same ones, and none lacks the monitored one.
    every = [content["validation"], content["test"]]
    every += [one.get("validation") for one in content["history"] if isinstance(one, dict)]
    had = {name for one in every if isinstance(one, dict) for name in one}
    monitored = content["config"].get("monitor")
    added = tuple(name for name in _VALIDATED if name not in had and name != monitored)
    faults["validation"] = fault_of(content["validation"], _VALIDATED, added)
    faults["test"] = fault_of(content["test"], _TESTED, added)
    for number, entry in enumerate(content["history"]):
        metrics = entry.get("validation") if isinstance(entry, dict) else entry
        faults[f"history[{number}]"] = fault_of(metrics, _VALIDATED, added)
    for number, tried in enumerate(content.get("tuning") or ()):
        faults[f"tuning[{number}]"] = fault_of(tried, _TRIED, optional=tuple(_TRIED))
    if content.get("per_label") is not None:
        faults["per_label"] = _fault_of_columns(content["per_label"], content["dataset"])
    for name, fault in faults.items():
        if fault is not None:
            return f"its {name} {fault}"
    if not isinstance(content["environment"].get("devices"), int):
        return "its environment does not say how many devices there were"
    if not 1 <= content["best_epoch"] <= len(content["history"]):
        return f"its best epoch {content['best_epoch']} is none of {len(content['history'])}"
    return None


def _fault_of_columns(table: Mapping[str, Any], sizes: Mapping[str, Any]) -> str | None:
    fault = fault_of(table, dict.fromkeys(_COLUMNS, list))
    if fault is not None:
        return fault
    for name, kinds in _COLUMNS.items():
        if len(table[name]) != sizes.get("labels"):
            return f"has {len(table[name])} values as {name!r} for {sizes.get('labels')} labels"
        for value in table[name]:
            if type(value) not in kinds:  # as bool is an int, too
                return f"has {type(value).__name__} in {name!r}"
    return None


def _remedy() -> str:
    return "move it away and start the run again, which resumes from its last checkpoint"


_SHOWN = ("macro_auc", "macro_f1", "ranking_loss")


def environment(devices: int, accelerator: str) -> dict[str, Any]:
    """What numbers may depend on besides the configuration."""
    return {
        "d2ace": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "devices": devices,
        "accelerator": accelerator,
    }


def _defined(values: Mapping[str, float | None], metrics: Parts) -> dict[str, float]:
    """A metric that is newer than the result counts as undefined."""
    values = {**dict.fromkeys(metrics), **values}
    return {name: math.nan if value is None else value for name, value in values.items()}


def _to_plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _map_floats(value: Any, change: Any) -> Any:
    if isinstance(value, dict):
        return {key: _map_floats(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map_floats(item, change) for item in value]
    return change(value) if isinstance(value, float) else value
