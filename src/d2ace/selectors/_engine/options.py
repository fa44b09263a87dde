"""Which keyword options a selector takes, and what to say of one it does not."""

from __future__ import annotations

import inspect
import warnings
from typing import Any, TypedDict

import torch

from d2ace._util.hints import did_you_mean
from d2ace._util.validation import choice
from d2ace.insights import Insights

_MOST_FULL = 1 << 28  # pairs: 6.4 GB of D2ACE's history; the largest published is 2^24


class CommonOptions(TypedDict, total=False):
    """Keyword options every selector takes."""

    batch_size: int
    epochs: int
    warmup: int
    seed: int
    preset: str
    draw: str | None
    rows_per_epoch: float | tuple[float, float]
    replacement: bool
    importance_weighting: bool
    on_invalid: str
    predictions: str
    insights: bool | Insights
    state: str | None
    device: torch.device | str | None
    dtype: torch.dtype


def options_of(method: type[Any]) -> list[str]:
    """Names of all keyword options a selector class takes, its own first."""
    names: dict[str, None] = {}
    for owner in method.__mro__:
        if "__init__" in vars(owner):
            for parameter in inspect.signature(vars(owner)["__init__"]).parameters.values():
                if parameter.kind is parameter.KEYWORD_ONLY:
                    names[parameter.name] = None
    return list(names)


def refuse_unknown(method: type[Any], options: dict[str, Any]) -> None:
    """Raise for the first option that ``method`` does not know."""
    known = options_of(method)
    for option in options:
        if option not in known:
            raise TypeError(
                f"{method.__name__} has no option {option!r}{did_you_mean(option, known)}; "
                f"it takes {', '.join(known)}."
            )


def chosen_state(method: type[Any], given: str | None, n: int, q: int) -> str:
    """The option ``state``: as given, or by the number of pairs alone, so that resuming agrees."""
    if given is not None:
        return choice("state", given, ("full", "compact"))
    if n * q <= _MOST_FULL or not method.has_compact_state:
        return "full"
    warnings.warn(
        f"{method.__name__} keeps the history of {n} x {q} pairs in 16 and 8 bits "
        "(state='compact'), which moves probabilities a little; pass state='full' to keep all "
        "digits at three times the memory, or state='compact' to silence this.",
        stacklevel=4,
    )
    return "compact"


def refuse_clashes(selector: Any) -> None:
    """Raise where ``draw`` does not go with other options of the selector."""
    draw = selector.draw
    if selector.replacement and draw != "batch":
        raise ValueError(
            f"replacement=True draws the rows of a batch independently, but draw={draw!r} draws "
            "the epoch as a whole; use draw='batch', or leave replacement out."
        )
    if selector.importance_weighting and draw == "once":
        raise ValueError(
            "importance_weighting=True weighs a row by 1/(n P_i), but with draw='once' a row is "
            "not drawn in proportion to P_i; use draw='epoch' or draw='batch'."
        )
