"""A selector's state, as tensors and plain values, and which state fits which selector."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

if TYPE_CHECKING:
    from .base import Selector

__all__ = ["identity", "refuse_unfit", "state_of"]

_KEYS = {
    "method",
    "preset",
    "shape",
    "batch_size",
    "seed",
    "learning_rate",
    "progress",
    "drawn",
    "memory",
    "extra",
}


def state_of(selector: Selector) -> dict[str, Any]:
    """Everything needed to go on; what was observed must be settled. See Selector.state_dict."""
    full_pass = selector.predictions == "full_pass"
    if selector._progress.may_skip(full_pass=full_pass):
        selector._oversights.warn_of_skipping(selector._progress.place, full_pass=full_pass)
    drawn, memory = selector._drawn, selector.memory.state_dict()
    if drawn is None and selector._is_selective(selector.warmup + 1):
        # Of one form always, as torch.distributed.checkpoint asks; no row has no chance.
        drawn = torch.zeros(selector.n, dtype=torch.float64, device=selector._home)
    return {
        **identity(selector),
        "seed": selector.seed,
        "learning_rate": float(selector.learning_rate),
        "progress": selector._progress.state_dict(),
        "drawn": None if drawn is None else drawn.clone(),
        "device": selector._home.type,
        "memory": {name: value.clone() for name, value in memory.items()},
        "extra": selector.extra_state(),
    }


def refuse_unfit(selector: Selector, state: Any) -> None:
    """Raise a ValueError that says why ``state`` is not one of ``selector``; changes nothing."""
    missing = _KEYS - set(state) if isinstance(state, dict) else _KEYS
    if missing:
        raise ValueError(f"This is not a selector's state: it lacks {sorted(missing)}.")
    for key, value in identity(selector).items():
        saved = state.get(key, value)  # states of old lack what came to be compared later
        if key == "method" and saved == selector.name:
            continue  # states of old have the empty name of a nameless class
        if saved != value:
            raise ValueError(
                f"The state was saved with {key} {saved!r}, but this one has {value!r}; make "
                "the selector as it was then."
            )
    current = selector.memory.state_dict()
    for key in current.keys() | state["memory"].keys():
        saved, own = state["memory"].get(key), current.get(key)
        if saved is None or own is None or saved.shape != own.shape or saved.dtype != own.dtype:
            raise ValueError(
                f"The state's {key!r} does not fit this selector ({_form(saved)} against "
                f"{_form(own)}); make it with the options the state was saved with."
            )
    drawn = state["drawn"]
    if drawn is not None and drawn.shape != (selector.n,):
        raise ValueError(f"The state's probabilities have shape {tuple(drawn.shape)}.")
    if state["extra"].keys() != selector.extra_state().keys():
        raise ValueError(f"The state's extra values {sorted(state['extra'])} do not fit.")


def identity(selector: Selector) -> dict[str, Any]:
    """What state and selector must have in common."""
    return {
        "method": selector.name or type(selector).__name__,
        "preset": selector.preset,
        "shape": [selector.n, selector.q],
        "batch_size": selector.batch_size,
        "replacement": selector.replacement,
        "window": getattr(selector, "window", None),
        "labels": _checksum(selector.labels),
    }


def _checksum(labels: sp.csr_array) -> str:
    """Of which rows have which labels, whatever the matrix counts them in."""
    pointer, columns = (np.asarray(a, dtype="<i8").data for a in (labels.indptr, labels.indices))
    return f"checksum {zlib.crc32(columns, zlib.crc32(pointer)):08x}"


def _form(value: Tensor | None) -> str:
    return "nothing" if value is None else f"{tuple(value.shape)} {value.dtype}"
