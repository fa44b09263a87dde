"""Whether a selector fits the training that a framework begins: its epochs, and its history."""

from __future__ import annotations

import math
import warnings

from d2ace.selectors import Random, Selector, warm_up_sentence


def warn_of_history(selector: Selector) -> None:
    """Say so if training would begin with what another one taught the selector."""
    if selector.has_observed and selector.learns:
        warnings.warn(
            "Training begins, but the selector draws by what it observed in an earlier one; "
            "make a new selector, or load the state that it should begin with.",
            stacklevel=3,
        )


def warn_of_schedule(selector: Selector, epochs: float | None, *, anew: bool = False) -> None:
    """Say so if no epoch would select, or if the schedule ends elsewhere than training.

    A framework that counts ``epochs`` ``anew`` trains them after those of a state that was loaded.
    """
    if isinstance(selector, Random) or epochs is None or epochs <= 0:
        return
    before = selector.epoch - 1 if anew and selector.is_restored else 0
    trained = before + math.ceil(epochs)
    selector.warns_of_warmup = False  # said here, by what is trained
    if selector.warmup >= trained:
        warnings.warn(
            warm_up_sentence(type(selector).__name__, trained, selector.warmup),
            stacklevel=3,
        )
    elif selector.epochs != trained:
        warnings.warn(
            f"The selector was made for {selector.epochs} epochs, but {trained} are trained, so "
            f"its schedule ends elsewhere; make it with epochs={trained}.",
            stacklevel=3,
        )
