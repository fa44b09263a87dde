"""The epochs of one run: train, validate, remember the best."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from lightning_fabric import Fabric
from torch import Tensor

from d2ace._util.errors import ContractError, UserError
from d2ace.evaluation import METRICS, Evaluation, evaluate, tune_thresholds

from .config import RunConfig
from .label_scores import label_scores
from .problem import Problem, Split
from .recording import Recorder
from .trainer import Trainer

__all__ = ["Loop", "refuse_undefined_monitor"]


class Loop(Trainer):
    """State and steps of a run; :meth:`state_dict` holds all of it after any step."""

    def __init__(self, config: RunConfig, problem: Problem, fabric: Fabric) -> None:
        super().__init__(config, problem.train, fabric, model_options=problem.model_options)
        self.problem = problem
        self.rows["validation"] = self.placed(problem.validation)
        self.rows["test"] = self.placed(problem.test)
        self.recorder = Recorder(problem, self.space, config.epochs) if config.record else None
        self.history: list[dict[str, Any]] = []
        self.draw_counts = np.zeros(len(problem.train.rows), dtype=np.int64)
        self.best_epoch, self.best_score = 0, -math.inf
        self._thresholds = np.full(len(problem.label_names), 0.5)
        self._tuned_by: Tensor | None = None
        share = "validation share"
        if len(problem.label_names) == 1:
            share += ", or a second label, as rows without any are left out"
        refuse_undefined_monitor(
            config.monitor, problem.validation.Y, of=f" of {problem.name}", share=share
        )

    # One epoch ------------------------------------------------------------------------------

    def train_epoch(self) -> Iterator[int]:
        """Train the rest of the epoch; gives way after every step, so that one may stop there."""
        if self.recorder is not None and not self.position:
            self.shared.selector.set_epoch(self.epoch)
            self.recorder.start_of_epoch(self.epoch, self.shared.selector, self._instance_losses)
        yield from super().train_epoch()

    def end_epoch(self) -> dict[str, Any]:
        """Share, validate, remember the best, and note down what happened."""
        train_loss = self.share()
        with self.clock.part("evaluation"):
            scores = self.predict(self.rows["validation"])
            if not torch.isfinite(scores).all():
                raise self._diverged()
            self.validated(self.problem.validation.Y, scores)
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
        self._remember(outcome, scores)
        self.next_epoch()
        return entry

    def _remember(self, outcome: Evaluation, scores: Tensor) -> None:
        metric = METRICS[self.config.monitor]
        score = outcome.values[self.config.monitor] * (1 if metric.higher_is_better else -1)
        if not self.best_epoch or score > self.best_score:
            self.best_epoch, self.best_score = self.epoch, score
            self._tuned_by = scores

    @property
    def thresholds(self) -> npt.NDArray[np.float64]:
        """Of every label, tuned by the scores of the validation rows that were the best last."""
        labels, scores = self.problem.validation.Y, self._tuned_by
        if scores is not None and labels.nnz:  # else there is nothing to tune them on
            self._thresholds = tune_thresholds(labels, scores.numpy())
        self._tuned_by = None
        return self._thresholds

    def _selection(self) -> dict[str, Any]:
        """What the epoch's draws looked like."""
        selector = self.shared.selector
        found = selector.diagnostics()
        if "effective_rows" not in found:
            raise ContractError(
                f"{type(selector).__name__}.diagnostics must return what the base class does, and "
                "more; return {**super().diagnostics(), 'name': number}."
            )
        return {
            "pressure": found.get("pressure"),
            "p_beta": found.get("mixing"),
            "effective_rows": found["effective_rows"],
            "distinct_rows": int(np.count_nonzero(self._epoch_counts)),
            **{name: found[name] for name in ("entropy", "p_min", "p_max")},
        }

    # Evaluation -----------------------------------------------------------------------------

    def test(self) -> tuple[Evaluation, dict[str, list[Any]]]:
        """The metrics of the present weights on the test rows, and the scores of every label.

        Thresholds are tuned on the validation rows, by the same weights.
        """
        self._tuned_by = self.predict(self.rows["validation"])
        scores = self.predict(self.rows["test"])
        outcome = _evaluated(self.problem.test, scores, thresholds=self.thresholds)
        return outcome, label_scores(self.problem, scores.numpy(), self.thresholds)

    @torch.no_grad()
    def _epoch_loss(self) -> float:
        """Mean loss over all training rows in evaluation mode."""
        self.model.eval()
        total = 0.0
        for x, y in self._pass():
            with self.fabric.autocast():
                total += float(self.model.loss(self.model(x), y).total) * len(x)
        self.model.train()
        return total / len(self.rows["train"])

    @torch.no_grad()
    def _instance_losses(self) -> Tensor:
        """sum_j l_ij [n] in evaluation mode."""
        P = self.predict(self.rows["train"]).double().clamp(1e-12, 1 - 1e-12)
        y = torch.from_numpy(self.problem.train.Y.toarray()).double()
        return -(y * P.log() + (1 - y) * (1 - P).log()).sum(1)

    # Saving and resuming --------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values; randomness needs no place in it (see :func:`seed_step`)."""
        self.shared.share()
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "selector": self.shared.state_dict(),
            "recorder": None if self.recorder is None else self.recorder.state_dict(),
            "epoch": self.epoch,
            "position": self.position,
            "best_epoch": self.best_epoch,
            "best_score": self.best_score,
            "history": json.dumps(self.history),
            "draw_counts": torch.from_numpy(self.draw_counts),
            "epoch_counts": torch.from_numpy(self._epoch_counts),
            "loss_sum": self._loss_sums(),
            "seconds": dict(self.clock.seconds),
        }

    def _loss_sums(self) -> Tensor:
        """The sum of each process, or the one of a process that is alone."""
        if self.fabric.world_size == 1:
            return self._loss_sum
        sums = [torch.empty_like(self._loss_sum) for _ in range(self.fabric.world_size)]
        torch.distributed.all_gather(sums, self._loss_sum)
        return torch.stack(sums)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state that :meth:`state_dict` returned."""
        self._refuse_unfit(state)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["precision"]:  # the gradient scale, where there is one
            self.fabric.strategy.precision.load_state_dict(state["precision"])
        self.shared.selector.load_state_dict(state["selector"])
        if self.recorder is not None:
            self.recorder.load_state_dict(state["recorder"])
        self.epoch, self.position = state["epoch"], state["position"]
        self.best_epoch, self.best_score = state["best_epoch"], state["best_score"]
        self.history = json.loads(state["history"])
        self.draw_counts = state["draw_counts"].numpy().copy()
        self._epoch_counts = state["epoch_counts"].numpy().copy()
        sums = state["loss_sum"].to(self.fabric.device)
        self._loss_sum = sums[self.fabric.global_rank].clone() if sums.ndim else sums
        self.clock.seconds |= state["seconds"]

    def _refuse_unfit(self, state: dict[str, Any]) -> None:
        """What no later step would notice."""
        epoch, position, best = state["epoch"], state["position"], state["best_epoch"]
        done = [each["epoch"] for each in json.loads(state["history"])]
        if (
            done != list(range(1, epoch))
            or epoch > self.config.epochs + 1
            or best not in [0, *done]
        ):
            raise ValueError(f"epoch {epoch}, with best {best}, cannot follow {len(done)} epochs")
        if not 0 <= position <= self.most_batches:
            raise ValueError(f"batch {position} is none of {self.most_batches}")
        if not all(isinstance(spent, int | float) for spent in state["seconds"].values()):
            raise ValueError("seconds are no numbers")
        rows = self._epoch_counts.shape
        for name in ("draw_counts", "epoch_counts"):
            if state[name].shape != rows or state[name].dtype != torch.int64:
                raise ValueError(f"{name} does not count the {rows[0]} training rows")


def refuse_undefined_monitor(monitor: str, labels: sp.csr_matrix, *, of: str, share: str) -> None:
    """Whether the monitored metric exists is up to the validation labels alone.

    ``of`` says whose they are, ``share`` what makes them more.
    """
    blank = evaluate(labels, np.zeros(labels.shape))
    if math.isnan(blank.values[monitor]):
        raise UserError(
            f"{monitor} is undefined on the {labels.shape[0]} validation rows{of}, as no label has "
            f"both classes there; choose another monitor or a larger {share}."
        )


def _evaluated(split: Split, scores: Tensor, **options: Any) -> Evaluation:
    return evaluate(split.Y, scores.numpy(), **options)
