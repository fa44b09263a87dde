"""A finished run, read back from its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from d2ace._util.errors import RunError, UserError
from d2ace._util.own_class import is_own
from d2ace._util.paths import given_path
from d2ace.models import MODEL_FAMILY

from .checkpoint import BEST
from .config import RunConfig
from .folder import differences
from .predicting import SavedRun
from .result import RunResult
from .verified import AGAIN, load_tensors

__all__ = ["load_run"]


def load_run(path: str | Path) -> SavedRun:
    """The finished run in a folder, ready to predict."""
    folder = given_path(path, "the folder of a run")
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}; give the out folder of a run.")
    if not (folder / "result.json").exists():
        raise RunError(f"{folder} holds no finished run; train it to its end first.")
    result, place = RunResult.read(folder / "result.json"), folder / "best.pt"
    saved = load_tensors(place, "saved weights", BEST, remedy=lambda: AGAIN)
    _refuse_other_run(place, result, saved)
    config = _usable(result, folder)
    if config.images:
        from .images.predicting import SavedImageRun

        return SavedImageRun(place, result, config, saved)
    return SavedRun(place, result, config, saved)


def _usable(result: RunResult, folder: Path) -> RunConfig:
    """The parts of a run's configuration that predicting needs."""
    # The files of the selector or of corrected labels may be gone; they are not needed.
    forgotten: dict[str, Any] = {
        "selector": "random",
        "selector_options": {},
        "selector_source": None,
        "labels_from": None,
        "labels_source": None,
    }
    _refuse_other_code(result.config["model"], result.config.get("model_source"), folder)
    try:
        return RunConfig.from_dict(result.config | forgotten)
    except UserError as problem:
        raise RunError(
            f"{folder / 'result.json'} is not of this version ({problem.clause}); it was left "
            "alone: train the run again in another folder."
        ) from problem


def _refuse_other_code(model: str, source: str | None, folder: Path) -> None:
    """Your own model's class must be where it was, and unchanged."""
    try:
        if MODEL_FAMILY.source(model) in (None, source):
            MODEL_FAMILY.find(model)
            return
        why = "has changed since"
    except ValueError as problem:
        if not is_own(model):
            return  # reported as a run of another version
        why = f"cannot be used now ({str(problem).rstrip('.')})"
    raise RunError(
        f"{folder} was trained with the model {model}, whose code {why}; restore the file, or "
        f"{AGAIN}."
    )


def _refuse_other_run(place: Path, result: RunResult, saved: dict[str, Any]) -> None:
    """Refuse weights and a result of different runs."""
    try:
        differing = differences(result.config, json.loads(saved["config"]))
    except (ValueError, TypeError, AttributeError):
        differing = ["an invalid config"]
    if saved["epoch"] != result.best_epoch:
        differing.append(f"epoch {saved['epoch']} instead of {result.best_epoch}")
    if differing:
        raise RunError(
            f"{place} belongs to another run than result.json ({', '.join(differing)}); both "
            f"were left alone: {AGAIN}."
        )
