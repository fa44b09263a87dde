"""Does a selector fit the training that a framework begins: its epochs, and its history?"""

from __future__ import annotations

import math
import warnings

from d2ace.selectors import Random, Selector, warm_up_sentence


def warn_of_history(selector: Selector) -> None:
    """Warn if the selector holds observations from an earlier training."""
    if selector.has_observed and selector.learns:
        warnings.warn(
            "Training starts anew, but the selector still uses what it observed in an earlier "
            "training; make a new selector, or load the state to start from.",
            stacklevel=3,
        )


def warn_of_schedule(selector: Selector, epochs: float | None, *, anew: bool = False) -> None:
    """Warn if no epoch would select, or if the schedule and the training differ in length.

    A framework that counts ``epochs`` ``anew`` trains them after the epochs of a loaded state.
    """
    if isinstance(selector, Random) or epochs is None or epochs <= 0:
        return
    before = selector.epoch - 1 if anew and selector.is_restored else 0
    trained = before + math.ceil(epochs)
    selector.warns_of_warmup = False  # the warning here knows the epochs
    if selector.warmup >= trained:
        warnings.warn(
            warm_up_sentence(type(selector).__name__, trained, selector.warmup),
            stacklevel=3,
        )
    elif selector.epochs != trained:
        warnings.warn(
            f"The selector was made for {selector.epochs} epochs, but {trained} are trained, so "
            f"its schedule does not fit; make it with epochs={trained}.",
            stacklevel=3,
        )
