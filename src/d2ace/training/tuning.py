"""Search of the paper's grids of hyperparameters on validation rows only."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from d2ace._util.errors import UserError
from d2ace._util.paths import given_path
from d2ace.evaluation import METRICS

from .config import RunConfig
from .fabric import first_process
from .folder import RunFolder, described, differences, saved_in
from .kept_insights import INSIGHTS
from .result import RunResult
from .single import train_config
from .verified import save_bytes

if TYPE_CHECKING:
    from d2ace.data import MultiLabelData
    from d2ace.data.images import ImageData

__all__ = ["MODEL_GRIDS", "SELECTOR_GRIDS", "tuned"]

_DECADES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)

MODEL_GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "clif": {"e": (64, 128, 256), "lam": _DECADES},
    "dela": {"beta": _DECADES},
    "paca": {"alpha": (1, 2, 5, 10, 20, 50), "gamma": _DECADES[1:]},
}
SELECTOR_GRIDS: dict[str, dict[str, tuple[float, ...]]] = {"d2ace": {"neighbors": (4, 5, 6, 7, 8)}}


def tuned(
    config: RunConfig,
    data: MultiLabelData | ImageData | None,
    out: str | Path | None,
    running: dict[str, Any],
    begin: Callable[[RunConfig, str], None] | None = None,
) -> RunResult:
    """The best run of the grid by validation score; its ``tuning`` lists all tried combinations.

    It first tries every combination of the model's hyperparameters, then, with the best of them, K
    of the selector. Options that you set stay fixed. With ``out``, every run has its own folder in
    ``out/tune``, so that an interrupted search resumes; the best run is copied to ``out``.
    ``begin`` is called with the title of every candidate before it is trained.
    """
    models = _open(MODEL_GRIDS.get(config.model, {}), config.model_options)
    selectors = _open(SELECTOR_GRIDS.get(config.selector, {}), config.selector_options)
    if not models and not selectors:
        raise UserError(
            f"There is nothing to tune for model {config.model!r} with selector "
            f"{config.selector!r}: the paper's grids cover {', '.join(MODEL_GRIDS)} and "
            f"{', '.join(SELECTOR_GRIDS)}, and options given explicitly stay as they are."
        )
    if out is not None:
        out = given_path(out, "out")
        _refuse_other_run(out, config)
    total = len(_combinations(models)) + len(_combinations(selectors))
    tried: list[dict[str, Any]] = []
    best: tuple[float, RunResult, Path | None] | None = None
    for field, grid in (("model_options", models), ("selector_options", selectors)):
        start = config if best is None else RunConfig.from_dict(best[1].config)
        for values in _combinations(grid):
            change: dict[str, Any] = {field: {**getattr(start, field), **values}}
            candidate = replace(start, **change)
            place = None if out is None else out / "tune" / _folder_name(values)
            if begin is not None:
                begin(candidate, f"candidate {len(tried) + 1} of {total}: {_shown(values)}")
            result = train_config(candidate, data, out=place, **running)
            value = result.validation[config.monitor]
            tried.append({field: values, "validation": value, "epoch": result.best_epoch})
            score = value * (1 if METRICS[config.monitor].higher_is_better else -1)
            if best is None or (not math.isnan(score) and not score <= best[0]):
                best = (score, result, place)
    assert best is not None  # noqa: S101 - one of the two grids has an entry
    chosen = replace(best[1], tuning=tried)
    if out is not None and best[2] is not None and first_process():
        with RunFolder(out, config).alone():
            _refuse_other_run(out, config)  # another may have started during the search
            _copy(best[2], out, chosen)
    return chosen


def _refuse_other_run(out: Path, config: RunConfig) -> None:
    """Only files of this same search may be replaced."""
    RunFolder(out, config).refuse_strangers()
    what, tuning = "the result of another run", None
    if (out / "result.json").exists():
        before = RunResult.read(out / "result.json")
        theirs, tuning, searched = before.config, before.tuning, before.tuning is not None
    elif (out / "run.json").exists() and saved_in(out):
        # a search that was killed while it copied has no checkpoint
        theirs, searched = described(out), not (out / "checkpoint.pt").exists()
        what = "another run that is not finished"
    else:
        return
    ours = json.loads(json.dumps(config.to_dict()))
    for field, grids, of in (
        ("model_options", MODEL_GRIDS, config.model),
        ("selector_options", SELECTOR_GRIDS, config.selector),
    ):
        free = _open(grids.get(of, {}), ours[field])
        if tuning is not None:
            searched &= {name for tried in tuning for name in tried.get(field, ())} == set(free)
        chosen = theirs.get(field, {})
        theirs = {**theirs, field: {key: chosen[key] for key in chosen if key not in free}}
    if not searched or differences(ours, theirs):
        raise UserError(f"{out} holds {what}; it was left alone: choose another folder with out.")


def _open(
    grid: Mapping[str, tuple[float, ...]], given: Mapping[str, Any]
) -> dict[str, tuple[float, ...]]:
    return {name: values for name, values in grid.items() if name not in given}


def _combinations(grid: Mapping[str, tuple[float, ...]]) -> list[dict[str, float]]:
    if not grid:
        return []
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def _folder_name(values: Mapping[str, float]) -> str:
    return ",".join(f"{name}={value:g}" for name, value in values.items())


def _shown(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in values.items())


def _copy(source: Path, target: Path, result: RunResult) -> None:
    for name in ("run.json", "best.pt", "record.npz", INSIGHTS):
        if (source / name).exists():
            save_bytes(target / name, (source / name).read_bytes())
    result.write(target / "result.json")
