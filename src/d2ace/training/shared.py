"""One selector for several processes: each trains its part of the same global batches.

Every process holds the whole selector, draws the same batches from the same state, and trains on
the rows that are its part. What the processes observed is exchanged at the end of an epoch and
told to every selector batch by batch, in the order a single process would have told it. So two
processes with batches of b draw what one process with batches of 2b does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from d2ace.selectors import Selector

__all__ = ["Part", "SharedSelector"]


@dataclass(frozen=True)
class Part:
    """A global batch and the rows of it that this process trains on."""

    batch: list[int]
    begin: int
    end: int
    scale: float
    """Makes the mean of the processes' losses the mean loss of the global batch."""

    @property
    def rows(self) -> list[int]:
        """The rows of this process."""
        return self.batch[self.begin : self.end]


class SharedSelector:
    """A selector as one of ``world`` processes uses it; alone it adds nothing."""

    def __init__(self, selector: Selector, rank: int = 0, world: int = 1) -> None:
        self.selector = selector
        self.rank, self.world = rank, world
        self._waiting: list[tuple[list[int], Tensor, float]] = []
        """Batches trained on, the logits of this process, and the learning rate of the step."""

    def __iter__(self) -> Iterator[Part]:
        for batch in self.selector:
            begin, end = self._span(len(batch), self.rank)
            if begin < end:
                yield Part(batch, begin, end, (end - begin) * self.world / len(batch))
            else:  # fewer rows than processes: take part in the step, but count for nothing
                yield Part(batch, 0, 1, 0.0)

    def loss_weight(self, part: Part) -> Tensor | None:
        """The selector's weights for the rows of this process: [b], [b, 1] or [b, q] of them.

        A selector may give what is the same for all rows once, as [1, q], [q] or one number; a
        vector as long as the batch is one weight for each row.
        """
        weight = self.selector.loss_weight(part.batch)
        if weight is None:
            return None
        rows = len(part.batch)
        if weight.shape[:1] != (rows,):
            weight = weight.expand(rows, self.selector.q)
        return weight[part.begin : part.end]

    def observe(self, part: Part, logits: Tensor) -> None:
        """Tell the predictions for the rows of this process."""
        if self.world == 1:
            self.selector.observe(part.batch, logits=logits)
        else:
            kept = logits.detach().float()
            rate = float(self.selector.learning_rate)
            self._waiting.append((part.batch, kept if part.scale else kept[:0], rate))

    def share(self) -> None:
        """Exchange what was observed; every process must call it at the same moment."""
        if self.world == 1 or not self._waiting:
            return
        own = torch.cat([logits for _, logits, _ in self._waiting])
        told = [sum(end - begin for begin, end in self._spans(rank)) for rank in range(self.world)]
        padded = own.new_zeros(max(told), own.shape[1])
        padded[: len(own)] = own
        gathered = [torch.empty_like(padded) for _ in range(self.world)]
        torch.distributed.all_gather(gathered, padded)
        places = [0] * self.world
        now = self.selector.learning_rate
        for batch, _, rate in self._waiting:
            pieces = []
            for rank in range(self.world):
                begin, end = self._span(len(batch), rank)
                pieces.append(gathered[rank][places[rank] : places[rank] + end - begin])
                places[rank] += end - begin
            self.selector.learning_rate = rate
            self.selector.observe(batch, logits=torch.cat(pieces))
        self.selector.learning_rate = now
        self._waiting.clear()

    def forget(self) -> None:
        """Drop what was observed but not shared: it belongs to a future that was given up."""
        self._waiting.clear()

    def _spans(self, rank: int) -> list[tuple[int, int]]:
        return [self._span(len(batch), rank) for batch, _, _ in self._waiting]

    def _span(self, length: int, rank: int) -> tuple[int, int]:
        return length * rank // self.world, length * (rank + 1) // self.world

    def state_dict(self) -> dict[str, Any]:
        """The selector's state with everything observed in it; see :meth:`share`."""
        if self._waiting:
            raise RuntimeError("observations have not been shared yet; call share() first.")
        return self.selector.state_dict()
