"""U and H of a pair, each as one expression for torch.compile.

The same as in scores, where eager torch takes step by step what it can do in place.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

CLAMP = 1e-7  # probabilities enter the loss clamped to [CLAMP, 1 - CLAMP]
LEAST, MOST = math.log(CLAMP), math.log1p(-CLAMP)


def uncertainty(
    out: Tensor, last: Tensor, changes: list[Tensor], per_change: Tensor, per_nat: float
) -> None:
    """U of a block of rows, from the last predictions and each slot of differences."""
    tiny = torch.finfo(last.dtype).tiny  # x ln x is then exactly 0 at 0
    rest = 1.0 - last
    negative = last * last.clamp_min(tiny).log() + rest * rest.clamp_min(tiny).log()
    total = changes[0]
    for change in changes[1:]:
        total = total + change
    out.copy_(total * per_change - negative * per_nat)


def hardness(out: Tensor, last: Tensor, flips: Tensor, above: float | None) -> None:
    """H of a block of rows as if no label were present; ``above`` is None for cross-entropy."""
    if above is None:
        loss = (1.0 - last).log().clamp(LEAST, MOST).neg()  # off by up to 6e-8, and quicker
    else:
        loss = last.clamp(CLAMP, 1.0 - CLAMP) + above
    out.copy_(loss * (1.0 - flips))
