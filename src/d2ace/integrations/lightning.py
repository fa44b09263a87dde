"""Batch selection under Lightning's Trainer: a callback that tells the selector what was predicted.

    selector = d2ace.D2ACE(Y_train, X_train, batch_size=128, epochs=100)
    loader = DataLoader(d2ace.IndexedDataset(train_set), batch_sampler=selector)
    trainer = Trainer(max_epochs=100, callbacks=[SelectionCallback(selector)])
    trainer.fit(module, loader)  # training_step returns {"loss": loss, "logits": logits}

A method that weighs the loss (Trim, Balance, InfoBatch) needs a line in ``training_step``:
``loss = selector.loss(logits, targets, index)``.

With several processes the loader and the callback take ``DistributedSelector(selector)`` in place
of the selector, and the Trainer ``use_distributed_sampler=False``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from d2ace._util.errors import RunError, UserError
from d2ace.selectors import DistributedSelector, Selector

from ._schedule import warn_of_history, warn_of_schedule
from ._torchvision import mend_torchvision

mend_torchvision()
try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise RunError(
        f'SelectionCallback needs {error.name}; run: pip install "d2ace[lightning]"'
    ) from error

__all__ = ["SelectionCallback"]


class SelectionCallback(Callback):
    """Observes every training batch, and saves the selector in Lightning's checkpoints.

    A training batch must say which rows it holds: ``d2ace.IndexedDataset`` puts their numbers
    first; in a dictionary they stand under "index". ``training_step`` must return the logits
    beside the loss: ``{"loss": loss, "logits": logits}``.

    Parameters
    ----------
    selector : Selector or DistributedSelector
        What the training loader has as its ``batch_sampler``.
    monitor : str
        The name under which the module logs its mean validation loss, which Trim starts by.
    """

    def __init__(
        self, selector: Selector | DistributedSelector, *, monitor: str = "val_loss"
    ) -> None:
        if not isinstance(selector, Selector | DistributedSelector):
            raise UserError(f"SelectionCallback needs a Selector, got {type(selector).__name__}.")
        self.batches = selector
        self.monitor = monitor
        self._fitting = True
        self.selector = selector if isinstance(selector, Selector) else selector.selector
        if self.selector.predictions == "full_pass":
            raise UserError(
                "SelectionCallback observes the training pass, but this selector was made with "
                "predictions='full_pass'; make it with predictions='train'."
            )

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse settings under which every process would train the same rows."""
        self._fitting = stage == "fit"
        if not self._fitting or trainer.world_size == 1:
            return
        if isinstance(self.batches, Selector):
            raise UserError(
                f"A selector alone would give all {trainer.world_size} processes the same rows; "
                "give loader and callback a DistributedSelector(selector) "
                "(d2ace.selectors.distributed)."
            )
        connector = getattr(trainer, "_accelerator_connector", None)
        if getattr(connector, "use_distributed_sampler", False):
            raise UserError(
                "With several processes Lightning would put a sampler of its own in the selector's "
                "place; pass Trainer(use_distributed_sampler=False)."
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare the selector's schedule with the Trainer's, and look at its history and loader.

        A Trainer that goes on in the middle of an epoch does not tell that this epoch starts.
        """
        self.selector.verify(trainer.train_dataloader)
        if trainer.global_step == 0:
            warn_of_history(self.selector)
        if not getattr(trainer, "fast_dev_run", False):
            anew = trainer.global_step == 0
            warn_of_schedule(self.selector, trainer.max_epochs, anew=anew)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make sure that the loader, as Lightning prepared it, draws from the selector."""
        self.selector.verify(trainer.train_dataloader)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Note the learning rate; some methods read it."""
        if trainer.optimizers:
            self.selector.learning_rate = float(trainer.optimizers[0].param_groups[0]["lr"])
        self._index = _index(batch)

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: Tensor
    ) -> None:
        """Weigh processes by the rows they have, so that their mean gradient is the batch's."""
        if isinstance(self.batches, Selector) or trainer.world_size == 1:
            return
        scale = self.batches.loss_scale(self._index)
        if scale != 1.0:
            loss.register_hook(lambda gradient: gradient * scale)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Tell the selector what the batch's predictions were."""
        self.batches.observe(self._index, logits=_logits(outputs, batch_idx))
        if batch_idx + 1 >= trainer.num_training_batches:  # it may be less than the loader has
            self.selector.end_epoch()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave an epoch that the module cut short."""
        self.selector.end_epoch()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell the selector the validation loss that was logged."""
        if not self._fitting or trainer.sanity_checking:
            return
        logged = trainer.callback_metrics
        if self.monitor in logged:
            self.batches.validated(logged[self.monitor])
        elif self.selector.awaits_validation:
            warnings.warn(
                f"{self.selector.title} starts by the validation loss, but the module logs no "
                f"{self.monitor!r} (logged: {', '.join(sorted(logged)) or 'nothing'}); log the "
                "mean loss under that name in validation_step, or give its name with "
                "SelectionCallback(selector, monitor=...).",
                stacklevel=2,
            )

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Refuse to resume without a selector: it would begin again where training goes on."""
        if self._fitting and self.state_key not in checkpoint["callbacks"]:
            raise UserError(
                "The checkpoint holds no selector's state, so training cannot go on from it; take "
                "one saved with SelectionCallback, or load the weights alone with "
                "load_from_checkpoint and fit without ckpt_path."
            )

    def state_dict(self) -> dict[str, Any]:
        """The selector's state; Lightning asks for it in all processes."""
        return {"selector": self.batches.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the batches that come after those of the checkpoint."""
        if self._fitting:  # Lightning also loads checkpoints to test them
            self.batches.load_state_dict(state_dict["selector"])


def _index(batch: Any) -> Tensor:
    """The row numbers [b] of a batch."""
    index = None
    if isinstance(batch, Mapping):
        index = batch.get("index")
    elif isinstance(batch, Sequence) and len(batch):
        index = batch[0]
    whole = isinstance(index, Tensor) and index.ndim == 1 and not index.dtype.is_floating_point
    if not isinstance(index, Tensor) or not whole:
        raise UserError(
            "A training batch does not say which rows it holds; wrap the dataset in "
            "d2ace.IndexedDataset (or give dictionaries an 'index')."
        )
    return index


def _logits(outputs: Any, batch_idx: int) -> Tensor:
    """What ``training_step`` returned beside the loss."""
    logits = outputs.get("logits") if isinstance(outputs, Mapping) else None
    if not isinstance(logits, Tensor):
        raise UserError(
            f"training_step gave no logits for batch {batch_idx}; return "
            '{"loss": loss, "logits": logits} with logits of shape [rows, labels].'
        )
    return logits
