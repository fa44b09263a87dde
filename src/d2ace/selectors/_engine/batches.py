"""The batches of an epoch, drawn as a selector's options ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor

from d2ace.selectors import drawing, whole_epochs

if TYPE_CHECKING:
    from d2ace.selectors.base import Selector

WAYS = {"batch": drawing.weighted, "epoch": whole_epochs.systematic, "once": whole_epochs.once}
"""What ``draw`` may be."""


def batches_of(
    selector: Selector, epoch: int, rows: int, drawn: Tensor | None, start: int = 0
) -> Iterator[list[int]]:
    """``rows`` rows drawn from P, or a plain shuffle of them, from batch ``start`` on."""
    key = (selector.seed, epoch)
    sizes = batch_sizes(selector, rows, selective=drawn is not None)
    if drawn is not None:
        independent = {"replacement": True} if selector.replacement else {}
        return WAYS[selector.draw](drawn, sizes, key, start, **independent)
    if selector.is_reference and selector.reference.stored_order:
        return drawing.in_order(selector.n, sizes, key, start)
    return drawing.shuffled(selector.n, sizes, key, start)


def batch_sizes(selector: Selector, rows: int, *, selective: bool) -> list[int]:
    """How many rows each batch has."""
    full = selector.is_reference and selector.reference.full_batches
    full = full and selective and selector.draw == "batch"
    return drawing.batch_sizes(rows, selector.batch_size, full=full)
