"""The selector: a PyTorch batch sampler that learns from the predictions passed to observe."""

from __future__ import annotations

import math
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from d2ace._util import validation as inputs
from d2ace._util.errors import UserError
from d2ace._util.isolation import isolated
from d2ace._util.label_rows import LabelRows
from d2ace._util.observations import CheckedRows, given_predictions, refuse_shape
from d2ace._util.staging import Sink, Staging
from d2ace.insights import Insights
from d2ace.selectors._engine.batches import WAYS, batch_sizes, batches_of
from d2ace.selectors._engine.cursor import Cursor
from d2ace.selectors._engine.device import DeviceState, device_type
from d2ace.selectors._engine.feeding import insights_of
from d2ace.selectors._engine.flat import FlatSampler
from d2ace.selectors._engine.inputs import (
    chosen_device,
    feature_matrix,
    loss_weights,
    named_weights,
    probability_tensor,
)
from d2ace.selectors._engine.kept_rows import KeptRows
from d2ace.selectors._engine.loss import refuse_unfit_batch, weighted_loss
from d2ace.selectors._engine.options import chosen_state, refuse_clashes, refuse_unknown
from d2ace.selectors._engine.reminders import Reminders
from d2ace.selectors._engine.row_schedule import RowSchedule, checked_rows
from d2ace.selectors._engine.state import feature_marks
from d2ace.selectors._engine.verification import verify

from . import probability
from .resumable import Resumable


