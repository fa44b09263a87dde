"""Batch selection under Lightning's Trainer: a callback that passes predictions to the selector.

    selector = d2ace.D2ACE(Y_train, X_train, batch_size=128, epochs=100)
    loader = DataLoader(d2ace.IndexedDataset(train_set), batch_sampler=selector)
    trainer = Trainer(max_epochs=100, callbacks=[SelectionCallback(selector)])
    trainer.fit(module, loader)  # training_step returns {"loss": loss, "logits": logits}

A method that weights the loss (Trim, Balance, InfoBatch) needs a line in ``training_step``:
``loss = selector.loss(logits, targets, index)``.

With several processes, pass ``DistributedSelector(selector)`` to the loader and the callback
instead of the selector, and ``use_distributed_sampler=False`` to the Trainer.
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
        f"SelectionCallback needs {error.name}; install it with "
        'pip install ".[lightning]" in a checkout of d2ace'
    ) from error

__all__ = ["SelectionCallback"]


class SelectionCallback(Callback):
    """Observes every training batch, and saves the selector in Lightning's checkpoints.

    A training batch must contain its row indices: ``d2ace.IndexedDataset`` puts them first, or
    under "index" in a dictionary. ``training_step`` must return the logits together with the
    loss: ``{"loss": loss, "logits": logits}``.

    Parameters
    ----------
    selector : Selector or DistributedSelector
        The ``batch_sampler`` of the training loader.
    monitor : str
        The name under which the module logs its mean validation loss; Trim's start depends on it.
    """

    def __init__(
        self, selector: Selector | DistributedSelector, *, monitor: str = "val_loss"
    ) -> None:
        if not isinstance(selector, Selector | DistributedSelector):
            raise UserError(f"SelectionCallback needs a Selector, got {type(selector).__name__}.")
        self.batches = selector
        self.monitor = monitor
        self._fitting = True
        self._over = 0  # batches of the epoch before a loaded state
        self.selector = selector if isinstance(selector, Selector) else selector.selector
        if self.selector.predictions == "full_pass":
            raise UserError(
                "SelectionCallback observes the training pass, but this selector was made with "
                "predictions='full_pass'; make it with predictions='train'."
            )

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse settings that would train the same rows in every process."""
        self._fitting = stage == "fit"
        self._reloads = int(getattr(trainer, "reload_dataloaders_every_n_epochs", 0))
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
                "With several processes, Lightning would replace the selector by its own sampler; "
                "pass Trainer(use_distributed_sampler=False)."
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare the selector's schedule with the Trainer's, and look at its history and loader.

        A Trainer that resumes in the middle of an epoch does not announce the epoch's start. One
        that was saved after an epoch's last batch detects this by the number of batches. The next
        epoch may have more, so until the first batch the number stays that of the epoch before.
        """
        self.selector.verify(trainer.train_dataloader)
        self._length = len(self.batches)
        loop = trainer.fit_loop
        self._limit = loop.max_batches
        loop.max_batches = min(self._over or self._limit, self._limit)
        if trainer.global_step == 0:
            warn_of_history(self.selector)
        if not getattr(trainer, "fast_dev_run", False):
            anew = trainer.global_step == 0
            warn_of_schedule(self.selector, trainer.max_epochs, anew=anew)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check that the loader that Lightning prepared draws from the selector."""
        self.selector.verify(trainer.train_dataloader)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Note the learning rate; some methods read it."""
        if self._over:
            self._over, trainer.fit_loop.max_batches = 0, self._limit
        if trainer.optimizers:
            self.selector.learning_rate = float(trainer.optimizers[0].param_groups[0]["lr"])
        self._index = _index(batch)

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: Tensor
    ) -> None:
        """Weight processes by their rows, so that their mean gradient is that of the batch."""
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
        """Pass the batch's predictions to the selector."""
        self.batches.observe(self._index, logits=_logits(outputs, batch_idx))
        if batch_idx + 1 >= trainer.num_training_batches:  # the loader may have more
            self.selector.end_epoch()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add the last observations of the other processes to the selector's insights."""
        if isinstance(self.batches, DistributedSelector) and self.selector.insights is not None:
            self.batches.share()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave an epoch that the module cut short, and check the length of the next one.

        Lightning counts a loader's batches when it loads it. It would cut a longer epoch to the old
        length, and would not validate after a shorter one.
        """
        self.selector.end_epoch()
        if not isinstance(self.batches, Selector):
            self.batches.share()  # observations may decide the length
        before, self._length = self._length, len(self.batches)
        differs = self._length != before
        trainer.reload_dataloaders_every_n_epochs = 1 if differs else self._reloads  # type: ignore[attr-defined]

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Pass the logged validation loss to the selector."""
        if not self._fitting or trainer.sanity_checking:
            return
        logged = trainer.callback_metrics
        if self.monitor in logged:
            self.batches.validated(logged[self.monitor])
        elif self.selector.awaits_validation:
            warnings.warn(
                f"{self.selector.title} starts by the validation loss, but the module logs no "
                f"{self.monitor!r} (logged: {', '.join(sorted(logged)) or 'nothing'}); log the "
                "mean loss under that name in validation_step, or pass its name with "
                "SelectionCallback(selector, monitor=...).",
                stacklevel=2,
            )

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Refuse to resume without a selector state: the selector would start over."""
        if self._fitting and self.state_key not in checkpoint["callbacks"]:
            raise UserError(
                "The checkpoint has no selector state, so training cannot resume from it; use one "
                "saved with SelectionCallback, or load only the weights with "
                "load_from_checkpoint and fit without ckpt_path."
            )

    def state_dict(self) -> dict[str, Any]:
        """The selector's state; Lightning asks for it in all processes."""
        return {"selector": self.batches.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume with the batches after those of the checkpoint."""
        if self._fitting:  # Lightning also loads checkpoints to test them
            self.batches.load_state_dict(state_dict["selector"])
            progress = state_dict["selector"]["progress"]
            rows = 0 if progress["inside"] else progress["rows"]
            self._over = -(-rows // self.batches.batch_size)


def _index(batch: Any) -> Tensor:
    """The row indices [b] of a batch."""
    index = None
    if isinstance(batch, Mapping):
        index = batch.get("index")
    elif isinstance(batch, Sequence) and len(batch):
        index = batch[0]
    whole = isinstance(index, Tensor) and index.ndim == 1 and not index.dtype.is_floating_point
    if not isinstance(index, Tensor) or not whole:
        raise UserError(
            "A training batch has no row indices; wrap the dataset in d2ace.IndexedDataset "
            "(or give dictionaries an 'index')."
        )
    return index


def _logits(outputs: Any, batch_idx: int) -> Tensor:
    """The logits that ``training_step`` returned."""
    logits = outputs.get("logits") if isinstance(outputs, Mapping) else None
    if not isinstance(logits, Tensor):
        raise UserError(
            f"training_step gave no logits for batch {batch_idx}; return "
            '{"loss": loss, "logits": logits} with logits of shape [rows, labels].'
        )
    return logits
