"""A finished run, read back from its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from d2ace._util.errors import RunError, UserError
from d2ace._util.paths import given_path
from d2ace.models import MODELS

from .checkpoint import BEST
from .folder import differences
from .predicting import AGAIN, SavedRun
from .result import RunResult
from .verified import load_tensors

__all__ = ["load_run"]


def load_run(path: str | Path) -> SavedRun:
    """The finished run in a folder, ready to predict."""
    folder = given_path(path, "the folder of a run")
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}; name the out folder of a run.")
    if not (folder / "result.json").exists():
        raise RunError(f"{folder} holds no finished run; train it to its end first.")
    result, place = RunResult.read(folder / "result.json"), folder / "best.pt"
    saved = load_tensors(place, "saved weights", BEST, remedy=lambda: AGAIN)
    _refuse_other_run(place, result, saved)
    model = result.config["model"]
    if model in MODELS and MODELS[model].input == "image":
        from .images.predicting import SavedImageRun

        return SavedImageRun(place, result, saved)
    return SavedRun(place, result, saved)


def _refuse_other_run(place: Path, result: RunResult, saved: dict[str, Any]) -> None:
    """Weights and result belong together."""
    try:
        differing = differences(result.config, json.loads(saved["config"]))
    except (ValueError, TypeError, AttributeError):
        differing = ["a config that is none"]
    if saved["epoch"] != result.best_epoch:
        differing.append(f"epoch {saved['epoch']} instead of {result.best_epoch}")
    if differing:
        raise RunError(
            f"{place} is of another run than result.json beside it ({', '.join(differing)}); both "
            f"were left alone: {AGAIN}."
        )
