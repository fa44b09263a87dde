"""A run in one process: set up or resume, train, save, and end with the test metrics."""

from __future__ import annotations

import copy
import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from d2ace._util.callbacks import Watch
from d2ace._util.errors import RunError
from d2ace._util.random_state import Turn
from d2ace.evaluation import Evaluation

from .clock import PARTS
from .config import RunConfig
from .fabric import any_process
from .folder import RunFolder, Saved
from .interruption import Interruption, RunInterrupted
from .kept_insights import insights_content
from .problem import Problem
from .result import RunResult, environment
from .verified import elsewhere

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from .loop import Loop

__all__ = ["Run"]

_ASKING = 16  # batches between checks whether one of several processes should stop


@dataclass
class Run:
    """What every process of a run does; plain values, so that it can be sent to new processes."""

    config: RunConfig
    problem: Problem
    folder: RunFolder | None
    checkpoint_every: int | None
    threads: int | None
    watch: Watch | None
    resume: bool = True
    prepared: float = 0.0
    """Seconds that making the problem took."""

    def __call__(self, fabric: Fabric) -> str:
        """Train to the end; the result as JSON, so that any kind of process can return it."""
        turn = Turn(fabric.device, self.threads or _fair_share(fabric))
        return self._run(fabric, turn).to_json()

    def _run(self, fabric: Fabric, turn: Turn) -> RunResult:
        from .loop import Loop

        started, spent, problem = time.perf_counter(), _Spent(), self.problem
        with turn:
            loop = Loop(self.config, problem, fabric)
        best: dict[str, Any] | None = None
        if self.folder is not None:
            saved = self.folder.load(problem, fabric.world_size) if self.resume else None
            self._refuse_different(fabric, saved, loop.most_batches)
            if saved is not None:
                spent, best = self._restored(loop, saved), saved.weights
            if fabric.is_global_zero:  # only now, so that a file that is refused changes nothing
                self.folder.open(resume=self.resume)
            fabric.barrier()
        spent.setup += self.prepared + time.perf_counter() - started
        with Interruption(heed=self.folder is not None) as asked:
            while not loop.finished:
                try:
                    best = self._epoch(loop, turn, spent, asked) or best
                except RunError:
                    raise
                except RuntimeError:
                    # A signal to all processes of a run ends the loader's workers, too, and a step
                    # may be half done: the last checkpoint counts.
                    self._stop_if(asked.signum or 0, loop)
                    raise
        assert best is not None  # noqa: S101 - the first epoch is the best so far
        loop.model.load_state_dict(best)
        tested = time.perf_counter()
        with turn:
            outcome, per_label = loop.test()
        spent.test += time.perf_counter() - tested
        ended = time.perf_counter()
        if self.folder is not None and fabric.is_global_zero:
            recorder, insights = loop.recorder, loop.shared.selector.insights
            with turn:
                record = None if recorder is None else recorder.file(loop.draw_counts)
                known = insights_content(self.config, problem, insights) if insights else None
            self.folder.keep(loop.best_epoch, record, known)
        with turn:  # the result tells its threads
            kept = time.perf_counter() - ended
            result = _result(loop, fabric, outcome, per_label, spent, kept)
        if self.folder is not None and fabric.is_global_zero:
            self.folder.finish(result)
        fabric.barrier()
        return result

    def _restored(self, loop: Loop, saved: Saved) -> _Spent:
        """Resume from a checkpoint; returns the seconds that were spent before it."""
        place: Path | None = saved.place
        try:
            if saved.weights is not None:
                place = saved.best
                loop.model.load_state_dict(saved.weights)  # which the end of the run will do
                place = saved.place
            loop.load_state_dict(saved.content["loop"])
        except Exception as problem:  # parts of other shapes fail in as many ways as there are
            why = " ".join(f"{type(problem).__name__}: {problem}".split())
            raise RunError(
                f"{place} does not fit this version ({why}); it was left alone: {elsewhere()}."
            ) from problem
        return _Spent(**saved.content["spent"])

    def _refuse_different(self, fabric: Fabric, saved: Saved | None, batches: int) -> None:
        """Refuse processes that would resume from different steps."""
        at = None if saved is None else saved.content["loop"]
        step = -1 if at is None else at["epoch"] * batches + at["position"]
        if any_process(fabric, step) != -any_process(fabric, -step):
            raise RunError(
                "The processes do not find the same checkpoint; use an out folder that all "
                "machines share."
            )

    def _epoch(
        self, loop: Loop, turn: Turn, spent: _Spent, asked: Interruption
    ) -> dict[str, Any] | None:
        """One epoch, saved; the weights after it if it is the best so far."""
        alone = loop.fabric.world_size == 1
        for position in turn.each(loop.train_epoch()):
            if position == loop.batches:
                continue  # an epoch that ends is saved below
            due = self.checkpoint_every is not None and position % self.checkpoint_every == 0
            if due or (asked.signum if alone else position % _ASKING == 0):
                signum = any_process(loop.fabric, asked.signum or 0)  # all stop, or none does
                if due or signum:
                    with loop.clock.part("save"):
                        self._save(loop, spent)
                    self._stop_if(signum, loop)
        with turn:
            entry = loop.end_epoch()
        ended = time.perf_counter()
        weights = None
        if loop.best_epoch == entry["epoch"]:
            weights = {name: value.clone() for name, value in loop.model.state_dict().items()}
            if self.folder is not None and loop.fabric.is_global_zero:
                self.folder.save_best(entry["epoch"], _restorable(loop, weights))
        if self.folder is not None:
            self._save(loop, spent)
        # No checkpoint can hold how long it took itself: this goes into those of later epochs.
        entry["seconds"]["save"] += time.perf_counter() - ended
        if self.watch is not None and loop.fabric.is_global_zero:
            self.watch(copy.deepcopy(entry))  # whose the result is, whatever a watcher does
        if not loop.finished:
            self._stop_if(any_process(loop.fabric, asked.signum or 0), loop)
        return weights

    def _save(self, loop: Loop, spent: _Spent) -> None:
        state = loop.state_dict()
        if self.folder is not None and loop.fabric.is_global_zero:
            self.folder.save(state, spent.so_far(), self.problem.digest, loop.fabric.world_size)

    def _stop_if(self, signum: int, loop: Loop) -> None:
        if signum and self.folder is not None:
            raise RunInterrupted(
                signum,
                f"Stopped by {signal.Signals(signum).name} in epoch {loop.epoch} of "
                f"{self.config.epochs}; the same command resumes from {self.folder.path}.",
            )


