"""The loss that most loops train on, with a selector's weights."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["weighted_loss"]


def weighted_loss(logits: Tensor, targets: Any, weight: Tensor | None) -> Tensor:
    """Mean binary cross-entropy of logits [b, q], pairs weighed by ``weight`` where it is not None.

    Computed in float32 at least, also under autocast.
    """
    if not isinstance(targets, Tensor) or targets.shape != logits.shape:
        found = list(targets.shape) if isinstance(targets, Tensor) else type(targets).__name__
        raise ValueError(
            f"targets must be a tensor of the shape of the logits {list(logits.shape)}, got "
            f"{found}."
        )
    with torch.autocast(logits.device.type, enabled=False):
        wide = logits.float() if logits.dtype.itemsize < 4 else logits
        if weight is not None:
            weight = weight.to(wide).expand_as(wide)
        return F.binary_cross_entropy_with_logits(wide, targets.to(wide), weight)
