"""Training alone, epoch by epoch: model, optimiser and selector, and the steps they take together.

What a run makes of it (validation, the best weights, checkpoints) is in :mod:`.loop`; the
scikit-learn classifier makes something else of the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from d2ace._util.errors import ContractError, RunError, UserError
from d2ace._util.label_rows import LabelRows
from d2ace._util.random_state import seed_generators
from d2ace.data import cache_dir
from d2ace.models import LossTerms, MultiLabelModel, make_model
from d2ace.selectors import (
    BatchPart,
    SharedSelector,
    Trim,
    find_selector,
    make_selector,
    neighbor_search,
)

from .clock import Clock
from .config import RunConfig
from .problem import Rows, Split

__all__ = ["Trainer", "seed_step", "warm_up"]

_LEAST = 1e-7  # the probability at which a loss is cut, near float32's distance from 1

IMAGE_MIX_EPOCHS = (5, 15)
"""Between which epochs D2ACE goes from uncertainty to hardness on images."""


class TrainingStep(nn.Module):
    """Forward pass and loss as one module, so that wrappers for processes and precision fit."""

    def __init__(self, model: MultiLabelModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, y: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """The loss, and the logits [b, q]."""
        output = self.model(x)
        loss = self.model.loss(output, y, weight)
        if not isinstance(loss, LossTerms):
            raise ContractError(
                f"{type(self.model).__name__}.loss must return LossTerms, got "
                f"{type(loss).__name__}; write terms instead, which may be a dictionary."
            )
        if not loss.total.requires_grad:
            raise ContractError(
                f"{type(self.model).__name__}.forward must return logits with a gradient; leave "
                "out detach() and no_grad()."
            )
        return loss.total, output.logits


class Trainer:
    """State and steps of training on the rows ``train``.

    Take a turn (:class:`~d2ace._util.random_state.Turn`) for every step and pass, as they draw from
    generators that all threads share.
    ``instance_weight`` [n] multiplies what every row adds to a loss; its mean should be 1.
    ``model_options`` stand in for those of the configuration.
    """

    def __init__(
        self,
        config: RunConfig,
        train: Split,
        fabric: Fabric,
        instance_weight: npt.NDArray[np.float32] | None = None,
        model_options: dict[str, Any] | None = None,
    ) -> None:
        self.config, self.fabric = config, fabric
        seed_step(config.seed, 0, 0, fabric.device)  # all processes start from the same weights
        options = config.model_options if model_options is None else model_options
        self.model = _made(make_model, config.model, train.X.shape[1], train.Y, options)
        if not any(parameter.requires_grad for parameter in self.model.parameters()):
            raise UserError(f"The model {config.model} has no parameters that can be trained.")
        groups = self.model.param_groups(config.learning_rate)
        self._peak = [group["lr"] for group in groups]
        # A fused step divides by the gradient scale itself, and then gradients cannot be clipped.
        fused = config.precision != "16-mixed"
        optimizer = torch.optim.Adam(groups, weight_decay=config.weight_decay, fused=fused)
        self.step_module, self.optimizer = fabric.setup(TrainingStep(self.model), optimizer)
        self.rows = {"train": self.placed(train)}
        wanted = config.record or _uses_features(config)
        self.space = self._space(train) if wanted else None
        batch_size = config.batch_size * fabric.world_size
        with neighbor_search(folder=cache_dir() / "neighbors"):  # runs of a grid share features
            selector = _made(
                make_selector,
                config.selector,
                train.Y,
                self.space,
                _selector_options(config, batch_size, fabric.device),
            )
        selector.warns_of_warmup = False  # the start of a run says so
        self.shared = SharedSelector(selector, fabric.global_rank, fabric.world_size)
        self._labels = LabelRows(train.Y)
        self._instance_weight = (
            None if instance_weight is None else torch.from_numpy(instance_weight).to(fabric.device)
        )
        self.epoch, self.position = 1, 0  # the epoch we are in, and its batches trained so far
        self.batches = len(self.shared.selector)
        """Number of batches of the epoch we are in."""
        self.most_batches = -(-selector.n // batch_size)
        """Number of batches of an epoch of all rows; none has more."""
        self._begin_epoch()

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.epoch > self.config.epochs

    def placed(self, split: Split) -> Rows:
        """The rows of a split where the model is, in its precision."""
        rows = split.X if isinstance(split.X, Rows) else Rows(split.X)
        return rows.to(self.fabric.device, next(self.model.parameters()).dtype)

    def _space(self, train: Split) -> Any:
        """Where neighbours of training rows are looked for: their table, or pooled features."""
        if not self.config.images:
            return train.X
        with self.fabric.autocast():
            return train.X.space(self.model)

    def train_epoch(self) -> Iterator[int]:
        """Train the rest of the epoch; gives way after every step, so that one may stop there."""
        selector = self.shared.selector
        selector.set_epoch(self.epoch)
        self.batches = len(selector)
        self.step_module.train()
        with self.clock.part("train"):
            self.model.on_epoch_start(self.epoch, self.batches, self._pass())
        # Only observed batches tell a selector how far training came (see Selector.state_dict).
        ahead = selector.predictions == "train"
        batches = self.rows["train"].batches(self._drawn(), self.epoch, self.position, ahead=ahead)
        while True:
            with self.clock.part("train"):  # the time spent waiting for images
                drawn = next(batches, None)
            if drawn is None:
                break
            if not self.position:
                self.clock.move(selector.recompute_seconds, "draw", "recompute")
            self._train(*drawn)
            self.position += 1
            yield self.position

    def _drawn(self) -> Iterator[BatchPart]:
        """The parts of the epoch's batches; a loader with workers asks for some ahead."""
        parts = iter(self.shared)
        while True:
            with self.clock.part("draw"):
                part = next(parts, None)
            if part is None:
                return
            yield part

    def _pass(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All training rows once, as evaluation sees them, for models that ask for them."""
        rows = self.rows["train"]
        numbers = torch.arange(len(rows), device=self.fabric.device).split(rows.at_once)
        return zip(rows.chunks(), map(self._labels_at, numbers), strict=True)

    def _labels_at(self, rows: Tensor) -> Tensor:
        return self._labels.at(rows).view(torch.uint8)

    def _train(self, part: BatchPart, x: Tensor) -> None:
        config, selector = self.config, self.shared.selector
        # Epochs may differ in length: the learning rate rises by epochs, and steps are numbered
        # as if none did, so that two of them never share a number.
        step = (self.epoch - 1) * self.most_batches + self.position
        risen = (self.epoch - 1) * self.batches + self.position
        factor = warm_up(risen, config.warmup * self.batches)
        factor *= self.model.learning_rate_factor(self.epoch)
        for group, peak in zip(self.optimizer.param_groups, self._peak, strict=True):
            group["lr"] = peak * factor
        selector.learning_rate = config.learning_rate * factor
        with self.clock.part("observe"):
            weight = self.shared.loss_weight(part)
        with self.clock.part("train"):
            rows = torch.from_numpy(np.array(part.rows)).to(self.fabric.device)
            labels, weight = self._labels_at(rows), self._weighed(weight, rows)
            loss, logits = self._step(step, x, labels, weight, part.scale)
            self.model.on_step(step)
            self._loss_sum += loss.detach() * len(part.rows) * (part.scale > 0)
        if selector.predictions == "train":
            with self.clock.part("observe"):
                self._tell(self.shared.observe, part, logits)
        np.add.at(self._epoch_counts, part.batch, 1)  # costs what the batch does, not n

    def _step(
        self, step: int, x: Tensor, y: Tensor, weight: Tensor | None, scale: float
    ) -> tuple[Tensor, Tensor]:
        """Take a step of the optimiser; the loss, and the logits [b, q] before it."""
        seed_step(self.config.seed, step + 1, self.fabric.global_rank, self.fabric.device)
        loss, logits = self.step_module(x, y, weight)
        self.fabric.backward(loss if scale == 1.0 else loss * scale)
        if self.model.clip_norm is not None:
            self.fabric.clip_gradients(
                self.step_module,
                self.optimizer,
                max_norm=self.model.clip_norm,
                error_if_nonfinite=False,  # a gradient scaler skips such a step by itself
            )
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss, logits

    def _weighed(self, weight: Tensor | None, rows: Tensor) -> Tensor | None:
        """The selector's weights of a batch times those of its instances."""
        if weight is not None:
            weight = weight.to(self.fabric.device)
        if self._instance_weight is None:
            return weight
        own = self._instance_weight[rows]
        return own if weight is None else weight * own.unsqueeze(1)

    def share(self) -> float:
        """Exchange what the epoch's processes observed; the mean loss over the drawn rows."""
        with self.clock.part("observe"):
            self._tell(self.shared.share)
            self._agree()
            if self.shared.selector.predictions == "full_pass":
                self._tell(self._observe_all)
        if self.fabric.world_size > 1:
            torch.distributed.all_reduce(self._loss_sum)
        train_loss = float(self._loss_sum) / int(self._epoch_counts.sum())
        if not math.isfinite(train_loss):
            raise self._diverged()
        return train_loss

    def _agree(self) -> None:
        """Give all processes the running statistics of the first.

        Each has counted its own part of the last batch; selectors that observe predictions
        made with those would draw different batches from then on.
        """
        if self.fabric.world_size > 1:
            for buffer in self.model.buffers():
                torch.distributed.broadcast(buffer, src=0)

    def validated(self, labels: sp.csr_matrix, scores: Tensor) -> None:
        """Tell the selector the mean loss on validation rows, by probabilities [n, q] on the host.

        It is the cross-entropy alone, whatever else the model's own loss has.
        """
        y = torch.from_numpy(labels.toarray()).double()
        p = scores.double().clamp(_LEAST, 1.0 - _LEAST)
        loss = torch.nn.functional.binary_cross_entropy(p, y)
        self._tell(self.shared.validated, loss.item())

    def next_epoch(self) -> None:
        """Stand at the start of the next epoch."""
        self.epoch, self.position = self.epoch + 1, 0
        self._begin_epoch()

    def predict(self, rows: Rows) -> Tensor:
        """Probabilities [n, q] of all rows, on the host."""
        with self.fabric.autocast(), self.model.unchanging():
            pieces = [self.model.predict_proba(x).cpu() for x in rows.chunks()]
        return torch.cat(pieces)

    def _observe_all(self) -> None:
        """One evaluation pass over all training rows, for selectors that ask for it."""
        rows = self.rows["train"]
        self.shared.selector.observe(np.arange(len(rows)), probs=self.predict(rows))

    def _tell(self, tell: Callable[..., None], *arguments: Any) -> None:
        """Tell the selector something; predictions it refuses are the end of the run."""
        try:
            tell(*arguments)
        except ValueError as problem:
            if not math.isfinite(float(self._loss_sum)):
                raise self._diverged() from problem
            raise RunError(f"Epoch {self.epoch}: {problem}") from problem

    def _diverged(self) -> RunError:
        return RunError(
            f"The loss became infinite or NaN in epoch {self.epoch}; lower learning_rate (now "
            f"{self.config.learning_rate}) or raise the precision (now {self.config.precision})."
        )

    def _begin_epoch(self) -> None:
        device = self.fabric.device
        exact = torch.float32 if device.type == "mps" else torch.float64  # which it does not have
        self._loss_sum = torch.zeros((), dtype=exact, device=device)
        self._epoch_counts = np.zeros(len(self.rows["train"]), dtype=np.int64)
        self.clock = Clock()


def warm_up(step: int, steps: int) -> float:
    """The factor of the learning rate in (0-based) ``step``: linear over ``steps``, then 1."""
    return min(1.0, (step + 1) / steps) if steps else 1.0


def seed_step(seed: int, step: int, rank: int, device: torch.device) -> None:
    """Make the randomness of a step on ``device`` a pure function of seed, step and process.

    So a resumed run needs no generator's state, and methods that are
    compared with the same seed see the same dropout masks.
    """
    words = np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)
    seed_generators(int(words[0]), device)


