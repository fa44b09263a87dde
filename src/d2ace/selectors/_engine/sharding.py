"""One selector whose state several processes share: each keeps a block of the rows.

All draw the same batches. A process trains those rows of a batch that it keeps, as far as parts
stay of equal size; predictions for other rows are sent to the processes that keep them, before the
next epoch's weights are computed. For these, sums over the rows and the weights are exchanged, and
no state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from d2ace._util.errors import ContractError, UserError
from d2ace._util.exchange import least, routed

from .kept_rows import SpreadRows
from .multiprocess import BatchPart, SharedSelector

if TYPE_CHECKING:
    from d2ace.selectors.base import Selector

__all__ = ["ShardedSelector"]

Array = np.ndarray[Any, Any]
_DECIDED_BY = ("make_memory", "update", "instance_weights", "distribution", "epoch_rows")
_VALID = torch.iinfo(torch.int64).max


class ShardedSelector(SharedSelector):
    """A selector as one of ``world`` processes uses it, each of which keeps a block of rows."""

    def __init__(self, selector: Selector) -> None:
        _refuse_unfit(selector)
        super().__init__(selector)

    def join(self, rank: int, world: int) -> None:
        super().join(rank, world)
        selector, kept = self.selector, self.selector.kept
        if isinstance(kept, SpreadRows):
            if (kept.rank, kept.world) != (rank, world):
                raise UserError(
                    f"The selector keeps the rows of process {kept.rank} of {kept.world}, but this "
                    f"is process {rank} of {world}; make it anew, and load the state saved last."
                )
        elif world > 1 and selector.learns:
            selector._keep_only(SpreadRows(selector.n, rank, world))
            _refuse_other_memory(selector)

    def __iter__(self) -> Iterator[BatchPart]:
        if self.world == 1:
            yield from super().__iter__()
            return
        for batch in self.selector:
            places = np.flatnonzero(self._trainers(np.array(batch)) == self.rank).tolist()
            if places:
                scale = len(places) * self.world / len(batch)
                yield BatchPart(batch, [batch[place] for place in places], places, scale)
            else:
                yield self._uncounted(batch)

    def _keepers(self, rows: Array) -> Array:
        """Which process keeps each row."""
        return rows // -(-self.selector.n // self.world)

    def _trainers(self, batch: Array) -> Array:
        """Which process trains each row of a batch: its keeper, until the part of that is full."""
        spans = [self._span(len(batch), rank) for rank in range(self.world)]
        sizes = np.array([end - begin for begin, end in spans])
        trainers = self._keepers(batch)
        counts = np.bincount(trainers, minlength=self.world)
        order = np.argsort(trainers, kind="stable")
        turn = np.arange(len(batch)) - np.repeat(np.cumsum(counts) - counts, counts)
        beyond = np.sort(order[turn >= np.repeat(sizes, counts)])
        trainers[beyond] = np.repeat(np.arange(self.world), np.maximum(sizes - counts, 0))
        return trainers

    def share(self) -> None:
        """Send what was observed to the processes that keep the rows; all must call it at once.

        Where one of them observed an invalid prediction, all refuse that batch, and raise once
        the others have observed the rest.
        """
        if self.world == 1:
            return
        waiting, self._waiting = self._waiting, []  # passed once, whatever happens
        batches = [batch for batch, _, _ in waiting]
        self._refuse_others(batches)
        if not waiting:
            return
        own = torch.cat([logits for _, logits, _ in waiting])
        way = self._way(batches)
        invalid = self._invalid(own, way, len(batches))
        taken = invalid == _VALID
        rows, sizes, logits = self._arrived(own, way, taken)
        for batch, fine, index, values in zip(
            batches, taken, np.split(rows, np.cumsum(sizes)[:-1]), logits.split(sizes), strict=True
        ):
            if fine:
                self.selector._observe_kept(batch, index, values)
        if not taken.all():
            first = int(np.argmin(taken))
            place, label = divmod(int(invalid[first]), self.selector.q)
            raise ValueError(
                f"The prediction for instance {batches[first][place]}, label {label} is NaN or "
                "infinite, so that its batch was passed over in all processes; lower the learning "
                "rate, or make the selector with on_invalid='skip'."
            )

    def _way(self, batches: list[list[int]]) -> _Way:
        sizes = [len(batch) for batch in batches]
        rows = np.concatenate([np.array(batch) for batch in batches])
        trainers = np.concatenate([self._trainers(np.array(batch)) for batch in batches])
        number = np.repeat(np.arange(len(batches)), sizes)
        place = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return _Way(rows, number, place, trainers, self._keepers(rows))

    def _invalid(self, own: Tensor, way: _Way, count: int) -> Array:
        """The first invalid pair of each batch, by its number within the batch, of any process."""
        found = torch.full((count,), _VALID, device=own.device)
        if self.selector.on_invalid == "error":
            mine = np.flatnonzero(way.trainer == self.rank)
            row, label = (~own.isfinite()).nonzero().unbind(1)
            row = row.cpu()
            pair = torch.from_numpy(way.place[mine])[row] * self.selector.q + label.cpu()
            batch = torch.from_numpy(way.batch[mine])[row]
            found = found.cpu().scatter_reduce(0, batch, pair, "amin").to(own.device)
        return least(found).cpu().numpy()

    def _arrived(self, own: Tensor, way: _Way, taken: Array) -> tuple[Array, list[int], Tensor]:
        """The rows kept here that were observed, how many a batch has of them, and their logits."""
        sent = np.flatnonzero(way.trainer == self.rank)
        position = np.arange(len(sent))
        fine = taken[way.batch] & self.selector.learns
        position, sent = position[fine[sent]], sent[fine[sent]]
        position = position[np.argsort(way.keeper[sent], kind="stable")]
        kept = np.flatnonzero((way.keeper == self.rank) & fine)
        order = np.argsort(way.trainer[kept], kind="stable")
        arrived = routed(
            own[_on(position, own)],
            np.bincount(way.keeper[sent], minlength=self.world).tolist(),
            np.bincount(way.trainer[kept], minlength=self.world).tolist(),
        )
        logits = torch.empty_like(arrived)
        logits[_on(order, own)] = arrived
        sizes = np.bincount(way.batch[kept], minlength=len(taken)).tolist()
        return way.rows[kept], sizes, logits


class _Way(NamedTuple):
    """The rows of batches, one after the other, and between which processes they are sent."""

    rows: Array
    batch: Array
    place: Array
    """Within the batch."""
    trainer: Array
    keeper: Array


def _on(places: Array, like: Tensor) -> Tensor:
    return torch.from_numpy(places).to(like.device)


def _refuse_unfit(selector: Selector) -> None:
    """Refuse methods whose weights need more than sums over other rows."""
    name = type(selector).__name__
    if selector.insights is not None:
        raise UserError(
            "With shard=True no process has the predictions of all rows, which insights need; "
            "make the selector with insights=False, or leave shard out."
        )
    if not selector.shardable:
        raise UserError(
            f"{name} with preset={selector.preset!r} needs the state of all rows in every process; "
            "use another method, or leave shard=True out."
        )
    line = type(selector).__mro__
    owner = {
        each: next(place for place, cls in enumerate(line) if each in vars(cls))
        for each in ("shardable", *_DECIDED_BY)
    }
    for each in _DECIDED_BY:
        if owner[each] < owner["shardable"]:
            raise UserError(
                f"{name} has its own {each}, which may need all rows; where it only needs "
                "those of self.kept, give the class a property shardable that is True, or leave "
                "shard=True out."
            )


def _refuse_other_memory(selector: Selector) -> None:
    for name, value in selector.memory.state_dict().items():
        if value.shape[:1] != (selector.kept.count,):
            raise ContractError(
                f"{type(selector).__name__}.make_memory gave {name!r} {list(value.shape)}, but "
                f"this process keeps {selector.kept.count} rows; make it for self.kept.count rows."
            )
