"""The rows whose state a process keeps, and what the processes exchange about them.

A single process keeps all rows, and nothing here costs anything. If several processes share the
state, each keeps a block of consecutive rows. A method computes on these rows alone.
:meth:`KeptRows.sum` makes sums over all rows, :meth:`KeptRows.whole` the weights of all rows.
"""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch import Tensor

from d2ace._util import exchange

__all__ = ["KeptRows", "SpreadRows"]


class KeptRows:
    """All rows of [n, ...], kept in one process."""

    spread = False
    """Whether other processes keep other rows."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.start, self.stop = 0, n

    @property
    def count(self) -> int:
        """How many rows are kept here."""
        return self.stop - self.start

    def of(self, rows: Any) -> Any:
        """The rows kept here, of an array, a matrix or a tensor with n rows."""
        return rows

    def sum(self, part: Tensor) -> Tensor:
        """The sum over all rows, from the sums over the rows kept in each process."""
        return part

    def symmetric_sum(self, part: Tensor) -> Tensor:
        """The same of symmetric matrices [q, q]."""
        return part

    def extent(self, part: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the largest value of all rows, from those of the rows kept here."""
        low, high = part.aminmax()
        return low, high

    def whole(self, part: Tensor) -> Tensor:
        """[n], from the values of the rows kept in each process."""
        return part

    def whole_steps(self, part: Tensor) -> Tensor:
        """The same of whole numbers from 0 to n."""
        return part

    def agreed(self, p: Tensor) -> Tensor:
        """The same P [n] to the last bit in all processes."""
        return p

    def saved(self, state: Tensor) -> Tensor:
        """State of the rows kept here as one tensor [n, ...]."""
        return state.clone(memory_format=torch.contiguous_format)  # however it lies in memory

    def loaded(self, state: Tensor) -> Tensor:
        """The rows kept here, of a saved tensor [n, ...]."""
        return state


class SpreadRows(KeptRows):
    """The block of rows that process ``rank`` of ``world`` keeps; the last blocks may be shorter.

    Blocks are those of ``torch.chunk`` and of a ``DTensor`` with ``Shard(0)``, so that
    ``torch.distributed.checkpoint`` can load them into any number of processes.
    """

    spread = True

    def __init__(self, n: int, rank: int, world: int) -> None:
        super().__init__(n)
        self.rank, self.world = rank, world
        self.height = -(-n // world)
        self.start, self.stop = (min(n, self.height * place) for place in (rank, rank + 1))

    def of(self, rows: Any) -> Any:
        return rows[self.start : self.stop]

    def sum(self, part: Tensor) -> Tensor:
        return exchange.summed(part)

    def symmetric_sum(self, part: Tensor) -> Tensor:
        row, column = torch.triu_indices(*part.shape, device=part.device)
        upper = exchange.summed(part[row, column])
        total = torch.empty_like(part)
        total[row, column] = upper
        total[column, row] = upper
        return total

    def extent(self, part: Tensor) -> tuple[Tensor, Tensor]:
        ends = part.new_full((2,), torch.inf)  # where a process keeps no rows
        if len(part):
            ends = torch.stack([part.amin(), -part.amax()])
        low, high = exchange.least(ends)
        return low, -high

    def whole(self, part: Tensor) -> Tensor:
        padded = part.new_zeros(self.height)
        padded[: len(part)] = part
        return exchange.gathered(padded).flatten()[: self.n]

    def whole_steps(self, part: Tensor) -> Tensor:
        kind = torch.int32 if self.n < 1 << 31 else torch.int64  # half the bytes
        return self.whole(part.to(kind)).to(part.dtype)

    def agreed(self, p: Tensor) -> Tensor:
        """All compute it from the same weights; where machines round differently, the first's."""
        mark = zlib.crc32(p.cpu().numpy().data)
        marks = exchange.gathered(torch.tensor([mark], device=p.device))
        return exchange.broadcast(p) if bool((marks != marks[0]).any()) else p

    def saved(self, state: Tensor) -> Tensor:
        """A ``DTensor``, which torch.distributed.checkpoint saves without gathering it."""
        return exchange.spread_tensor(state.clone(), self.n, self.world)

    def loaded(self, state: Tensor) -> Tensor:
        return exchange.own_part(state) if exchange.is_spread(state) else self.of(state)
