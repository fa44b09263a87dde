"""What a training loop forgets unnoticed: it trains all the same, only not so well."""

from __future__ import annotations

import warnings


class Oversights:
    """Remembers what a selector was told and asked, and says when an epoch went by without."""

    def __init__(self, *, learns: bool) -> None:
        self.learns = learns
        self.observed = self.weighed = self._said_skipping = False
        self.knows_warm_up = False  # whoever trains has been told that all of it is warm-up

    def trust(self) -> None:
        """Expect nothing: who saved the state we continue may have done it all."""
        self.observed = self.weighed = True

    def warn(self, name: str, *, selective: bool, weighs: bool) -> None:
        """After an epoch: is the next one ``selective``, and did that one weigh the loss?"""
        if selective and self.learns and not self.observed:
            warnings.warn(
                f"{name} draws without having seen a single prediction: call "
                f"observe(index, logits=...) for every batch that was trained on.",
                stacklevel=3,
            )
        if weighs and not self.weighed:
            warnings.warn(
                f"{name} weighs the loss, but a whole epoch went by without anybody asking: "
                f"multiply the loss of every batch by loss_weight(index) where that is not None.",
                stacklevel=3,
            )

    def warn_of_warm_up(self, name: str, epochs: int, warmup: int) -> None:
        """When the first epoch begins: no epoch will be anything but a plain shuffle."""
        if not self.knows_warm_up:
            self.knows_warm_up = True
            warnings.warn(
                f"All {epochs} epochs of {name} are warm-up (warmup={warmup}), so it draws at "
                f"random; make it with more epochs, or less warmup.",
                stacklevel=3,
            )

    def warn_of_skipping(self, place: str, *, full_pass: bool) -> None:
        """On saving, once: batches drawn, up to ``place``, cannot be told from those trained."""
        if self._said_skipping:
            return
        self._said_skipping = True
        if full_pass:
            why = "with predictions='full_pass' no batch is observed"
            remedy = "save between epochs, or load without workers"
        else:
            why = "batches were not observed in the order drawn"
            remedy = "observe them in that order, whole or in consecutive parts"
        warnings.warn(
            f"This state goes on after {place}, the last one drawn, because {why}; what loader "
            f"workers drew ahead of training will be skipped: {remedy}.",
            stacklevel=5,
        )
