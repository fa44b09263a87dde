"""The loss that most loops train on, with a selector's weights."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d2ace._util.observations import refuse_shape

__all__ = ["refuse_unfit_batch", "weighted_loss"]


def refuse_unfit_batch(logits: Any, targets: Any, rows: int, q: int) -> None:
    """Refuse what no loss can be made of, before weights are asked for."""
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        found = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise TypeError(f"logits must be a floating-point tensor [b, q], got {found}.")
    refuse_shape(logits, (rows, q), "logits")
    _refuse_targets(targets, logits)


def weighted_loss(logits: Tensor, targets: Any, weight: Tensor | None) -> Tensor:
    """Mean binary cross-entropy of logits [b, q], pairs weighed by ``weight`` where it is not None.

    Computed in float32 at least, also under autocast.
    """
    _refuse_targets(targets, logits)
    with torch.autocast(logits.device.type, enabled=False):
        wide = logits.float() if logits.dtype.itemsize < 4 else logits
        if weight is not None:
            weight = weight.to(wide).expand_as(wide)
        return F.binary_cross_entropy_with_logits(wide, targets.to(wide), weight)


def _refuse_targets(targets: Any, logits: Tensor) -> None:
    if not isinstance(targets, Tensor) or targets.shape != logits.shape:
        found = list(targets.shape) if isinstance(targets, Tensor) else type(targets).__name__
        raise ValueError(
            f"targets must be a tensor of the shape of the logits {list(logits.shape)}, got "
            f"{found}."
        )
    if targets.layout != torch.strided:
        raise TypeError(f"targets must be dense, got layout {targets.layout}.")
