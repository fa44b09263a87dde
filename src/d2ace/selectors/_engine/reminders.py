"""What a training loop forgets unnoticed: it trains all the same, only not so well."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from d2ace.selectors.base import Selector

    from .cursor import Progress

_LOOKING = (
    "to look at batches call selector.peek(), and to measure accuracy take a second loader with "
    "batch_size= and without the selector"
)


class Oversights:
    """Remembers what a selector was told and asked, and says when an epoch went by without."""

    def __init__(self, *, learns: bool) -> None:
        self.learns = learns
        self.observed = self.weighed = self._said_skipping = False
        self._said_unused = self._said_again = False
        self.knows_warm_up = False  # whoever trains has been told that all of it is warm-up

    def trust(self) -> None:
        """Expect nothing: who saved the state we continue may have done it all."""
        self.observed = self.weighed = True

    def warn(self, selector: Selector, progress: Progress, *, selective: bool) -> None:
        """When an epoch begins: of what went wrong before, as far as that is known by now."""
        name = type(selector).__name__
        for sentence in (
            self._all_warm_up(selector, progress, name),
            self._used_up(selector, progress, name),
            *self._forgotten(selector, progress, name, selective=selective),
        ):
            if sentence:
                warnings.warn(sentence, stacklevel=3)

    def _all_warm_up(self, selector: Selector, progress: Progress, name: str) -> str | None:
        """No epoch will be anything but a plain shuffle."""
        known = self.knows_warm_up or progress.drawn_epoch
        if known or selector.warmup < selector.epochs or not selector._changes_batches:
            return None
        self.knows_warm_up = True
        return (
            f"All {selector.epochs} epochs of {name} are warm-up (warmup={selector.warmup}), so "
            "it draws at random; make it with more epochs, or less warmup."
        )

    def _used_up(self, selector: Selector, progress: Progress, name: str) -> str | None:
        """Somebody iterates for another reason than training."""
        if progress.drawn_from:
            return (
                f"A second loop over {name} begins epoch {progress.upcoming}, so the first one "
                f"ends after {progress.place}: {_LOOKING}."
            )
        if progress.again and progress.ledger.observed_any and not self._said_again:
            self._said_again = True
            return (
                f"Epoch {progress.drawn_epoch} of {name}, left after {progress.ledger.trained} "
                f"batches, begins again, as set_epoch named it again: call selector.end_epoch() "
                "where a loop leaves an epoch early (accelerate counts only those that came to "
                "their end)."
            )
        waits = self.learns and selector.predictions == "train"  # for each batch's predictions
        if not waits or self._said_unused or not progress.unused:
            return None
        self._said_unused = True
        return (
            f"Epoch {progress.drawn_epoch} of {name} was drawn, but none of its batches observed, "
            f"and now epoch {progress.upcoming} begins: every loop uses up an epoch; {_LOOKING}, "
            f"or go back with selector.set_epoch({progress.drawn_epoch})."
        )

    def _forgotten(
        self, selector: Selector, progress: Progress, name: str, *, selective: bool
    ) -> list[str]:
        """After a whole epoch: is the next one ``selective``, and did that one weigh the loss?"""
        if not progress.drawn_epoch or progress.running:
            return []
        sentences = []
        if selective and self.learns and not self.observed:
            sentences.append(
                f"{name} draws without having seen a single prediction: call "
                f"observe(index, logits=...) for every batch that was trained on."
            )
        if selector._weighs_loss(progress.drawn_epoch) and not self.weighed:
            sentences.append(
                f"{name} weighs the loss, but a whole epoch went by without anybody asking: "
                f"multiply the loss of every batch by loss_weight(index) where that is not None."
            )
        return sentences

    def warn_of_skipping(self, progress: Progress, *, full_pass: bool) -> None:
        """On saving, once: batches drawn cannot be told from those trained."""
        if self._said_skipping or not progress.may_skip(full_pass=full_pass):
            return
        self._said_skipping = True
        if full_pass:
            why = "with predictions='full_pass' no batch is observed"
            remedy = "save between epochs, or load without workers"
        elif not progress.ledger.observed_any:
            why = "no batch was observed"
            remedy = (
                "call observe for each, or load without workers (torchdata's StatefulDataLoader "
                "saves while workers draw ahead: take torch's DataLoader)"
            )
        else:
            why = "batches were not observed in the order drawn"
            remedy = "observe them in that order, whole or in consecutive parts"
        warnings.warn(
            f"This state goes on after {progress.place}, the last one drawn, because {why}; what "
            f"loader workers drew ahead of training will be skipped: {remedy}.",
            stacklevel=5,
        )


def warn_of_going_back(before: Progress, after: Progress) -> None:
    """On loading: a state replaces a later one that was loaded and not used yet.

    A loader that restores the selector by itself does so when its loop begins, after everybody
    else has loaded.
    """
    if not before.untouched or after.next_batch >= before.next_batch:
        return
    (epoch, batch), (later_epoch, later_batch) = after.next_batch, before.next_batch
    warnings.warn(
        f"This state goes on with batch {batch} of epoch {epoch}, but the one loaded before, from "
        f"which nothing was drawn, with batch {later_batch} of epoch {later_epoch}: if a loader "
        "did this (torchdata's StatefulDataLoader saves while workers draw ahead), batches are "
        "trained twice; take torch's DataLoader, and load the selector's state alone.",
        stacklevel=4,
    )
