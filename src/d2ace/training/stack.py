"""Runs that train as one: each a run of its own, but for the arithmetic of a step.

Every run has its own selector, batches, validation, best epoch and folder, just as it has when it
trains alone. Only forward pass, loss, gradients and optimiser are computed for all together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter, process_time
from typing import Any

import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor

from d2ace._util.callbacks import Watch
from d2ace._util.random_state import Turn
from d2ace.models import MLP
from d2ace.selectors import BatchPart

from .config import RunConfig
from .fabric import make_fabric
from .folder import RunFolder
from .interruption import Interruption
from .loop import Loop
from .problem import Problem
from .run import Run
from .split import make_problem
from .stacked_mlp import Masks, StackedMLP

__all__ = ["StackedRun", "may_stack", "same_stack", "train_stack"]

SAVE_EVERY = 60.0
"""Seconds after which runs of a stack are saved; they can go on from there, together or alone."""

ROOM = 2**30
"""Bytes that the networks of a stack may take; further runs wait until it has ended."""

_OWN = ("selector", "selector_options", "selector_source", "seed")


def same_stack(config: dict[str, Any]) -> str:
    """Equal for configurations that may train as one: all but the method and the seed."""
    return json.dumps({k: v for k, v in config.items() if k not in _OWN}, sort_keys=True)


def may_stack(config: dict[str, Any]) -> bool:
    """Whether a run may be one of a stack; others train by themselves."""
    accelerated = torch.cuda.is_available() or torch.backends.mps.is_available()
    return bool(
        config["model"] == MLP.name and config["precision"] == "32-true" and not accelerated
    )  # an accelerator draws other dropout masks


@dataclass
class StackedRun:
    """A run to train with others, and who is told about it."""

    config: RunConfig
    out: Path
    watch: Watch
    """Called with the history entry of every finished epoch."""
    ended: Callable[[Exception | None], None]
    """Called once, with the error that ended the run, a RunInterrupted, or None."""


def train_stack(runs: Sequence[StackedRun], threads: int) -> None:
    """Train runs that are alike by `same_stack`; each ends by itself, and its error is its own.

    What is raised here is of the stack as a whole: runs that have not ended by then can go on from
    what they saved.
    """
    fabric = make_fabric(1, "cpu", runs[0].config.precision)
    turn = Turn(fabric.device, threads)
    problems: dict[int, Problem] = {}
    members = [_Member(one, turn) for one in runs]
    try:
        with Interruption() as asked:
            waiting = members[::-1]
            while waiting:
                room, begun = ROOM, 0
                stack: list[_Member] = []
                while waiting and room >= begun:
                    each = waiting.pop()
                    if each.attempt(partial(each.begin, fabric, problems)) and not each.over:
                        stack.append(each)
                        begun = each.bytes
                        room -= begun
                _train(stack, turn, asked)
    finally:
        for each in members:
            each.leave()


def _train(members: list[_Member], turn: Turn, asked: Interruption) -> None:
    """Steps of all, until none is left."""
    network: _Network | None = None
    saved = monotonic()
    while members:
        with turn:
            members = [each for each in members if each.attempt(each.draw)]
            if network is None or len(members) < network.size:
                network = _Network(members)
            network.train()
            members = [each for each in members if each.attempt(each.observe)]
        for each in members:
            each.attempt(each.end_epoch)
        members = [each for each in members if not each.over]
        if asked.signum or monotonic() - saved > SAVE_EVERY:
            members = [each for each in members if each.attempt(each.save)]
            saved = monotonic()
        if asked.signum:
            for each in members:
                each.attempt(partial(each.stop, asked.signum))
            members = []
        if len(members) < network.size:
            network = None


class _Member:
    """A run of a stack in progress."""

    loop: Loop

    def __init__(self, asked: StackedRun, turn: Turn) -> None:
        self._asked, self._turn = asked, turn
        self.over = False
        """Whether it has ended, well or not."""
        self.step: _Step | None = None
        """What it wants computed next."""
        self._seconds = 0.0  # of the processor: its own, and its share of what all have computed
        self._since: float | None = None
        self._steps: Iterator[_Step] = iter(())
        self._written = 0  # the best epoch whose weights are in the folder
        self._left = ExitStack()

    def attempt(self, action: Callable[[], None]) -> bool:
        """Do something of this run alone; its error is the end of the run, and of no other."""
        self._since = process_time()
        try:
            action()
        except Exception as error:
            self._end(error)
            return False
        finally:
            self._seconds, self._since = self._processor(), None
        return True

    def _processor(self) -> float:
        return self._seconds + (0.0 if self._since is None else process_time() - self._since)

    def _end(self, error: Exception | None) -> None:
        self.leave()
        self.over = True
        self._asked.ended(error)

    def leave(self) -> None:
        """Let others into the folder."""
        self._left.close()

    def begin(self, fabric: Fabric, problems: dict[int, Problem]) -> None:
        """Set up, or go on from a checkpoint; runs of one seed have the same problem."""
        config, started = self._asked.config, perf_counter()
        folder = RunFolder(self._asked.out, config)
        folder.check(resume=True)
        if config.seed not in problems:
            problems[config.seed] = make_problem(config)
        problem = problems[config.seed]
        self._left.enter_context(folder.alone())
        folder.check(resume=True)
        if folder.finished(problem, fabric.world_size) is not None:
            self._end(None)
            return
        self._run = Run(
            config,
            problem,
            folder,
            checkpoint_every=None,
            threads=None,
            watch=self._asked.watch,
            prepared=perf_counter() - started,
            processor_clock=self._processor,
        )
        self._going = self._run.begin(fabric, self._turn)
        self.loop = self._going.loop
        self._written = self.loop.best_epoch
        if self.loop.finished:  # and killed before it was tested
            self._finish()

    @property
    def bytes(self) -> int:
        """What its parameters, their gradients and moments, and a batch take."""
        model, config = self.loop.model, self.loop.config
        parameters = sum(each.numel() for each in model.parameters())
        return 4 * (4 * parameters + config.batch_size * model.n_features)

    def draw(self) -> None:
        """Stand before the next step, which may be the first of an epoch."""
        if self.step is None:
            self.step = next(self._steps, None)
        if self.step is None:
            self._steps = self._epoch()
            self.step = next(self._steps)

    def _epoch(self) -> Iterator[_Step]:
        self.loop.start_epoch()
        for part in self.loop.drawn():
            yield _Step(part, *self.loop.begin_step(part))

    def trained(self, loss: Tensor, logits: Tensor, seconds: float, processor: float) -> None:
        """Take what was computed, and this run's share of the seconds that it took."""
        self._loss, self._logits = loss, logits
        self.loop.clock.seconds["train"] += seconds
        self._seconds += processor

    def observe(self) -> None:
        """Tell the selector; it learns of an epoch's end when it is asked for one batch more."""
        assert self.step is not None  # noqa: S101
        self.loop.end_step(self.step.part, self._loss, self._logits)
        self.step = None
        if self.loop.position == self.loop.batches:
            self.step = next(self._steps, None)

    def end_epoch(self) -> None:
        """Validate where an epoch is over, and test after the last one."""
        if self.step is None and self.loop.position == self.loop.batches:
            self._run.end_epoch(self._going, self._turn, save=False)
            if self.loop.finished:
                self._finish()

    def save(self) -> None:
        """Write a checkpoint, as a run that trains alone does after every epoch."""
        with self.loop.clock.part("save"):
            self._save_best()
            self._run.save(self._going)

    def _save_best(self) -> None:
        if self._written != self.loop.best_epoch:
            self._run.save_best(self._going)
            self._written = self.loop.best_epoch

    def stop(self, signum: int) -> None:
        """End because a signal came."""
        self._run.stop_if(signum, self.loop)

    def _finish(self) -> None:
        self._save_best()
        self._run.end(self._going, self._turn)
        self._end(None)


