"""The selector: a PyTorch batch sampler that learns from the predictions it is told."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cached_property
from time import perf_counter
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.data import Sampler

from d2ace._util import validation as inputs
from d2ace.selectors._engine.context import apart
from d2ace.selectors._engine.cursor import Progress
from d2ace.selectors._engine.device import Placed, device_type
from d2ace.selectors._engine.flat import FlatSampler
from d2ace.selectors._engine.inputs import (
    Rows,
    chosen_device,
    device_rows,
    feature_matrix,
    given_predictions,
    host_rows,
    named_weights,
    probability_tensor,
)
from d2ace.selectors._engine.options import refuse_unknown
from d2ace.selectors._engine.reminders import Oversights, warn_of_going_back
from d2ace.selectors._engine.state import feature_marks, labels_checksum, refuse_unfit, state_of
from d2ace.selectors._engine.verification import verify

from . import drawing, probability
from .history import Memory


class Selector(Placed, Sampler[list[int]]):
    """Base of all methods: draws batches, watches predictions, keeps its place.

    A method says what to remember (:meth:`make_memory`), how an observed batch changes it
    (:meth:`update`) and how much every instance weighs (:meth:`instance_weights`). Everything else
    is done here: checking, warm-up, probabilities, drawing, saving, resuming.

    Parameters
    ----------
    labels : [n, q] zeros and ones
        torch, numpy or scipy.sparse. A sparse matrix stays sparse; Balance, DIHCL and Hard-Imb
        keep a dense copy of one byte per pair beside it.
    features : [n, d] numbers, optional
        Only used to find neighbours, by the methods that have them.
    batch_size, epochs, warmup : int
        b, T and T_w of the paper. Epochs 1..T_w are uniform shuffles.
    seed : int
        Batches are a pure function of seed, epoch and what was observed.
    preset : "paper" or "reference"
        What the paper says, or what its authors' code does. Options given explicitly win.
    replacement, importance_weighting : bool
        Draw rows of a batch independently; offer :meth:`loss_weight` 1/(n P_i). Both together
        are the unbiased estimator of the paper's Lemma 2.
    on_invalid : "error" or "skip"
        Refuse a NaN or infinite prediction, or pass over that (instance, label) pair.
    predictions : "train" or "full_pass"
        Whether :meth:`observe` is told the training forward pass, or one evaluation pass over all
        rows after each epoch.
    device, dtype
        Where and how state is kept. By default on the device of the first observed predictions,
        in float32; weights and probabilities are always float64.
    """

    name: ClassVar[str] = ""
    fixed_reference_order: ClassVar[bool] = False
    """Whether the authors' code goes through warm-up rows in their stored order."""
    full_reference_batches: ClassVar[bool] = False
    """Whether the authors' code draws b rows for the last batch too."""
    uses_features: ClassVar[bool] = True
    """Whether the method looks at ``features``; those of images cost a pass to make."""
    merges_updates: ClassVar[bool] = False
    """Whether rows of several batches may reach :meth:`update` in one call (faster)."""
    draws_by_position: ClassVar[bool] = False
    """Whether random numbers of its own go to rows or labels by number, so that order matters."""

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
        replacement: bool = False,
        importance_weighting: bool = False,
        on_invalid: str = "error",
        predictions: str = "train",
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
        self.preset = inputs.choice("preset", preset, ("paper", "reference"))
        self.replacement = inputs.truth("replacement", replacement)
        self.importance_weighting = inputs.truth("importance_weighting", importance_weighting)
        self.on_invalid = inputs.choice("on_invalid", on_invalid, ("error", "skip"))
        self.predictions = inputs.choice("predictions", predictions, ("train", "full_pass"))
        Placed.__init__(self, None if device is None else chosen_device(device))
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}.")
        self.dtype = dtype
        self.learning_rate = 1.0
        self._marks = feature_marks(self.features if self.uses_features else None)
        self._initial_extra: dict[str, float] | None = None
        self._progress = Progress(-(-self.n // self.batch_size))
        self._oversights = Oversights(learns=self._learns)
        self.recompute_seconds = 0.0
        """Seconds that the probabilities of the epoch drawn last took."""

    # What a method provides -----------------------------------------------------------------

    def make_memory(self) -> Memory:
        """State at the start, all of it as buffers (created on the selector's device)."""
        return Memory()

    def update(self, index: Tensor, probs: Tensor) -> None:
        """Advance ``self.memory`` by predictions [b, q] for the distinct rows ``index`` [b]."""

    def instance_weights(self) -> dict[str, Tensor]:
        """Named weights [n] from ``self.memory``; more weight, more likely to be drawn."""
        return {}

    def label_importance(self) -> dict[str, Tensor]:
        """Named label weights [q], where the method has them."""
        return {}

    def selection_pressure(self, epoch: int) -> float:
        """s(t), from ``self.pressure`` in the first selective epoch to 1 in the last."""
        start = getattr(self, "pressure", 100.0)
        return probability.decaying_pressure(start, epoch, self.warmup, self.epochs)

    def distribution(self, epoch: int) -> Tensor:
        """P [n] for a selective epoch: the one weight by quantisation index and pressure."""
        weights = list(named_weights(self, self.instance_weights()).values())
        if not weights:
            return probability.uniform(self.n)
        return probability.quantised(weights[0], self.selection_pressure(epoch))

    # What a training loop uses --------------------------------------------------------------

    def __len__(self) -> int:
        """Number of batches per epoch."""
        return self._progress.batches

    def __iter__(self) -> Iterator[list[int]]:
        """The next epoch's batches (of an epoch resumed in its middle: the remaining ones)."""
        progress = self._progress
        if progress.resuming:
            progress.resume()
        else:
            start = perf_counter()
            selective = self._is_selective(progress.upcoming)
            self._oversights.warn(self, progress, selective=selective)
            self._drawn = self._checked_distribution(progress.upcoming) if selective else None
            self.recompute_seconds = perf_counter() - start
            progress.begin()
        ledger = progress.ledger
        ledger.watched = True
        try:
            for batch in self._batches(progress.drawn_epoch, self._drawn, ledger.drawn):
                if self._progress.ledger is not ledger:  # another iterator has begun, or a state
                    return  # was loaded
                progress.drew(batch)
                yield batch
            if self._progress.ledger is ledger:
                progress.finish()
        finally:
            ledger.watched = False

    def peek(self) -> list[list[int]]:
        """The batches that would come next, as of what was observed so far; changes nothing.

        Those left of the running epoch or, between epochs, all of the next one. Iterating the
        selector, or a loader around it, trains: it uses up an epoch. To measure accuracy on all
        training rows, take a second loader with ``batch_size=`` and no selector.
        """
        progress = self._progress
        if progress.resuming or progress.drawn_from:
            return list(self._batches(progress.drawn_epoch, self._drawn, progress.ledger.drawn))
        selective = self._is_selective(progress.upcoming)
        drawn = self._checked_distribution(progress.upcoming) if selective else None
        return list(self._batches(progress.upcoming, drawn, 0))

    @property
    def rows_per_epoch(self) -> int:
        """Number of rows in the batches of the epoch that is or will be drawn: n, as a rule."""
        return sum(self._batch_sizes(selective=self._is_selective(self._progress.drawing)))

    @property
    def epoch(self) -> int:
        """The epoch being trained or, between epochs, the next one; counts from 1.

        It is over with its last batch observed, however far loader workers draw ahead. Where
        batches are not observed in turn, it is over with its last batch drawn.
        """
        return self._progress.epoch

    def set_epoch(self, epoch: int) -> None:
        """Move to the start of ``epoch``; the epoch one is in already stays where it is.

        Selectors count from 1 and advance by themselves. A framework that counts from 0 shows it
        by passing 0 once; from then on, one is added to what it passes. A selector whose state
        was loaded knows its place: whatever is passed before its first batch is drawn is that
        place, and later calls count on from there.
        """
        self._progress.move(inputs.whole_number("epoch", epoch, 0))

    @property
    def sampler(self) -> FlatSampler:
        """The same epochs row by row, for frameworks that only offer a ``sampler=`` slot."""
        return FlatSampler(self)

    def end_epoch(self) -> None:
        """Leave the running epoch, for a loop that stops before its last batch."""
        self._progress.leave()

    def verify(self, loader: Any) -> None:
        """Raise a ValueError that says so if ``loader`` draws from anything but this selector.

        Frameworks replace or wrap samplers without a word. Give the loader as the framework
        returned it, before the first epoch.
        """
        verify(self, loader)

    @apart
    def observe(self, index: Any, *unnamed: Any, logits: Any = None, probs: Any = None) -> None:
        """Tell the predictions [b, q] for rows ``index`` [b], once per trained batch.

        Exactly one of ``logits`` and ``probs``. Nothing of the graph is kept. On an accelerator
        nothing is read back: an invalid prediction is then passed over at once and reported when
        the next epoch starts.
        """
        values, are_logits = given_predictions(*unnamed, logits=logits, probs=probs)
        home = self._staging.device if self._staging else self._kept_on(values.device)
        if values.device.type == "meta" and (self.device is None or self.device.type != "meta"):
            raise TypeError(
                "The predictions are on the meta device, so they have no values; move model and "
                "data to a real device, or make the selector with device='meta' for a dry run."
            )
        rows: Rows | Tensor
        if self.replacement or "cpu" in (home.type, device_type(index)):
            rows = host_rows(index, self.n, unique=not self.replacement)
        else:
            rows = device_rows(index)
        count = len(index)
        if values.shape != (count, self.q):
            raise ValueError(
                f"{'logits' if are_logits else 'probs'} must have shape [{count}, {self.q}] (one "
                f"row per index, one column per label), got {tuple(values.shape)}."
            )
        self._keep_initial()
        self._oversights.observed = True
        if count:
            self._stage(values.device).add(rows, values, are_logits=are_logits)
        if self.predictions == "train":
            self._progress.observed(rows if isinstance(rows, Tensor) else rows.array)
        else:
            self._progress.ledger.passed = True

    @apart
    def loss_weight(self, index: Any) -> Tensor | None:
        """Weights to multiply the batch's [b, q] loss with, or None: call once per batch.

        They are on the device of an ``index`` that is on an accelerator, else where state is kept.
        """
        self._oversights.weighed = True
        self._progress.ledger.weighed()
        if not self.importance_weighting or self._drawn is None:
            return None
        rows = self._rows_to_weigh(index)
        weight = 1.0 / (self.n * self._drawn.to(rows.device).index_select(0, rows))
        return self._beside(index, weight.unsqueeze(1))

    @property
    @apart
    def probabilities(self) -> Tensor:
        """P [n], float64: what the next drawn epoch uses, as of what was observed so far."""
        epoch = self._progress.upcoming
        if not self._is_selective(epoch):
            return probability.uniform(self.n, self._home)
        return self._checked_distribution(epoch)

    @property
    def drawn_probabilities(self) -> Tensor | None:
        """P [n], float64, of the epoch drawn last; None where that was a plain shuffle."""
        return None if self._drawn is None else self._drawn.clone()

    @property
    @apart
    def weights(self) -> dict[str, Tensor]:
        """The named instance weights [n] behind :attr:`probabilities`, float64."""
        self._settle()
        weights = named_weights(self, self.instance_weights())
        return {name: value.to(torch.float64, copy=True) for name, value in weights.items()}

    @property
    @apart
    def label_weights(self) -> dict[str, Tensor]:
        """The named label weights [q] in force, where the method has them, float64."""
        self._settle()
        weights = self.label_importance()
        return {name: value.to(torch.float64, copy=True) for name, value in weights.items()}

    # Saving and resuming --------------------------------------------------------------------

    @apart
    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on with the very same batches: tensors and plain values.

        Take it after :meth:`observe`, or between epochs. A loader with workers draws ahead of the
        training loop, and only observed batches tell how far that came: observe every batch (of
        Random too; it costs nothing) in the order drawn, whole or in consecutive parts, or, where
        a loop leaves an epoch early, :meth:`end_epoch` before saving.
        """
        self._settle()
        self._warn_of_skipping()
        return state_of(self)

    @apart
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where :meth:`state_dict` was taken.

        A state that is damaged, or of a selector made otherwise, is refused, and changes nothing.
        """
        refuse_unfit(self, state)
        progress = Progress(len(self))
        progress.load_state_dict(state["progress"])
        drawn, rate = state["drawn"], float(state["learning_rate"])
        warn_of_going_back(self._progress, progress)
        progress.follow(self._progress)
        self._keep_initial()
        before = self.__dict__.copy()
        try:
            self._progress, self._staging = progress, None
            self._expect(state["device"])
            uniform = drawn is None or not bool(drawn.any())
            self._drawn = None if uniform else drawn.detach().clone().to(self._home)
            self.seed, self.learning_rate = int(state["seed"]), rate
            self.load_extra_state(state["extra"])
        except Exception:
            self.__dict__ = before
            raise
        self._oversights.trust()
        self.memory.to(self._home).load_state_dict(state["memory"])

    def reset(self) -> None:
        """Forget everything drawn, observed and loaded but the seed: training begins anew."""
        self._progress, self._oversights = Progress(len(self)), Oversights(learns=self._learns)
        self._memory = self._staging = self._drawn = None
        if self._initial_extra is not None:
            self.load_extra_state(self._initial_extra)

    @property
    def has_observed(self) -> bool:
        """Whether predictions were observed, or a state loaded."""
        return self._oversights.observed

    def _keep_initial(self) -> None:
        """Before anything changes what :meth:`extra_state` gives."""
        if self._initial_extra is None:
            self._initial_extra = self.extra_state()

    @cached_property
    def _labels_checksum(self) -> int:
        return labels_checksum(self.labels)

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles, which go on where training stands, as a loaded state does."""
        self._warn_of_skipping()
        return {**self.__dict__, "_progress": self._progress.resumable()}

    def __copy__(self) -> Selector:
        """A whole copy: a shallow one would go on writing into the original's memory."""
        return copy.deepcopy(self)

    def _warn_of_skipping(self) -> None:
        full_pass = self.predictions == "full_pass"
        self._oversights.warn_of_skipping(self._progress, full_pass=full_pass)

    def extra_state(self) -> dict[str, float]:
        """Plain numbers a method keeps beside its memory."""
        return {}

    def load_extra_state(self, state: dict[str, float]) -> None:
        """Take back what :meth:`extra_state` gave."""

    # Machinery ------------------------------------------------------------------------------

    @property
    def _learns(self) -> bool:
        """Whether predictions change anything."""
        return type(self).update is not Selector.update

    def _is_selective(self, epoch: int) -> bool:
        return epoch > self.warmup

    def _weighs_loss(self, epoch: int) -> bool:
        """Whether :meth:`loss_weight` has something to say in an epoch."""
        return self.importance_weighting and self._is_selective(epoch)

    @property
    def _changes_batches(self) -> bool:
        """Whether there is anything but plain shuffles after warm-up."""
        later = self.warmup + 1
        return self._is_selective(later) or self._weighs_loss(later)

    @apart
    def _checked_distribution(self, epoch: int) -> Tensor:
        self._settle()
        p = probability_tensor(self, self.distribution(epoch))
        total = float(p.sum()) if p.shape == (self.n,) and bool((p > 0).all()) else 0.0
        if not abs(total - 1.0) < 1e-6:
            raise ValueError(
                f"{type(self).__name__}.distribution must return {self.n} positive probabilities "
                f"that sum to 1, got shape {tuple(p.shape)} with sum {float(p.sum())}."
            )
        return p

    def _batch_sizes(self, *, selective: bool) -> list[int]:
        full = selective and self.preset == "reference" and self.full_reference_batches
        return drawing.batch_sizes(self.n, self.batch_size, full=full)

    def _batches(self, epoch: int, drawn: Tensor | None, start: int) -> Iterator[list[int]]:
        key = (self.seed, epoch)
        sizes = self._batch_sizes(selective=drawn is not None)
        if drawn is not None:
            return drawing.weighted(drawn, sizes, key, start, replacement=self.replacement)
        if self.preset == "reference" and self.fixed_reference_order:
            return drawing.in_order(self.n, sizes, start)
        return drawing.shuffled(self.n, sizes, key, start)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n={self.n}, q={self.q}, batch_size={self.batch_size}, "
            f"epoch={self.epoch} of {self.epochs}, preset={self.preset!r})"
        )