class Selector(Resumable):
    """Base of all methods: draws batches, watches predictions, keeps its place.

    A method says what to remember (:meth:`make_memory`), how an observed batch changes it
    (:meth:`update`) and how much every instance weighs (:meth:`instance_weights`). Everything else
    is done here: checking, warm-up, probabilities, drawing, saving, resuming.

    Parameters
    ----------
    labels : [n, q] zeros and ones
        torch, numpy or scipy.sparse. A sparse matrix stays sparse.
    features : [n, d] numbers, optional
        Only used to find neighbours, by the methods that have them.
    batch_size, epochs, warmup : int
        b, T and T_w of the paper. Epochs 1..T_w are uniform shuffles.
    seed : int
        Batches are a pure function of seed, epoch and what was observed.
    preset : "paper" or "reference"
        What the paper says, or what its authors' code does. Options given explicitly win.
    draw : "batch", "epoch" or "once", optional
        How an epoch is drawn from P: each batch anew; every row as often as P says, to the nearest
        whole number; or each row at most once. "batch" unless the method says otherwise.
    rows_per_epoch : float, int or a pair of them
        How many rows an epoch draws: a share up to 1.0 or a whole number. A pair runs linearly
        from the first selective epoch to the last.
    replacement, importance_weighting : bool
        Draw rows of a batch independently; offer :meth:`loss_weight` 1/(n P_i). Both together
        are the unbiased estimator of the paper's Lemma 2.
    on_invalid : "error" or "skip"
        Refuse a NaN or infinite prediction, or pass over that (instance, label) pair.
    predictions : "train" or "full_pass"
        What you pass to :meth:`observe`: the predictions of the training forward pass, or of one
        evaluation pass over all rows after each epoch.
    insights : bool or Insights
        Keep :attr:`insights`: which labels are probably wrong, which rows are hard. They change no
        batch. An :class:`~d2ace.Insights` of the same labels may have names, or a ``state`` of its
        own; those that ``True`` makes have the selector's.
    state : "full" or "compact", optional
        How D2ACE and ML-Unc keep their history: 24 and 20 bytes a pair for a window of 5, or 8 and
        6 in 16 and 8 bits. "full" up to 2^28 pairs, unless given; above, "compact", and a warning
        says so. U is then off by at most 0.0022 and H by 0.0009 with the default options
        (:mod:`d2ace.selectors.compact`), and each P_i by at most a factor s^(2 (e + 1/n)), with e
        the largest shift of a weight scaled to [0, 1]. The other methods
        keep 8 bytes or less anyway, and the same either way. A state of one is refused by the
        other.
    device, dtype
        Where and how state is kept. By default on the device of the first observed predictions,
        in float32; weights and probabilities are always float64.
    """

    def __init__(
        self,
        labels: inputs.Labels,
        features: inputs.Features = None,
        *,
        batch_size: int = 128,
        epochs: int = 100,
        warmup: int = 10,
        seed: int = 0,
        preset: str = "paper",
        draw: str | None = None,
        rows_per_epoch: float | tuple[float, float] = 1.0,
        replacement: bool = False,
        importance_weighting: bool = False,
        on_invalid: str = "error",
        predictions: str = "train",
        insights: bool | Insights = False,
        state: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
        **unknown: Any,
    ) -> None:
        refuse_unknown(type(self), unknown)
        self.labels = inputs.label_matrix(labels)
        self.n, self.q = self.labels.shape
        self.features = None if features is None else feature_matrix(features, self.n)
        self.batch_size = inputs.whole_number("batch_size", batch_size, 1)
        self.epochs = inputs.whole_number("epochs", epochs, 1)
        self.warmup = inputs.whole_number("warmup", warmup, 0)
        self.seed = inputs.whole_number("seed", seed, 0)
        self.preset = inputs.choice("preset", preset, self.presets)
        self.draw = inputs.choice("draw", self.default_draw if draw is None else draw, tuple(WAYS))
        self.row_schedule = RowSchedule.of(rows_per_epoch, self.n)
        """The option ``rows_per_epoch``."""
        self.replacement = inputs.truth("replacement", replacement)
        self.importance_weighting = inputs.truth("importance_weighting", importance_weighting)
        refuse_clashes(self)
        self.on_invalid = inputs.choice("on_invalid", on_invalid, ("error", "skip"))
        self.predictions = inputs.choice("predictions", predictions, ("train", "full_pass"))
        self.state = chosen_state(type(self), state, self.n, self.q)
        self.insights = insights_of(insights, self.labels, self.on_invalid, self.state)
        """What was observed says about the labels; None unless asked for."""
        self.device = None if device is None else chosen_device(device)
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}.")
        self.dtype = dtype
        self.learning_rate = 1.0
        self.restarts = 0
        """How often a state was loaded, or everything forgotten."""
        self.warns_of_warmup = True
        """Whether to warn where all epochs are warm-up; a loop that says so itself unsets it."""
        self._marks = feature_marks(self.features if self.uses_features else None)
        self._initial_extra: dict[str, float] | None = None
        self._label_rows = LabelRows(self.labels)
        self.kept = KeptRows(self.n)
        """The rows whose state is kept here: all, but where several processes share the state."""
        self._tensors = DeviceState(self.device, self.make_memory, self._make_staging)
        self._cursor = Cursor(self.batch_size)
        self._reminders = Reminders()
        self.recompute_seconds = 0.0
        """Seconds that the probabilities of the epoch drawn last took."""

    # What a training loop uses --------------------------------------------------------------

    def __len__(self) -> int:
        """Number of batches of the epoch being drawn or, between epochs, of the coming one."""
        return -(-self._rows() // self.batch_size)

    def total_batches(self, epochs: int | None = None) -> int:
        """Number of batches of epochs 1 to T, or to ``epochs``: for schedules that count steps.

        Of a method that shortens epochs by what it observes (InfoBatch), the most there can be.
        """
        last = self.epochs if epochs is None else inputs.whole_number("epochs", epochs, 0)
        return sum(-(-self.most_rows(epoch) // self.batch_size) for epoch in range(1, last + 1))

    def __iter__(self) -> Iterator[list[int]]:
        """The next epoch's batches (of an epoch resumed in its middle: the remaining ones)."""
        cursor = self._cursor
        if cursor.resuming:
            cursor.resume()
        else:
            start = perf_counter()
            selective = self.selects(cursor.upcoming)
            self._reminders.warn(self, cursor, selective=selective)
            rows = self._coming_rows()
            self._tensors.drawn = self._distribution(cursor.upcoming) if selective else None
            self.begin_epoch(cursor.upcoming)
            self.recompute_seconds = perf_counter() - start
            cursor.begin(rows)
        ledger = cursor.ledger
        ledger.watched = True
        try:
            for batch in self._left_batches():
                if self._cursor.ledger is not ledger:  # another iterator has begun, or a state
                    return  # was loaded
                cursor.drew(batch)
                yield batch
            if self._cursor.ledger is ledger:
                cursor.finish()
        finally:
            ledger.watched = False

    def peek(self) -> list[list[int]]:
        """The batches that would come next, as of what was observed so far; changes nothing.

        Those left of the running epoch or, between epochs, all of the next one. Iterating the
        selector, or a loader around it, trains: it uses up an epoch. To measure accuracy on all
        training rows, take a second loader with ``batch_size=`` and no selector.
        """
        cursor = self._cursor
        if cursor.resuming or cursor.drawn_from:
            return list(self._left_batches())
        epoch, rows = cursor.upcoming, self._coming_rows()
        drawn = self._distribution(epoch) if self.selects(epoch) else None
        return list(batches_of(self, epoch, rows, drawn))

    @property
    def rows_per_epoch(self) -> int:
        """Number of rows in the batches of the epoch that is or will be drawn: n, as a rule."""
        cursor = self._cursor
        selective = self.selects(cursor.drawn_epoch if cursor.in_hand else cursor.upcoming)
        return sum(batch_sizes(self, self._rows(), selective=selective))

    @property
    def epoch(self) -> int:
        """The epoch being trained or, between epochs, the next one; counts from 1.

        It is over with its last batch observed, however far loader workers draw ahead. Where
        batches are not observed in turn, it is over with its last batch drawn.
        """
        return self._cursor.epoch

    def set_epoch(self, epoch: int) -> None:
        """Move to the start of ``epoch``; the epoch one is in already stays where it is.

        Selectors count from 1 and advance by themselves. A framework that counts from 0 shows it
        by passing 0 once; from then on, one is added to what it passes. A selector whose state
        was loaded knows its place: whatever is passed before its first batch is drawn is that
        place, and later calls count on from there.
        """
        self._cursor.move(inputs.whole_number("epoch", epoch, 0))

    @property
    def sampler(self) -> FlatSampler:
        """The same epochs row by row, for frameworks that only offer a ``sampler=`` slot."""
        return FlatSampler(self)

    def end_epoch(self) -> None:
        """Leave the running epoch, for a loop that stops before its last batch."""
        self._cursor.leave()

    def verify(self, loader: Any) -> None:
        """Raise a ValueError that says so if ``loader`` draws from anything but this selector.

        Frameworks silently replace or wrap samplers. Give the loader as the framework
        returned it, before the first epoch.
        """
        verify(self, loader)

    @isolated
    def observe(self, index: Any, *unnamed: Any, logits: Any = None, probs: Any = None) -> None:
        """Tell the predictions [b, q] for rows ``index`` [b], once per trained batch.

        Exactly one of ``logits`` and ``probs``. Nothing of the graph is kept. On an accelerator
        nothing is read back: an invalid prediction is then passed over at once and reported when
        the next epoch starts.
        """
        if self.kept.spread:
            raise UserError(
                "The state of this selector is spread over several processes; call observe of its "
                "DistributedSelector, which sends predictions to the process that keeps the row."
            )
        values, are_logits = given_predictions(*unnamed, logits=logits, probs=probs)
        rows = self._tensors.rows(index, self.n, values, replacement=self.replacement)
        count = len(rows) if isinstance(rows, Tensor) else rows.array.size
        refuse_shape(values, (count, self.q), "logits" if are_logits else "probs")
        self._feed(rows, values, are_logits=are_logits)
        if self.predictions == "train":
            self._cursor.observed(rows if isinstance(rows, Tensor) else rows.array)
        else:
            self._cursor.ledger.passed = True

    def loss_weight(self, index: Any) -> Tensor | None:
        """Weights to multiply the batch's [b, q] loss with, or None: call once per batch.

        They are on the device of an ``index`` that is on an accelerator, else where state is kept.
        """
        self._reminders.weighed = True
        self._cursor.ledger.weighed()
        return self._loss_weight(index) if self.weighs_loss(self.drawn_epoch) else None

    @isolated
    def _loss_weight(self, index: Any) -> Tensor:
        rows = self._tensors.weighed_rows(index, self.n)
        weight = loss_weights(self, self.pair_weights(rows, self.drawn_epoch), len(rows))
        return weight.to(index.device) if device_type(index) != "cpu" else weight

    def loss(self, logits: Tensor, targets: Tensor, index: Any) -> Tensor:
        """Mean binary cross-entropy of a batch, each pair weighed by :meth:`loss_weight`.

        ``logits`` and ``targets`` are [b, q]. Call it once per batch, instead of ``loss_weight``.
        """
        refuse_unfit_batch(logits, targets, len(index), self.q)
        return weighted_loss(logits, targets, self.loss_weight(index))

    def validated(self, loss: Any) -> None:
        """Tell the mean loss on validation rows, once an epoch; Trim starts by it.

        Most methods do not look at it.
        """

    @property
    def awaits_validation(self) -> bool:
        """Whether the method does nothing of its own before :meth:`validated` is called."""
        return False

    @isolated
    def flush(self) -> None:
        """Bring everything observed into :attr:`memory`, to look at it; drawing does so anyway."""
        self._tensors.settle()

    @property
    @isolated
    def probabilities(self) -> Tensor:
        """P [n], float64: what the next drawn epoch uses, as of what was observed so far."""
        if not self.selects(self.next_epoch):
            return probability.uniform(self.n, self.state_device)
        return self._distribution(self.next_epoch)

    @property
    def drawn_probabilities(self) -> Tensor | None:
        """P [n], float64, of the epoch drawn last; None where that was a plain shuffle."""
        drawn = self._tensors.drawn
        return None if drawn is None else drawn.clone()

    @property
    @isolated
    def weights(self) -> dict[str, Tensor]:
        """The named instance weights [n] behind :attr:`probabilities`, float64."""
        self._tensors.settle()
        weights = named_weights(self, self.instance_weights())
        return {name: value.to(torch.float64, copy=True) for name, value in weights.items()}

    @property
    @isolated
    def label_weights(self) -> dict[str, Tensor]:
        """The named label weights [q] in force, where the method has them, float64."""
        self._tensors.settle()
        weights = self.label_importance()
        return {name: value.to(torch.float64, copy=True) for name, value in weights.items()}

    @isolated
    def diagnostics(self) -> dict[str, float]:
        """How the epoch drawn last was drawn, in a few numbers.

        ``effective_rows`` (1 / sum P^2), ``entropy`` of P in nats, ``p_min`` and ``p_max``; of a
        selective epoch also its ``pressure``, where the method has one.
        """
        p = self._tensors.drawn
        if p is None:
            share = 1.0 / self.n
            rows, entropy = float(self.n), math.log(self.n)
            return {"effective_rows": rows, "entropy": entropy, "p_min": share, "p_max": share}
        found = probability.summary(p)
        if self.pressure is not None:
            found["pressure"] = self.selection_pressure(self.drawn_epoch)
        return found

    # Machinery ------------------------------------------------------------------------------

    def _feed(self, rows: CheckedRows | Tensor, values: Tensor, *, are_logits: bool) -> None:
        """Take predictions, whose rows are numbered as the memory's are."""
        self._keep_initial()
        self._reminders.observed = True
        if values.shape[0]:
            staging = self._tensors.staging(values.device)
            staging.add(rows, values, are_logits=are_logits)
            if self.insights is not None:
                self.insights.fed_by(staging)

    @isolated
    def _observe_kept(self, batch: list[int], rows: np.ndarray[Any, Any], logits: Tensor) -> None:
        """Tell that a batch was trained, with the logits of those ``rows`` of it kept here."""
        self._tensors.staging(logits.device)
        repeated = self.replacement and len(np.unique(rows)) < len(rows)
        self._feed(CheckedRows(rows - self.kept.start, repeated), logits, are_logits=True)
        self._cursor.observed(np.array(batch))

    @isolated
    def _keep_only(self, kept: KeptRows) -> None:
        """Keep the state of these rows alone, from now on."""
        self._tensors.settle()
        self.kept, self._label_rows = kept, LabelRows(kept.of(self.labels))
        self._tensors.keep(kept)

    def _make_staging(self, device: torch.device) -> Staging:
        return Staging(
            (self.kept.count, self.q),
            device,
            self.dtype,
            sinks=self._sinks(),
            gather=self.merges_updates or not self.learns,
            skip_invalid=self.on_invalid == "skip",
        )

    def _sinks(self) -> tuple[Sink, ...]:
        """Insights come first: an update may compute in place."""
        own = [Sink(self.update, self._last_known)] if self.learns else []
        return (*([] if self.insights is None else [self.insights.sink]), *own)

    def _last_known(self, index: Tensor, probs: Tensor) -> Tensor:
        known: Tensor = self.memory.last_known(index, probs)
        return known

    @isolated
    def _distribution(self, epoch: int) -> Tensor:
        """P of a selective epoch, checked."""
        self._tensors.settle()
        return self.kept.agreed(probability_tensor(self, self.distribution(epoch)))

    @isolated
    def _coming_rows(self) -> int:
        """Number of rows of the upcoming epoch, as of what was observed so far."""
        if self._shapes_epochs:
            self._tensors.settle()
        return checked_rows(self, self.epoch_rows(self._cursor.upcoming))

    def _rows(self) -> int:
        """Number of rows of the epoch in hand or, between epochs, of the upcoming one."""
        return self._cursor.rows if self._cursor.in_hand else self._coming_rows()

    def _left_batches(self) -> Iterator[list[int]]:
        """What is left to draw of the epoch begun last."""
        cursor, drawn = self._cursor, self._tensors.drawn
        return batches_of(self, cursor.drawn_epoch, cursor.rows, drawn, cursor.ledger.drawn)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n={self.n}, q={self.q}, batch_size={self.batch_size}, "
            f"epoch={self.epoch} of {self.epochs}, preset={self.preset!r})"
        )
