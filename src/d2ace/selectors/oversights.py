"""What a training loop forgets unnoticed: it trains all the same, only not so well."""

from __future__ import annotations

import warnings


class Oversights:
    """Remembers what a selector was told and asked, and says when an epoch went by without."""

    def __init__(self, *, learns: bool) -> None:
        self.learns = learns
        self.observed = self.weighed = False

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
