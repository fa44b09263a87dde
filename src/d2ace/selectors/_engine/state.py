"""A selector's state, as tensors and plain values, and the check that a state fits a selector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from d2ace._util.checksum import checksum, form
from d2ace._util.exchange import is_spread
from d2ace._util.validation import whole_number

from .options import options_of

if TYPE_CHECKING:
    from d2ace.selectors.resumable import Resumable

__all__ = ["feature_marks", "identity", "refuse_unfit", "state_of"]

FORMAT = 3
_KEYS = {
    *("format", "method", "shape", "labels", "options", "features", "seed", "learning_rate"),
    *("progress", "drawn", "device", "memory", "extra", "checksum"),
}
_FREE = {"seed", "device", "dtype", "on_invalid", "neighbors_method"}  # may differ on resuming
_BEFORE = {"state": "full", "pace": "rate"}  # what states have had that do not name these options
_INSIGHTS = "insights"  # a part that a state has only where the selector keeps them
_MARKED = 256  # rows that identify features
_SLACK = 1e-3  # by which features computed anew may differ, and the share of rows that may more


def state_of(selector: Resumable) -> dict[str, Any]:
    """Everything needed to resume; what was observed must be settled. See Selector.state_dict."""
    drawn, memory = selector._tensors.drawn, selector.memory.state_dict()
    if drawn is None and selector.selects(selector.warmup + 1):
        # Of one form always, as torch.distributed.checkpoint asks; no row has no chance.
        drawn = torch.zeros(selector.n, dtype=torch.float64, device=selector.state_device)
    state = {
        "format": FORMAT,
        **identity(selector),
        "features": selector._marks.clone(),
        "seed": selector.seed,
        "learning_rate": float(selector.learning_rate),
        "progress": selector._cursor.state_dict(),
        "drawn": None if drawn is None else drawn.clone(),
        "device": selector.state_device.type,
        "memory": {name: selector.kept.saved(value) for name, value in memory.items()},
        "extra": selector.extra_state(),
    }
    if selector.insights is not None:
        state[_INSIGHTS] = selector.insights.state_dict()
    return {**state, "checksum": checksum(state)}


def refuse_unfit(selector: Resumable, state: Any) -> None:
    """Raise a ValueError that says why ``state`` is not one of ``selector``; changes nothing."""
    if not isinstance(state, dict) or "format" not in state:
        raise ValueError(
            "This is not a selector's state; load what Selector.state_dict() of this version gave."
        )
    if state["format"] != FORMAT or state.keys() - {_INSIGHTS} != _KEYS:
        odd = sorted(map(str, (state.keys() - {_INSIGHTS}) ^ _KEYS))
        raise ValueError(
            f"The state has format {state['format']!r} and not {FORMAT}, or parts are missing or "
            f"unknown ({', '.join(odd) or 'none'}); load one that this version of d2ace saved."
        )
    _refuse_other_selectors(selector, state)
    if (_INSIGHTS in state) != (selector.insights is not None):
        saved, made = ("with", "without") if _INSIGHTS in state else ("without", "with")
        raise ValueError(
            f"The state was saved {saved} insights, but this selector was made {made} them; make "
            f"the selector with insights={_INSIGHTS in state}."
        )
    _refuse_other_features(selector._marks, state["features"])
    _refuse_other_memory(selector, state["memory"])
    drawn = state["drawn"]
    if drawn is not None and (not isinstance(drawn, Tensor) or drawn.shape != (selector.n,)):
        raise ValueError(f"The state's probabilities are {form(drawn)}, not [{selector.n}].")
    extra = state["extra"]
    if not isinstance(extra, dict) or extra.keys() != selector.extra_state().keys():
        raise ValueError(f"The state's extra values {extra!r} do not fit this selector.")
    whole_number("The state's seed", state["seed"], 0)
    if state["checksum"] != checksum(state):
        raise ValueError(
            "The state is damaged: its checksum is not that of its content; load an intact copy."
        )


def identity(selector: Resumable) -> dict[str, Any]:
    """What state and selector must have in common."""
    return {
        "method": selector.name or type(selector).__name__,
        "shape": [selector.n, selector.q],
        "labels": f"checksum {selector._labels_checksum:08x}",
        "options": _options(selector),
    }


def _options(selector: Resumable) -> dict[str, Any]:
    """The options that a selector was made with, as far as they are values."""
    values = {
        name: _plain(getattr(selector, name))
        for name in options_of(type(selector))
        if name not in {*_FREE, _INSIGHTS} and hasattr(selector, name)
    }
    values["rows_per_epoch"] = _plain(selector.row_schedule.given)  # not those of this epoch
    return {name: value for name, value in values.items() if value is not NotImplemented}


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        items = [_plain(item) for item in value]
        return items if NotImplemented not in items else NotImplemented
    if isinstance(value, dict):
        return _plain([list(item) for item in value.items()])
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        value = torch.as_tensor(np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("=")))
    if isinstance(value, Tensor):
        return f"{form(value)} with checksum {checksum(value):08x}"
    return value if value is None or isinstance(value, (bool, int, float, str)) else NotImplemented


def _refuse_other_selectors(selector: Resumable, state: dict[str, Any]) -> None:
    own = identity(selector)
    pairs = [(key, state[key], own[key]) for key in ("method", "shape", "labels")]
    given = state["options"] if isinstance(state["options"], dict) else {}
    options = own["options"]
    saved = {name: value for name, value in _BEFORE.items() if name in options} | given
    pairs += [(key, saved.get(key), options.get(key)) for key in sorted({*saved, *options})]
    for key, theirs, ours in pairs:
        if theirs != ours:
            more = " (later epochs need no change)" if key == "epochs" else ""
            raise ValueError(
                f"The state was saved with {key} {theirs!r}, but this one has {ours!r}; make "
                f"the selector as it was then{more}."
            )


def _refuse_other_features(own: Tensor, saved: Any) -> None:
    fits = isinstance(saved, Tensor) and saved.shape == own.shape
    if fits and own.numel():
        one, other = own.double().cpu(), saved.double().cpu()
        near = torch.isclose(one, other, rtol=_SLACK, atol=0.0, equal_nan=True)
        fits = float((~near).double().mean()) <= 0.05
    if not fits:
        raise ValueError(
            "The state was saved with other features than this selector has; make the selector as "
            "it was then, with the same rows in the same order."
        )


def _refuse_other_memory(selector: Resumable, memory: Any) -> None:
    if not isinstance(memory, dict):
        raise ValueError(f"The state's memory is {form(memory)}, not a dictionary of tensors.")
    if not selector.kept.spread and any(map(is_spread, memory.values())):
        raise ValueError(
            "The state's rows are spread over several processes; load it with "
            "DistributedSelector(selector, shard=True), or through torch.distributed.checkpoint."
        )
    current = {
        name: torch.empty((selector.n, *own.shape[1:]), dtype=own.dtype, device="meta")
        if selector.kept.spread
        else own
        for name, own in selector.memory.state_dict().items()
    }
    for key in sorted({*current, *memory}):
        saved, own = memory.get(key), current.get(key)
        if not isinstance(saved, Tensor) or form(saved) != form(own):
            raise ValueError(
                f"The state's {key!r} does not fit this selector ({form(saved)} against "
                f"{form(own)}); make it with the options the state was saved with."
            )


def feature_marks(features: Tensor | sp.csr_array | None) -> Tensor:
    """One number for each of a few rows, which identify the features.

    Features that a network computes differ in their last digits from run to run; these numbers
    hardly do.
    """
    if features is None:
        return torch.empty(0, dtype=torch.float64)
    n, width = features.shape
    rows = np.unique(np.linspace(0, n - 1, _MARKED).astype(np.int64))
    if isinstance(features, Tensor):
        chosen = features[torch.from_numpy(rows).to(features.device)].double().cpu().numpy()
    else:
        chosen = features[rows]
    with np.errstate(over="ignore", invalid="ignore"):
        return torch.from_numpy(np.asarray(chosen @ np.sin(np.arange(1.0, width + 1.0))))