@dataclass(frozen=True)
class _Step:
    """A batch to train on, the number of the step, and the selector's weights of the loss."""

    part: BatchPart
    number: int
    weight: Tensor | None


class _Network:
    """The networks of all members, and a step of all of them."""

    def __init__(self, members: Sequence[_Member]) -> None:
        self._members, self.size = members, len(members)
        if not members:
            return
        loops = [each.loop for each in members]
        models = [loop.model for loop in loops if isinstance(loop.model, MLP)]
        self._network = StackedMLP(models, [loop.optimizer.optimizer for loop in loops])
        wide = models[0].hparams
        self._masks = Masks(self.size, loops[0].config.batch_size, wide["L"], wide["h"], wide["p"])
        self._features, self._labels = models[0].n_features, models[0].n_labels

    @torch.no_grad()
    def train(self) -> None:
        """One step of every member, each on its own rows."""
        if not self.size:
            return
        started, processor = perf_counter(), process_time()
        steps = [(each.loop, each.step) for each in self._members if each.step is not None]
        sizes = [len(step.part.rows) for _, step in steps]
        x = torch.zeros(self.size, max(sizes), self._features)
        y = torch.zeros(self.size, max(sizes), self._labels)
        for r, (loop, step) in enumerate(steps):
            x[r, : sizes[r]] = loop.rows["train"].take(step.part.rows)
            y[r, : sizes[r]] = loop.labels_at(torch.tensor(step.part.rows))
        masks = self._masks.draw(
            [
                (loop.config.seed, step.number + 1, size)
                for (loop, step), size in zip(steps, sizes, strict=True)
            ]
        )
        logits, given = self._network.forward(x, masks)
        losses, slope = _losses(logits, y, sizes, [step.weight for _, step in steps])
        gradients = self._network.backward(slope, given, masks)
        self._network.step(gradients, [loop.optimizer.param_groups[0]["lr"] for loop, _ in steps])
        seconds = (perf_counter() - started) / self.size
        processor = (process_time() - processor) / self.size
        for r, each in enumerate(self._members):
            each.trained(losses[r], logits[r, : sizes[r]], seconds, processor)


def _losses(
    logits: Tensor, y: Tensor, sizes: Sequence[int], weights: Sequence[Tensor | None]
) -> tuple[Tensor, Tensor]:
    """The loss of every network [R] as `MultiLabelModel.loss` has it, and its slope [R, b, q].

    Rows that fill up a shorter batch count for nothing.
    """
    share = torch.zeros(logits.shape[:2])
    for r, size in enumerate(sizes):
        share[r, :size] = 1.0 / size
    pairs: Tensor | None = None
    for r, weight in enumerate(weights):
        if weight is None:
            continue
        weight = weight.detach().to(logits)
        if weight.ndim == 1 or weight.shape[1] == 1:  # of instances
            share[r, : sizes[r]] *= weight.reshape(-1)
            continue
        pairs = torch.ones_like(logits) if pairs is None else pairs
        pairs[r, : sizes[r]] = weight
    found = F.binary_cross_entropy_with_logits(logits, y, reduction="none")
    slope = (share / logits.shape[2]).unsqueeze(2)
    if pairs is not None:
        found, slope = found * pairs, slope * pairs
    return (found.mean(2) * share).sum(1), torch.sigmoid(logits).sub_(y).mul_(slope)
