"""The epochs of one run: draw, train, observe, validate, remember the best."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from d2ace.errors import RunError, UserError
from d2ace.evaluation import METRICS, Evaluation, evaluate
from d2ace.models import MultiLabelModel, make_model
from d2ace.selectors import make_selector

from .clock import Clock
from .config import RunConfig
from .problem import Problem, Rows, Split
from .recording import Recorder
from .shared import Part, SharedSelector

__all__ = ["Loop"]

_EVALUATED_AT_ONCE = 1024


class TrainingStep(nn.Module):
    """Forward pass and loss as one module, so that wrappers for processes and precision fit."""

    def __init__(self, model: MultiLabelModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, y: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """The loss, and the logits [b, q]."""
        output = self.model(x)
        return self.model.loss(output, y, weight).total, output.logits


class Loop:
    """State and steps of a run; :meth:`state_dict` holds all of it after any step."""

    def __init__(self, config: RunConfig, problem: Problem, fabric: Fabric) -> None:
        self.config, self.problem, self.fabric = config, problem, fabric
        seed_step(config.seed, 0, 0)  # all processes start from the same weights
        train = problem.train
        width = train.X.shape[1]
        self.model = _made(make_model, config.model, width, train.Y, config.model_options)
        groups = self.model.param_groups(config.learning_rate)
        self._peak = [group["lr"] for group in groups]
        optimizer = torch.optim.Adam(groups, weight_decay=config.weight_decay, fused=True)
        self.step_module, self.optimizer = fabric.setup(TrainingStep(self.model), optimizer)
        batch_size = config.batch_size * fabric.world_size
        selector = _made(
            make_selector,
            config.selector,
            train.Y,
            train.X,
            _selector_options(config, batch_size, fabric.device),
        )
        self.shared = SharedSelector(selector, fabric.global_rank, fabric.world_size)
        dtype = next(self.model.parameters()).dtype
        splits = {"train": train, "validation": problem.validation, "test": problem.test}
        self.rows = {name: Rows(split.X).to(fabric.device, dtype) for name, split in splits.items()}
        self._labels = torch.from_numpy(train.Y.toarray()).to(fabric.device)
        self.recorder = Recorder(problem, config.epochs) if config.record else None
        self.epoch, self.position = 1, 0  # the epoch we are in, and its batches trained so far
        self.history: list[dict[str, Any]] = []
        self.draw_counts = np.zeros(len(train.rows), dtype=np.int64)
        self.best_epoch, self.best_score = 0, -math.inf
        self._begin_sums()
        self.clock = Clock()

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.epoch > self.config.epochs

    # One epoch ------------------------------------------------------------------------------

    def train_epoch(self) -> Iterator[int]:
        """Train the rest of the epoch; gives way after every step, so that one may stop there."""
        selector = self.shared.selector
        selector.set_epoch(self.epoch)
        if self.recorder is not None and not self.position:
            self.recorder.start_of_epoch(self.epoch, selector, self._instance_losses)
        self.step_module.train()
        self.model.on_epoch_start(self.epoch, len(selector))
        parts = iter(self.shared)
        while True:
            with self.clock.part("draw"):
                part = next(parts, None)
            if part is None:
                break
            if not self.position:
                self.clock.move(selector.recompute_seconds, "draw", "recompute")
            self._train(part)
            self.position += 1
            yield self.position

    def _train(self, part: Part) -> None:
        config, selector = self.config, self.shared.selector
        step = (self.epoch - 1) * len(selector) + self.position
        factor = warm_up(step, config.warmup * len(selector))
        for group, peak in zip(self.optimizer.param_groups, self._peak, strict=True):
            group["lr"] = peak * factor
        selector.learning_rate = config.learning_rate * factor
        with self.clock.part("observe"):
            weight = self.shared.loss_weight(part)
        with self.clock.part("train"):
            seed_step(config.seed, step + 1, self.fabric.global_rank)
            rows = torch.tensor(part.rows, device=self.fabric.device)
            x, y = self.rows["train"].take(rows), self._labels[rows]
            if weight is not None:
                weight = weight.to(self.fabric.device)
            loss, logits = self.step_module(x, y, weight)
            self.fabric.backward(loss if part.scale == 1.0 else loss * part.scale)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.model.on_step(step)
            self._loss_sum += loss.detach() * len(part.rows) * (part.scale > 0)
        if selector.predictions == "train":
            with self.clock.part("observe"):
                self._told(self.shared.observe, part, logits)
        self._epoch_counts += np.bincount(part.batch, minlength=self._epoch_counts.size)

    def end_epoch(self) -> dict[str, Any]:
        """Share, validate, remember the best, and note down what happened."""
        with self.clock.part("observe"):
            self._told(self.shared.share)
            if self.shared.selector.predictions == "full_pass":
                self._told(self._observe_all)
        if self.fabric.world_size > 1:
            torch.distributed.all_reduce(self._loss_sum)
        train_loss = float(self._loss_sum) / int(self._epoch_counts.sum())
        if not math.isfinite(train_loss):
            raise self._diverged()
        with self.clock.part("evaluation"):
            scores = self.predict(self.rows["validation"])
            outcome = _evaluated(self.problem.validation, scores)
            epoch_loss = self._epoch_loss() if self.config.epoch_loss else None
        if self.recorder is not None:
            labels = self.problem.validation.Y.toarray()
            self.recorder.end_of_epoch(self.shared.selector, labels, scores.numpy())
        entry = {
            "epoch": self.epoch,
            "train_loss": train_loss,
            "epoch_loss": epoch_loss,
            "validation": outcome.values,
            "undefined": outcome.undefined,
            "seconds": dict(self.clock.seconds),
            **self._selection(),
            "learning_rate": self.shared.selector.learning_rate,
        }
        self.history.append(entry)
        self.draw_counts += self._epoch_counts
        self._remember(outcome)
        self.epoch, self.position = self.epoch + 1, 0
        self._begin_sums()
        self.clock = Clock()
        return entry

    def _observe_all(self) -> None:
        """One evaluation pass over all training rows, for selectors that ask for it."""
        rows = self.rows["train"]
        self.shared.selector.observe(np.arange(len(rows)), probs=self.predict(rows))

    def _remember(self, outcome: Evaluation) -> None:
        metric = METRICS[self.config.monitor]
        score = outcome.values[self.config.monitor] * (1 if metric.higher_is_better else -1)
        score = -math.inf if math.isnan(score) else score
        if not self.best_epoch or score > self.best_score:
            self.best_epoch, self.best_score = self.epoch, score

    def _selection(self) -> dict[str, Any]:
        """What the epoch's draws looked like."""
        selector = self.shared.selector
        P = selector.drawn_probabilities
        n = len(self.draw_counts)
        selective = P is not None
        presses = selective and hasattr(selector, "pressure")
        mixing = getattr(selector, "mixing", None)
        return {
            "pressure": selector.selection_pressure(self.epoch) if presses else None,
            "p_beta": mixing(self.epoch) if selective and mixing is not None else None,
            "effective_rows": float(n if P is None else 1.0 / (P * P).sum()),
            "distinct_rows": int(np.count_nonzero(self._epoch_counts)),
            "entropy": float(math.log(n) if P is None else -(P * P.log()).sum()),
            "p_min": float(1.0 / n if P is None else P.min()),
            "p_max": float(1.0 / n if P is None else P.max()),
        }

    def _told(self, tell: Callable[..., None], *arguments: Any) -> None:
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

    def _begin_sums(self) -> None:
        device = self.fabric.device
        exact = torch.float32 if device.type == "mps" else torch.float64  # which it does not have
        self._loss_sum = torch.zeros((), dtype=exact, device=device)
        self._epoch_counts = np.zeros(len(self.problem.train.rows), dtype=np.int64)

    # Evaluation -----------------------------------------------------------------------------

    def predict(self, rows: Rows) -> Tensor:
        """Probabilities [n, q] of all rows, on the host."""
        with self.fabric.autocast():
            pieces = [self.model.predict_proba(x).cpu() for x in _chunks(rows)]
        return torch.cat(pieces)

    def test(self) -> Evaluation:
        """The metrics of the present weights on the test rows."""
        return _evaluated(self.problem.test, self.predict(self.rows["test"]))

    @torch.no_grad()
    def _epoch_loss(self) -> float:
        """Mean loss over all training rows in evaluation mode."""
        self.model.eval()
        total = 0.0
        labels = self._labels.split(_EVALUATED_AT_ONCE)
        for x, y in zip(_chunks(self.rows["train"]), labels, strict=True):
            with self.fabric.autocast():
                total += float(self.model.loss(self.model(x), y).total) * len(x)
        self.model.train()
        return total / len(self.rows["train"])

    @torch.no_grad()
    def _instance_losses(self) -> Tensor:
        """sum_j l_ij [n] in evaluation mode."""
        P = self.predict(self.rows["train"]).double().clamp(1e-12, 1 - 1e-12)
        y = self._labels.cpu().double()
        return -(y * P.log() + (1 - y) * (1 - P).log()).sum(1)

    # Saving and resuming --------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values; randomness needs no place in it (see :func:`seed_step`)."""
        self.shared.share()
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "selector": self.shared.state_dict(),
            "recorder": None if self.recorder is None else self.recorder.state_dict(),
            "epoch": self.epoch,
            "position": self.position,
            "best_epoch": self.best_epoch,
            "best_score": self.best_score,
            "history": json.dumps(self.history),
            "draw_counts": torch.from_numpy(self.draw_counts),
            "epoch_counts": torch.from_numpy(self._epoch_counts),
            "loss_sum": self._loss_sum,
            "seconds": dict(self.clock.seconds),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.shared.selector.load_state_dict(state["selector"])
        if self.recorder is not None:
            self.recorder.load_state_dict(state["recorder"])
        self.epoch, self.position = state["epoch"], state["position"]
        self.best_epoch, self.best_score = state["best_epoch"], state["best_score"]
        self.history = json.loads(state["history"])
        self.draw_counts = state["draw_counts"].numpy().copy()
        self._epoch_counts = state["epoch_counts"].numpy().copy()
        self._loss_sum = state["loss_sum"].to(self.fabric.device)
        self.clock.seconds = dict(state["seconds"])


