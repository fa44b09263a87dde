"""One selector for the processes of ``torch.distributed``, as a batch sampler.

Every process holds the selector, whole or with ``shard=True`` the state of a share of the rows,
and draws the same batches; the loader of each gets the rows of these batches that are its part.
Alone, this is the selector and nothing else.

    batches = DistributedSelector(selector)  # selector.batch_size: rows of all processes together
    loader = DataLoader(d2ace.IndexedDataset(train_set), batch_sampler=batches)
    for index, x, y in loader:
        logits = model(x)
        loss = criterion(logits, y) * batches.loss_scale(index)
        loss.backward(); optimizer.step(); optimizer.zero_grad()
        batches.observe(index, logits=logits)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler

from d2ace._util.errors import UserError
from d2ace._util.observations import given_predictions, host_rows, refuse_shape
from d2ace._util.validation import truth
from d2ace.selectors._engine.loss import refuse_unfit_batch, weighted_loss
from d2ace.selectors._engine.multiprocess import BatchPart, SharedSelector
from d2ace.selectors._engine.sharding import ShardedSelector

from .base import Selector

__all__ = ["DistributedSelector"]

_SHARED_AFTER = 1024  # batches: a bound on those that wait to be shared in a long epoch


class DistributedSelector(Sampler[list[int]]):
    """The part of a selector's batches that is this process's to train on.

    What the processes observe is exchanged when the next epoch starts and when a state is saved,
    so both must happen in all processes.

    Parameters
    ----------
    selector : Selector
        Made alike in every process: same labels, options and seed.
    shard : bool
        Each process keeps the state of its share of the rows, instead of a copy of all. It trains
        rows of its own where it can, and sends predictions for others to the process that keeps
        them. Then ``selector.probabilities``, ``weights``, ``label_weights`` and ``peek()`` are
        also for all processes to ask at the same moment. Save with torch.distributed.checkpoint,
        and resume with any number of processes.
    """

    def __init__(self, selector: Selector, *, shard: bool = False) -> None:
        if not isinstance(selector, Selector):
            raise UserError(f"DistributedSelector needs a Selector, got {type(selector).__name__}.")
        if selector.predictions == "full_pass":
            raise UserError(
                "Only predictions of the training pass are shared, but this selector was made with "
                "predictions='full_pass'; make it with predictions='train'."
            )
        shard = truth("shard", shard)
        self._shared = ShardedSelector(selector) if shard else SharedSelector(selector)
        self._ahead: deque[BatchPart] = deque()  # drawn for the loader, not observed yet

    @property
    def selector(self) -> Selector:
        """The selector all processes hold."""
        return self._shared.selector

    @property
    def batch_size(self) -> int:
        """Rows of a batch, of all processes together."""
        return self.selector.batch_size

    @property
    def learning_rate(self) -> float:
        """The selector's; set it before each step where the rate varies (DIHCL looks at it)."""
        return self.selector.learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self.selector.learning_rate = rate

    @property
    def sampler(self) -> DistributedSelector:
        """Itself: where Lightning and accelerate look for a ``set_epoch``."""
        return self

    def __len__(self) -> int:
        """Number of batches per epoch, the same in every process."""
        return len(self.selector)

    def __iter__(self) -> Iterator[list[int]]:
        """The rows of the next epoch's batches that are this process's."""
        self._join()
        self.share()
        self._ahead.clear()
        for part in self._shared:
            self._ahead.append(part)
            yield part.rows

    def set_epoch(self, epoch: int) -> None:
        """Move the selector to the start of ``epoch``."""
        self.selector.set_epoch(epoch)

    def observe(self, index: Any, *unnamed: Any, logits: Any = None, probs: Any = None) -> None:
        """Tell the logits [b, q] for the rows ``index`` [b], once per batch and in order."""
        values, are_logits = given_predictions(*unnamed, logits=logits, probs=probs)
        if not are_logits:
            raise UserError("The processes share logits, not probabilities; pass logits=logits.")
        part = self._next(index)
        refuse_shape(values, (len(index), self.selector.q), "logits")
        self._ahead.popleft()
        self._shared.observe(part, values)
        if self._shared.waiting >= _SHARED_AFTER:
            self.share()

    def loss_weight(self, index: Any) -> Tensor | None:
        """The selector's weights for these rows' [b, q] loss, or None: call once per batch.

        They are on the device of an ``index`` that is on an accelerator, as a selector's are.
        """
        weight = self._shared.loss_weight(self._next(index))
        return weight.to(index.device) if weight is not None and _far(index) else weight

    def loss(self, logits: Tensor, targets: Tensor, index: Any) -> Tensor:
        """The selector's loss of this process's rows; multiply it by :meth:`loss_scale`."""
        refuse_unfit_batch(logits, targets, len(index), self.selector.q)
        return weighted_loss(logits, targets, self.loss_weight(index))

    def validated(self, loss: Any) -> None:
        """Tell the mean validation loss; the selector gets the mean over the processes.

        All of them must call it at the same moment.
        """
        self._shared.validated(loss)

    def loss_scale(self, index: Any) -> float:
        """What to multiply the batch's mean loss with.

        Processes average their gradients. Where their parts differ in length, this makes the
        average that of the whole batch; it is 1 for parts of equal length.
        """
        return self._next(index).scale

    def share(self) -> None:
        """Exchange the observed predictions; all processes must call it at the same moment."""
        self._shared.share()

    def state_dict(self) -> dict[str, Any]:
        """The selector's state, the same in all processes; all of them must call it."""
        self._join()
        self.share()
        return self._shared.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state that :meth:`state_dict` returned, with any number of processes."""
        self._join()
        self.selector.load_state_dict(state)
        self.forget()

    def forget(self) -> None:
        """Drop batches drawn or observed but not shared; a loaded state replaces them."""
        self._shared.forget()
        self._ahead.clear()

    def _join(self) -> None:
        """Find out which process this is; before training starts, it may be unknown."""
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            rank, world = distributed.get_rank(), distributed.get_world_size()
            if world > self.batch_size:
                raise UserError(
                    f"{world} processes cannot share batches of {self.batch_size} rows; the "
                    "selector's batch_size counts the rows of all processes together."
                )
            self._shared.join(rank, world)

    def _next(self, index: Any) -> BatchPart:
        """The drawn part these rows are; rows on an accelerator are not read back to look."""
        part = self._ahead[0] if self._ahead else None
        drawn = part.rows if part else []
        if _far(index):
            same = len(index) == len(drawn)
        else:
            same = host_rows(index, self.selector.n, unique=False).array.tolist() == drawn
        if part is None or not same:
            raise UserError(
                f"A batch of {len(index)} rows is not the one drawn next; pass the "
                "selector as batch_sampler, too, and observe every batch once, in order."
            )
        return part


def _far(index: Any) -> bool:
    """Whether rows are on an accelerator."""
    return isinstance(index, Tensor) and index.device.type != "cpu"
