"""The flat view of a selector, for ``sampler=`` slots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import Sampler

if TYPE_CHECKING:
    from d2ace.selectors.base import Selector


class FlatSampler(Sampler[int]):
    """A selector's epochs as single rows; a loader of the same batch size cuts the same batches."""

    def __init__(self, selector: Selector) -> None:
        self.selector = selector

    def __iter__(self) -> Iterator[int]:
        for batch in self.selector:
            yield from batch

    def __len__(self) -> int:
        return self.selector.rows_per_epoch

    def set_epoch(self, epoch: int) -> None:
        self.selector.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        return self.selector.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.selector.load_state_dict(state)