class _Spent:
    """Seconds outside the epochs, and processor seconds, over all parts of an interrupted run."""

    def __init__(self, setup: float = 0.0, test: float = 0.0, cpu: float = 0.0) -> None:
        self.setup, self.test = setup, test
        self._before = cpu - time.process_time()

    @property
    def cpu(self) -> float:
        return self._before + time.process_time()

    def so_far(self) -> dict[str, float]:
        return {"setup": self.setup, "test": self.test, "cpu": self.cpu}


def _result(
    loop: Loop,
    fabric: Fabric,
    outcome: Evaluation,
    per_label: dict[str, list[Any]],
    spent: _Spent,
    kept: float,
) -> RunResult:
    """The result; ``kept`` are the seconds that files beside it took."""
    parts = {part: sum(each["seconds"].get(part, 0.0) for each in loop.history) for part in PARTS}
    parts["evaluation"] += spent.test
    parts["save"] += kept
    best = loop.history[loop.best_epoch - 1]
    return RunResult(
        config=loop.config.to_dict(),
        environment={
            **environment(fabric.world_size, fabric.device.type),
            **_approximation(loop.shared.selector),
        },
        dataset=loop.problem.sizes,
        best_epoch=loop.best_epoch,
        validation=best["validation"],
        test=outcome.values,
        undefined={"validation": best["undefined"], "test": outcome.undefined},
        seconds={"setup": spent.setup, **parts, "total": spent.setup + sum(parts.values())},
        cpu_seconds=spent.cpu,
        history=loop.history,
        per_label=per_label,
    )


def _approximation(selector: Any) -> dict[str, Any]:
    """What nobody chose where neighbours are approximate by default: it depends on the machine."""
    if getattr(selector, "neighbor_method", None) != "approximate":
        return {}
    return {"neighbors": "approximate", "neighbor_recall": selector.neighbor_recall}


def _restorable(loop: Loop, weights: dict[str, Any]) -> dict[str, Any]:
    """All that predictions on new rows need, without the training data."""
    problem, scaler = loop.problem, loop.problem.scaler
    return {
        "config": json.dumps(loop.config.to_dict()),
        "weights": weights,
        "scaler": scaler
        and {name: torch.from_numpy(value) for name, value in scaler.state_dict().items()},
        "fill": None if problem.fill is None else torch.from_numpy(problem.fill),
        "features": torch.from_numpy(problem.features),
        "feature_names": list(problem.feature_names),
        "label_names": list(problem.label_names),
        "thresholds": torch.from_numpy(loop.thresholds),
    }


def _fair_share(fabric: Fabric) -> int | None:
    """Threads for one of several processes on the processor; None leaves torch's choice."""
    if fabric.world_size == 1 or fabric.device.type != "cpu":
        return None
    return max(1, torch.get_num_threads() // fabric.world_size)
