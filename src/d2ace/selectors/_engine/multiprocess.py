"""One selector for several processes: each trains its part of the same global batches.

Every process holds the whole selector, draws the same batches from the same state, and trains on
the rows that are its part. What the processes observed is exchanged at the end of an epoch.
Then every selector observes it batch by batch, in the order of a single process. So two
processes with batches of b draw what one process with batches of 2b does.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from d2ace._util.errors import UserError
from d2ace._util.exchange import gathered, summed
from d2ace._util.validation import scalar_loss
from d2ace._util.version import VERSION

from .state import identity

if TYPE_CHECKING:
    from d2ace.selectors.base import Selector

__all__ = ["BatchPart", "SharedSelector"]


@dataclass(frozen=True)
class BatchPart:
    """A global batch and the rows of it that this process trains on."""

    batch: list[int]
    rows: list[int]
    """The rows of this process."""
    places: range | list[int]
    """Where in the batch they are."""
    scale: float
    """Makes the mean of the processes' losses the mean loss of the global batch."""


_Observed = tuple[list[int], Tensor, float]
"""A batch trained on, the logits of this process, and the learning rate of the step."""


class SharedSelector:
    """A selector as one of ``world`` processes uses it; alone it adds nothing."""

    def __init__(self, selector: Selector, rank: int = 0, world: int = 1) -> None:
        self.selector = selector
        self.rank, self.world = rank, world
        self._waiting: list[_Observed] = []

    def __iter__(self) -> Iterator[BatchPart]:
        for batch in self.selector:
            begin, end = self._span(len(batch), self.rank)
            scale = (end - begin) * self.world / len(batch)
            if begin == end:  # fewer rows than processes
                yield self._uncounted(batch)
            else:
                yield BatchPart(batch, batch[begin:end], range(begin, end), scale)

    def _uncounted(self, batch: list[int]) -> BatchPart:
        """A row for a process without a part, which takes part in the step all the same."""
        return BatchPart(batch, batch[:1], range(1), 0.0)

    def loss_weight(self, part: BatchPart) -> Tensor | None:
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
        places = part.places
        if isinstance(places, range):
            return weight[places.start : places.stop]
        return weight[torch.tensor(places, device=weight.device)]

    def observe(self, part: BatchPart, logits: Tensor) -> None:
        """Pass the predictions for the rows of this process."""
        if self.world == 1:
            self.selector.observe(part.batch, logits=logits)
        else:
            own = logits.detach() if part.scale else logits.detach()[:0]
            # A copy: they wait long, and a training loop may compute in place.
            kept = own.to(self.selector.dtype, copy=True)
            self._waiting.append((part.batch, kept, float(self.selector.learning_rate)))

    def join(self, rank: int, world: int) -> None:
        """Be one of ``world`` processes from now on."""
        self.rank, self.world = rank, world

    def validated(self, loss: Any) -> None:
        """Pass the mean of the processes' validation losses; all must call it at the same moment.

        They may differ, where each process validates rows of its own or rounds otherwise. What was
        observed is shared first, as a method may compare both losses.
        """
        if self.world > 1:
            self.share()
            loss = self._mean_loss(loss)
        self.selector.validated(loss)

    def _mean_loss(self, loss: Any) -> float:
        """Over the processes; where one has none, it says why, and the others get a NaN."""
        refusal: Exception | None = None
        try:
            own = scalar_loss(loss)
        except (TypeError, ValueError) as problem:  # the others wait for this one
            own, refusal = math.nan, problem
        total = summed(torch.tensor(own, dtype=torch.float64))
        if refusal is not None:
            raise refusal
        return total.item() / self.world

    @property
    def waiting(self) -> int:
        """How many batches were observed but not shared."""
        return len(self._waiting)

    def share(self) -> None:
        """Exchange what was observed; every process must call it at the same moment.

        All selectors observe the same, so where one refuses a batch, all do: the first refusal is
        raised once the other batches are observed.
        """
        if self.world == 1:
            return
        waiting, self._waiting = self._waiting, []  # passed once, whatever happens
        self._refuse_others([batch for batch, _, _ in waiting])
        if not waiting:
            return
        own = torch.cat([logits for _, logits, _ in waiting])
        pieces = self._gathered([len(batch) for batch, _, _ in waiting], own)
        now = self.selector.learning_rate
        refusal: Exception | None = None
        try:
            for (batch, _, rate), logits in zip(waiting, pieces, strict=True):
                self.selector.learning_rate = rate
                try:
                    self.selector.observe(batch, logits=logits)
                except Exception as problem:
                    refusal = refusal or problem
        finally:
            self.selector.learning_rate = now
        if refusal is not None:
            raise refusal

    def _refuse_others(self, batches: list[list[int]]) -> None:
        """Refuse, in all processes, selectors that differ: they would swap rows' predictions.

        Asked before predictions are sent, since those of other selectors differ in shape.
        """
        made = self._made()
        own = [len(batches), _checksum(batches), *map(_checksum, made.values())]
        told = gathered(torch.tensor(own, device=self.selector.state_device))
        counts, drawn, *others = (told != told[0]).any(0).tolist()
        odd = ", ".join(name for name, differs in zip(made, others, strict=True) if differs)
        if counts and not odd:
            numbers = ", ".join(map(str, told[:, 0].tolist()))
            raise UserError(
                f"The {self.world} processes observed {numbers} batches, so what they observed was "
                "dropped; observe every batch that was drawn in every process, and leave an epoch "
                "early in all of them at the same batch."
            )
        if drawn or odd:
            what = f"were not made alike ({odd})" if odd else "did not draw the same batches"
            raise UserError(
                f"The selectors of the {self.world} processes {what}, so predictions would go to "
                "other rows; give the selector the same labels (in the same order), options, seed "
                "and loaded state in every process."
            )

    def _made(self) -> dict[str, Any]:
        """What the selectors of all processes must have in common, by the words for it."""
        selector = self.selector
        return {
            **identity(selector),
            "seed": selector.seed,
            "dtype": selector.dtype,
            "on_invalid": selector.on_invalid,
            "insights": selector.insights is not None,
            "shard": type(self).__name__,
            "version of d2ace": VERSION,
        }

    def _gathered(self, lengths: list[int], own: Tensor) -> Iterator[Tensor]:
        """The logits of batches of these lengths, whole, from the parts of all processes."""
        spans = [[self._span(length, rank) for length in lengths] for rank in range(self.world)]
        parts = [[end - begin for begin, end in of_rank] for of_rank in spans]
        padded = own.new_zeros(max(map(sum, parts)), own.shape[1])
        padded[: len(own)] = own
        split = [
            rows[: sum(sizes)].split(sizes)
            for rows, sizes in zip(gathered(padded), parts, strict=True)
        ]
        return map(torch.cat, zip(*split, strict=True))

    def forget(self) -> None:
        """Drop what was observed but not shared: it belongs to a future that was given up."""
        self._waiting.clear()

    def _span(self, length: int, rank: int) -> tuple[int, int]:
        return length * rank // self.world, length * (rank + 1) // self.world

    def state_dict(self) -> dict[str, Any]:
        """The selector's state with everything observed in it; see :meth:`share`."""
        if self._waiting:
            raise RuntimeError("observations have not been shared yet; call share() first.")
        return self.selector.state_dict()


def _checksum(value: Any) -> int:
    """Of plain values, the same in every process."""
    return zlib.crc32(repr(value).encode())