def warm_up(step: int, steps: int) -> float:
    """The factor of the learning rate in (0-based) ``step``: linear over ``steps``, then 1."""
    return min(1.0, (step + 1) / steps) if steps else 1.0


def seed_step(seed: int, step: int, rank: int) -> None:
    """Make the randomness of a step a pure function of seed, step and process.

    So a run that goes on from a checkpoint needs no generator's state, and methods that are
    compared with the same seed see the same dropout masks.
    """
    words = np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)
    torch.manual_seed(int(words[0]))


def _selector_options(config: RunConfig, batch_size: int, device: torch.device) -> dict[str, Any]:
    given: dict[str, Any] = {"epochs": config.epochs, "warmup": config.warmup, "seed": config.seed}
    for name in (*given, "batch_size"):
        if name in config.selector_options:
            raise UserError(f"{name} is a setting of the run, not one of selector_options.")
    if device.type == "mps":  # it has no float64, which probabilities are kept in
        given["device"] = "cpu"
    return {**given, "batch_size": batch_size, **config.selector_options}


def _made(make: Any, name: str, *arguments: Any) -> Any:
    """A model or selector by name; what the caller got wrong is told as the caller's error."""
    *positional, options = arguments
    try:
        return make(name, *positional, **options)
    except (TypeError, ValueError) as problem:
        raise UserError(str(problem)) from problem


def _evaluated(split: Split, scores: Tensor) -> Evaluation:
    return evaluate(split.Y, scores.numpy())


def _chunks(rows: Rows) -> Iterator[Tensor]:
    for start in range(0, len(rows), _EVALUATED_AT_ONCE):
        yield rows.take(slice(start, start + _EVALUATED_AT_ONCE))
