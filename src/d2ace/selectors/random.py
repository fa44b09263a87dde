"""Random: every epoch is a uniform shuffle, as in any PyTorch loop."""

from __future__ import annotations

from typing import ClassVar

from . import reference
from .base import Selector


class Random(Selector):
    """Uniform shuffles without replacement, as a loader with ``shuffle=True`` does.

    ``preset="reference"`` keeps the stored order, as in the authors' comparison notebook.
    """

    name: ClassVar[str] = "random"
    title: ClassVar[str] = "Random"
    reference = reference.RANDOM
    uses_features: ClassVar[bool] = False

    @property
    def shardable(self) -> bool:
        return True

    def selects(self, epoch: int) -> bool:
        return False
