"""Warnings to a training loop that forgets something: it would train on, only not so well."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from d2ace.selectors.base import Selector

    from .cursor import Cursor

_UNTOLD = 2  # epochs without a validation loss before a method warns that it waits for one
_LOOKING = (
    "to look at batches call selector.peek(), and to measure accuracy take a second loader with "
    "batch_size= and without the selector"
)


def warm_up_sentence(name: str, epochs: int, warmup: int) -> str:
    """The warning at the start of a training in which a selector will do nothing."""
    return (
        f"All {epochs} epochs are warm-up (warmup={warmup}), so {name} draws at random; give more "
        "epochs, or less warmup."
    )


class Reminders:
    """Records the calls of a loop, and warns if an epoch passes without them."""

    def __init__(self) -> None:
        self.observed = self.weighed = self._trusting = False
        self._said_skipping = self._said_unused = self._said_again = self._said_untold = False

    def trust(self) -> None:
        """Expect nothing: the loop that saved the loaded state may have made all calls."""
        self.observed, self._trusting = False, True

    def warn(self, selector: Selector, cursor: Cursor, *, selective: bool) -> None:
        """When an epoch begins: of mistakes in earlier epochs, as far as they are known."""
        name = type(selector).__name__
        for sentence in (
            self._all_warm_up(selector, cursor, name),
            self._used_up(selector, cursor, name),
            *self._forgotten(selector, cursor, name, selective=selective),
            self._untold(selector, cursor, name),
            selector.warning if cursor.upcoming == selector.warmup + 1 else None,
        ):
            if sentence:
                warnings.warn(sentence, stacklevel=3)

    def _all_warm_up(self, selector: Selector, cursor: Cursor, name: str) -> str | None:
        """No epoch will be anything but a plain shuffle."""
        known = not selector.warns_of_warmup or cursor.drawn_epoch
        later = selector.warmup + 1
        changes = selector.learns or selector.selects(later) or selector.weighs_loss(later)
        if known or selector.warmup < selector.epochs or not changes:
            return None
        selector.warns_of_warmup = False
        return warm_up_sentence(name, selector.epochs, selector.warmup)

    def _used_up(self, selector: Selector, cursor: Cursor, name: str) -> str | None:
        """Somebody iterates for another reason than training."""
        if cursor.drawn_from:
            return (
                f"A second loop over {name} begins epoch {cursor.upcoming}, so the first one "
                f"ends after {cursor.place}: {_LOOKING}."
            )
        if cursor.again and cursor.ledger.observed_any and not self._said_again:
            self._said_again = True
            return (
                f"Epoch {cursor.drawn_epoch} of {name}, left after {cursor.ledger.trained} "
                f"batches, begins again, as set_epoch named it again: call selector.end_epoch() "
                "where a loop leaves an epoch early (accelerate counts only those that came to "
                "their end)."
            )
        waits = selector.learns and selector.predictions == "train"  # for each batch's predictions
        if not waits or self._said_unused or not cursor.unused:
            return None
        self._said_unused = True
        return (
            f"Epoch {cursor.drawn_epoch} of {name} was drawn, but none of its batches observed, "
            f"and now epoch {cursor.upcoming} begins: every loop uses up an epoch; {_LOOKING}, "
            f"or go back with selector.set_epoch({cursor.drawn_epoch})."
        )

    def _forgotten(
        self, selector: Selector, cursor: Cursor, name: str, *, selective: bool
    ) -> list[str]:
        """After a whole epoch: is the next one ``selective``, and did that one weigh the loss?"""
        if not cursor.drawn_epoch or cursor.running or self._trusting:
            return []
        sentences = []
        weighs = selector.weighs_loss(cursor.upcoming)
        if (selective or weighs) and selector.learns and not self.observed:
            sentences.append(
                f"{name} {'draws' if selective else 'weighs the loss'} without having seen a "
                f"single prediction: call "
                f"observe(index, logits=...) for every batch that was trained on."
            )
        if selector.weighs_loss(cursor.drawn_epoch) and not self.weighed:
            sentences.append(
                f"{name} weighs the loss, but a whole epoch went by without anybody asking: "
                f"multiply the loss of every batch by loss_weight(index) where that is not None, "
                f"or train on selector.loss(logits, targets, index)."
            )
        return sentences

    def _untold(self, selector: Selector, cursor: Cursor, name: str) -> str | None:
        """After a few epochs: a method that starts by the validation loss will not start."""
        waits = selector.awaits_validation and cursor.drawn_epoch >= _UNTOLD
        if not waits or self._said_untold:
            return None
        self._said_untold = True
        return (
            f"{name} waits for a validation loss, but {cursor.drawn_epoch} epochs went by without "
            "one, and without it nothing starts: call selector.validated(loss) with the mean loss "
            "on validation rows after every epoch (frameworks' integrations do where they "
            "validate), or name the epoch to start with, start=."
        )

    def warn_of_skipping(self, cursor: Cursor, *, full_pass: bool) -> None:
        """On saving, once: batches drawn and batches trained cannot be distinguished."""
        if self._said_skipping or not cursor.may_skip(full_pass=full_pass):
            return
        self._said_skipping = True
        if full_pass:
            why = "with predictions='full_pass' no batch is observed"
            remedy = "save between epochs, or load without workers"
        elif not cursor.ledger.observed_any:
            why = "no batch was observed"
            remedy = (
                "call observe for each, or load without workers (torchdata's StatefulDataLoader "
                "saves while workers draw ahead: take torch's DataLoader)"
            )
        else:
            why = "batches were not observed in the order drawn"
            remedy = "observe them in that order, whole or in consecutive parts"
        warnings.warn(
            f"This state resumes after {cursor.place}, the last one drawn, because {why}; what "
            f"loader workers drew ahead of training will be skipped: {remedy}.",
            stacklevel=5,
        )


def warn_of_going_back(before: Cursor, after: Cursor) -> None:
    """On loading: a state replaces a later one that was loaded and not used yet.

    A loader that restores the selector by itself does so when its loop begins, after everybody
    else has loaded.
    """
    if not before.untouched or after.next_batch >= before.next_batch:
        return
    (epoch, batch), (later_epoch, later_batch) = after.next_batch, before.next_batch
    warnings.warn(
        f"This state resumes with batch {batch} of epoch {epoch}, but the one loaded before, from "
        f"which nothing was drawn, with batch {later_batch} of epoch {later_epoch}: if a loader "
        "did this (torchdata's StatefulDataLoader saves while workers draw ahead), batches are "
        "trained twice; take torch's DataLoader, and load the selector's state alone.",
        stacklevel=4,
    )