def _uses_features(config: RunConfig) -> bool:
    names = [config.selector]
    if config.selector == Trim.name:
        names.append(config.selector_options.get("rows", names[0]))  # the method that draws
    try:
        return any(find_selector(name).uses_features for name in names)
    except ValueError:
        return True  # making it says what is wrong


def _selector_options(config: RunConfig, batch_size: int, device: torch.device) -> dict[str, Any]:
    given: dict[str, Any] = {"epochs": config.epochs, "warmup": config.warmup, "seed": config.seed}
    for name in (*given, "batch_size", "insights"):
        if name in config.selector_options:
            raise UserError(f"{name} is a setting of the run, not one of selector_options.")
    if config.images and config.selector == "d2ace":
        given["mix_epochs"] = IMAGE_MIX_EPOCHS
    if device.type == "mps":  # it has no float64, which probabilities are kept in
        given["device"] = "cpu"
    if config.insights:
        given["insights"] = True
    return {**given, "batch_size": batch_size, **config.selector_options}


def _made(make: Any, name: str, *arguments: Any) -> Any:
    """A model or selector by name; a mistake of the caller raises the caller's error."""
    *positional, options = arguments
    try:
        return make(name, *positional, **options)
    except (TypeError, ValueError) as problem:
        raise UserError(str(problem)) from problem
