"""Batch selection under Hugging Face's Trainer, for multi-label fine-tuning.

    selector = d2ace.D2ACE(Y_train, batch_size=args.train_batch_size, epochs=args.num_train_epochs)
    trainer = SelectionTrainer(model, args, train_dataset=train_set, selector=selector)
    trainer.train()

The Trainer does everything else as usual: evaluation, logging, checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from d2ace._util.errors import RunError, UserError
from d2ace.selectors import DistributedSelector, IndexedDataset, Selector, weighted_loss
from d2ace.training import load_tensors, save_tensors

from ._schedule import warn_of_history, warn_of_schedule
from ._torchvision import mend_torchvision

mend_torchvision()
try:
    from accelerate.data_loader import prepare_data_loader
    from transformers import Trainer, TrainerState
except ImportError as error:
    raise RunError(
        f"SelectionTrainer needs {error.name}; install it with "
        'pip install ".[transformers]" in a checkout of d2ace'
    ) from error

__all__ = ["SelectionMixin", "SelectionTrainer"]

_ROWS = "d2ace_rows"
_FILE = "selector.pt"
_CHOOSING = {"train_sampling_strategy": "random", "group_by_length": False}  # new name, old name


class SelectionMixin:
    """Adds a selector to your own Trainer: ``class Mine(SelectionMixin, MyTrainer)``.

    Parameters
    ----------
    selector : Selector
        Make it for the rows of ``train_dataset`` in their order, with a ``batch_size`` of
        ``per_device_train_batch_size`` times the number of devices. Accumulated batches are
        observed one by one.
    """

    def __init__(self, *args: Any, selector: Selector, **options: Any) -> None:
        if not isinstance(selector, Selector):
            raise UserError(
                f"SelectionTrainer needs a Selector, got {type(selector).__name__}; make one with "
                "d2ace.D2ACE(labels, batch_size=...)."
            )
        self.batches = _Replayed(selector)
        self.selector = selector
        self._rows: list[int] | None = None  # of the current batch; None once it is observed
        self._compared = False  # labels are compared once per training
        self._initial: dict[str, Any] | None = None  # the state at the start of every training
        self._left: int | None = None  # the selector's restarts at the end of the last training
        self._anew = True  # the Trainer counts epochs from 0, unless it resumes
        self._trained = False  # a batch was trained, so the type of its labels fits
        super().__init__(*args, **options)

    def train(self: Any, resume_from_checkpoint: Any = None, *args: Any, **options: Any) -> Any:
        """As the Trainer does; a second training starts afresh, as in a search."""
        self._begin(resumes=bool(resume_from_checkpoint))
        try:
            outcome = super().train(resume_from_checkpoint, *args, **options)  # type: ignore[misc]
            if self.selector.insights is not None:
                self.batches.share()  # the last observations of other processes
            return outcome
        finally:
            self._left = self.selector.restarts

    def _begin(self: Any, *, resumes: bool) -> None:
        """Reset the selector to the start of the last training, or keep a state loaded since."""
        selector = self.selector
        if self._left is None and not resumes:
            warn_of_history(selector)
        if selector.restarts != self._left:  # first training, or a state was loaded
            begun = selector.is_restored or selector.has_observed
            self._initial = selector.state_dict() if begun else None
        elif not resumes and self._initial is None:
            selector.reset()
        elif not resumes:
            selector.load_state_dict(self._initial)
        self._anew = not resumes
        self.batches.forget()
        self.batches.skipped = 0

    # The training batches -------------------------------------------------------------------

    def get_train_dataloader(self: Any) -> DataLoader[Any]:
        """A loader that draws from the selector; rows keep their index when columns are removed."""
        dataset, args = self.train_dataset, self.args
        self._check(dataset)
        collate = self.data_collator
        if hasattr(dataset, "remove_columns"):
            dataset = self._remove_unused_columns(dataset, description="training")
        else:
            collate = self._get_collator_with_removed_columns(collate, description="training")
        loader = DataLoader(
            _Numbered(dataset),
            batch_sampler=self.batches,
            collate_fn=_Collate(collate),
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory,
            persistent_workers=args.dataloader_persistent_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
        )
        # Accelerate sees one process: the selector itself divides the rows.
        prepared = prepare_data_loader(
            loader, device=args.device, num_processes=1, process_index=0, put_on_device=True
        )
        self.selector.verify(prepared)
        self._compared = False
        return prepared

    def _check(self: Any, dataset: Any) -> None:
        args = self.args
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise UserError(
                "SelectionTrainer needs a train_dataset with row indices, got "
                f"{type(dataset).__name__}; store a stream first."
            )
        if isinstance(dataset, IndexedDataset):
            raise UserError(
                "train_dataset is an IndexedDataset, but SelectionTrainer adds row indices itself; "
                "pass the dataset inside it."
            )
        epochs = None if args.max_steps > 0 else args.num_train_epochs
        warn_of_schedule(self.selector, epochs, anew=self._anew)
        selector = self.selector
        ever = (selector.weighs_loss(epoch) for epoch in (selector.warmup + 1, selector.epochs))
        if selector.awaits_validation or any(ever):
            self._refuse_other_losses()  # now, not at the first weights
        size = self._train_batch_size * args.world_size
        if size != self.selector.batch_size:
            raise UserError(
                f"The selector draws batches of {self.selector.batch_size} rows, but the Trainer "
                f"trains {size} at once (per_device_train_batch_size times devices); make the "
                f"selector with batch_size={size}."
            )
        if args.dataloader_drop_last:
            raise UserError(
                "dataloader_drop_last=True would drop rows that the selector draws; use False."
            )
        for name, usual in _CHOOSING.items():
            value = getattr(args, name, usual)
            if value != usual:
                raise UserError(
                    f"{name}={value!r} and a selector cannot both choose the batches; leave "
                    f"{name} at {usual!r}."
                )

    # Epochs of different lengths --------------------------------------------------------------

    def set_initial_training_values(self: Any, args: Any, *arguments: Any) -> tuple[Any, ...]:
        """As the Trainer does, but epochs may differ in length.

        The selector knows the steps of varying epochs beforehand. For a given number of steps, the
        number of epochs is open: at most one per step.
        """
        epochs, *rest, steps = super().set_initial_training_values(args, *arguments)  # type: ignore[misc]
        if self.selector.epochs_vary:
            if args.max_steps > 0:
                epochs = steps
            else:
                steps = self._total_steps(args.num_train_epochs)
        return epochs, *rest, steps

    def _total_steps(self: Any, epochs: float) -> int:
        """Steps of this many epochs, counted from the first one trained."""
        selector, accumulated = self.selector, self.args.gradient_accumulation_steps
        first = selector.epoch if self._anew else 1
        whole, part = int(epochs), epochs % 1
        rows = [selector.most_rows(epoch) for epoch in range(first, first + whole + 1)]
        steps = [-(-count // (selector.batch_size * accumulated)) for count in rows]
        return sum(steps[:whole]) + math.ceil(part * steps[whole])

    def _run_epoch(self: Any, *arguments: Any, **named: Any) -> Any:
        """As the Trainer does, with this epoch's number of batches, and how many to skip."""
        self.batches.share()  # it may depend on all observations
        batches, accumulated = len(self.batches), self.args.gradient_accumulation_steps
        named["steps_in_epoch"] = batches
        named["num_update_steps_per_epoch"] = -(-batches // accumulated)
        named["steps_trained_in_current_epoch"] = self.batches.skipped
        return super()._run_epoch(*arguments, **named)  # type: ignore[misc]

    def _init_training_state(self: Any, *arguments: Any, **named: Any) -> tuple[int, int]:
        """As the Trainer does, but finds the place in varying epochs by the epoch, not by steps."""
        epoch, skipped = super()._init_training_state(*arguments, **named)  # type: ignore[misc]
        if self.selector.epochs_vary and not self._anew and self.state.epoch is not None:
            epoch = int(self.state.epoch)
        return epoch, skipped

    # One step -------------------------------------------------------------------------------

    def training_step(
        self: Any, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Tensor:
        """Remove the row indices before the model sees them.

        The loss is a mean over a batch's labels, so gradients of accumulated batches are averaged
        here: the Trainer would assume that they are averaged already and add them up.
        """
        self._rows = inputs.pop(_ROWS)
        self.selector.learning_rate = float(self.optimizer.param_groups[0]["lr"])
        if self.compute_loss_func is None:
            num_items_in_batch = None
        try:
            loss: Tensor = super().training_step(model, inputs, num_items_in_batch)  # type: ignore[misc]
            if self._rows is not None:
                raise UserError(
                    "The selector did not get a batch's predictions; your compute_loss must take "
                    "its outputs from super().compute_loss(model, inputs, return_outputs=True)."
                )
        finally:
            self._rows = None  # also after a failed step: evaluation has no rows
        return loss

    def compute_loss(
        self: Any,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """The Trainer's loss; in training, also weight and observe the batch."""
        rows, labels = self._rows, inputs.get("labels")
        if rows is not None and not self._compared:
            _refuse_other_labels(self.selector, rows, labels)
            self._compared = True
        try:
            loss, outputs = super().compute_loss(  # type: ignore[misc]
                model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch
            )
        except (RuntimeError, ValueError) as problem:
            explained = self._trained or isinstance(problem, torch.cuda.OutOfMemoryError)
            if isinstance(labels, Tensor) and not labels.is_floating_point() and not explained:
                raise UserError(
                    f"The loss cannot use labels of type {labels.dtype}: {problem}; multi-label "
                    "models need floats, so store the labels as 0.0 and 1.0."
                ) from problem
            raise
        if rows is not None:
            logits = _logits(outputs)
            weight = self.batches.loss_weight(rows)
            if weight is not None:
                self._refuse_other_losses()
                loss = weighted_loss(logits, labels, weight)
            loss = loss * self.batches.loss_scale(rows)
            self.batches.observe(rows, logits=logits)
            self._rows, self._trained = None, True
        return (loss, outputs) if return_outputs else loss

    def _refuse_other_losses(self: Any) -> None:
        if self.compute_loss_func is not None or self.label_smoother is not None:
            raise UserError(
                f"The selector ({self.selector.name}) weights the binary cross-entropy of every "
                "batch, but compute_loss_func and label_smoothing_factor replace it; use neither."
            )
        order = type(self).__mro__
        below = order[order.index(SelectionMixin) + 1 : order.index(Trainer)]
        own = next((cls for cls in below if "compute_loss" in vars(cls)), None)
        if own is not None:
            raise UserError(
                f"The selector ({self.selector.name}) weights the binary cross-entropy of every "
                f"batch, but {own.__name__}.compute_loss replaces it; remove that, or use a "
                "selector without loss weights."
            )

    def evaluate(self: Any, *args: Any, **options: Any) -> dict[str, float]:
        """As the Trainer does; in training, also pass the validation loss to the selector.

        That is "eval_loss" or, with several eval_datasets, the loss named in metric_for_best_model.
        """
        metrics: dict[str, float] = super().evaluate(*args, **options)  # type: ignore[misc]
        named = self.args.metric_for_best_model or ""
        named = named if named.startswith("eval_") else f"eval_{named}"
        loss = metrics.get(named if named.endswith("_loss") else "eval_loss")
        if self.is_in_train and loss is not None:
            self.batches.validated(loss)
        return metrics

    # Saving and resuming --------------------------------------------------------------------

    def _save_optimizer_and_scheduler(self: Any, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)  # type: ignore[misc]
        state = self.batches.state_dict()
        if not self.args.should_save:
            return
        path = Path(output_dir) / _FILE
        try:
            save_tensors(path, state)
        except RunError as problem:
            raise RunError(
                f"{path} could not be written ({problem.__cause__}); free some space or choose "
                "another output_dir, and resume from the last complete checkpoint."
            ) from problem

    def _load_optimizer_and_scheduler(self: Any, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        if checkpoint is None:
            return
        path = Path(checkpoint) / _FILE
        if not path.is_file():
            raise RunError(
                f"{checkpoint} has no {_FILE}, so the selector cannot resume from it; use a "
                "checkpoint that SelectionTrainer saved (without save_only_model)."
            )
        try:
            state = load_tensors(path, "a selector's state")
        except RunError as problem:
            raise RunError(
                f"{path} is damaged: it cannot be read as a selector's state; resume from another "
                "checkpoint that SelectionTrainer saved."
            ) from problem
        try:
            self.batches.load_state_dict(state)
        except ValueError as problem:
            raise UserError(f"{path} does not fit this selector: {problem}") from problem
        if not self.args.ignore_data_skip:
            self.batches.skipped = self._skipped(Path(checkpoint), state["progress"]["position"])

    def _skipped(self: Any, checkpoint: Path, position: int) -> int:
        """How many batches of the epoch the Trainer must skip: those already trained."""
        file, accumulated = checkpoint / "trainer_state.json", self.args.gradient_accumulation_steps
        saved = TrainerState.load_from_json(str(file)) if file.is_file() else TrainerState()
        batches, steps = len(self.batches), saved.global_step
        skipped: int = steps % -(-batches // accumulated) * accumulated
        if self.selector.epochs_vary and hasattr(Trainer, "_run_epoch"):
            skipped = round((saved.epoch or 0.0) % 1 * batches)
        if skipped != position:
            raise UserError(
                f"The Trainer would skip {skipped} batches of the epoch, by the {steps} steps of "
                f"{checkpoint}, but the selector has trained {position} of them; resume with the "
                "arguments of that training or, if it began or left an epoch in the middle, "
                "with ignore_data_skip=True: the selector finds its place itself."
            )
        return skipped


class SelectionTrainer(SelectionMixin, Trainer):
    """Hugging Face's Trainer with training batches drawn by ``selector``.

    Takes what ``Trainer`` takes, and ``selector``; see :class:`SelectionMixin`.
    """


class _Replayed(DistributedSelector):
    """A resumed Trainer skips the epoch's trained batches; the selector no longer has them."""

    skipped = 0

    def __iter__(self) -> Iterator[list[int]]:
        skipped, self.skipped = self.skipped, 0
        for _ in range(skipped):
            yield []
        yield from super().__iter__()


class _Numbered(IndexedDataset):
    """Rows with their indices, in the form that the Trainer's collator needs."""

    @staticmethod
    def _row(index: int, item: Any) -> tuple[Any, ...]:
        return index, item


class _Collate:
    """The Trainer's collator, plus the row indices as plain ints, which stay on the host."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, items: list[tuple[int, Any]]) -> dict[str, Any]:
        batch = dict(self.collate([item for _, item in items]))
        batch[_ROWS] = [row for row, _ in items]
        return batch


def _refuse_other_labels(selector: Selector, rows: list[int], labels: Any) -> None:
    """Refuse a dataset in another order than the selector's labels, which would train badly.

    Labels that a collator smoothed, mixed or masked are neither 0 nor 1, and are not compared.
    """
    if not isinstance(labels, Tensor) or labels.shape != (len(rows), selector.q):
        return
    given, known = labels.detach().cpu(), torch.from_numpy(selector.labels[rows].toarray())
    other = ((given == 0) & (known == 1)) | ((given == 1) & (known == 0))
    if other.any():
        place, label = other.nonzero()[0].tolist()
        raise UserError(
            f"Row {rows[place]} of train_dataset has other labels than the selector (label "
            f"{label} is {int(given[place, label])}, not {int(known[place, label])}); make the "
            "selector from the labels of this dataset, in its order."
        )


def _logits(outputs: Any) -> Tensor:
    logits = outputs.get("logits") if isinstance(outputs, Mapping) else None
    if logits is None and isinstance(outputs, tuple) and len(outputs) > 1:
        logits = outputs[1]
    if not isinstance(logits, Tensor):
        raise UserError(
            f"The model's output ({type(outputs).__name__}) has no logits; return those of every "
            "batch, of shape [rows, labels]."
        )
    return logits
