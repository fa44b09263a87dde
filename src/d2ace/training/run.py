"""A run in one process: set up or resume, train, save, and end with the test metrics."""

from __future__ import annotations

import copy
import json
import signal
import time
from collections.abc import Callable, Iterator
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
    save_every: float = 0.0
    """Seconds that pass before the end of an epoch, other than the last, is saved again."""
    loop_type: Callable[[RunConfig, Problem, Fabric], Loop] | None = None
    """Another kind of :class:`.loop.Loop`."""
    processor_clock: Callable[[], float] = time.process_time
    """Processor seconds that count as the run's."""

    def __call__(self, fabric: Fabric) -> str:
        """Train to the end; the result as JSON, so that any kind of process can return it."""
        turn = Turn(fabric.device, self.threads or _fair_share(fabric))
        return self._run(fabric, turn).to_json()

    def _run(self, fabric: Fabric, turn: Turn) -> RunResult:
        going = self.begin(fabric, turn)
        with Interruption(heed=self.folder is not None) as asked:
            for _ in self.steps(going, turn, asked):
                pass
        return self.end(going, turn)

    def begin(self, fabric: Fabric, turn: Turn) -> Going:
        """Set up, or resume from the checkpoint."""
        from .loop import Loop

        started, problem = time.perf_counter(), self.problem
        spent = Spent(clock=self.processor_clock)
        with turn:
            loop = (self.loop_type or Loop)(self.config, problem, fabric)
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
        return Going(loop, spent, best, written=loop.best_epoch, saved=time.monotonic())

    def steps(self, going: Going, turn: Turn, asked: Interruption) -> Iterator[None]:
        """Train to the end of the last epoch; gives way after every step."""
        while not going.loop.finished:
            try:
                yield from self._epoch(going, turn, asked)
            except RunError:
                raise
            except RuntimeError:
                # A signal to all processes of a run ends the loader's workers, too, and a step
                # may be half done: the last checkpoint counts.
                self._stop_if(asked.signum or 0, going.loop)
                raise

    def end(self, going: Going, turn: Turn) -> RunResult:
        """Test the best weights, and write the files of a finished run."""
        loop, spent, fabric = going.loop, going.spent, going.loop.fabric
        assert going.best is not None  # noqa: S101 - the first epoch is the best so far
        loop.model.load_state_dict(going.best)
        tested = time.perf_counter()
        with turn:
            outcome, per_label = loop.test()
        spent.test += time.perf_counter() - tested
        ended = time.perf_counter()
        if self.folder is not None and fabric.is_global_zero:
            recorder, insights = loop.recorder, loop.shared.selector.insights
            with turn:
                record = None if recorder is None else recorder.file(loop.draw_counts)
                known = insights_content(self.config, self.problem, insights) if insights else None
            self._save_best(going)
            self.folder.keep(loop.best_epoch, record, known)
        with turn:  # the result tells its threads
            kept = time.perf_counter() - ended
            result = _result(loop, fabric, outcome, per_label, spent, kept)
        if self.folder is not None and fabric.is_global_zero:
            self.folder.finish(result)
        fabric.barrier()
        return result

    def _restored(self, loop: Loop, saved: Saved) -> Spent:
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
        return Spent(**saved.content["spent"], clock=self.processor_clock)

    def _refuse_different(self, fabric: Fabric, saved: Saved | None, batches: int) -> None:
        """Refuse processes that would resume from different steps."""
        at = None if saved is None else saved.content["loop"]
        step = -1 if at is None else at["epoch"] * batches + at["position"]
        if any_process(fabric, step) != -any_process(fabric, -step):
            raise RunError(
                "The processes do not find the same checkpoint; use an out folder that all "
                "machines share."
            )

    def _epoch(self, going: Going, turn: Turn, asked: Interruption) -> Iterator[None]:
        """One epoch, saved; gives way after every step."""
        loop = going.loop
        alone = loop.fabric.world_size == 1
        for position in turn.each(loop.train_epoch()):
            if position < loop.batches:  # an epoch that ends is saved below
                due = self.checkpoint_every is not None and position % self.checkpoint_every == 0
                if due or (asked.signum if alone else position % _ASKING == 0):
                    signum = any_process(loop.fabric, asked.signum or 0)  # all stop, or none does
                    if due or signum:
                        with loop.clock.part("save"):
                            self._save(going)
                        self._stop_if(signum, loop)
            yield
        with turn:
            entry = loop.end_epoch()
        ended = time.perf_counter()
        if loop.best_epoch == entry["epoch"]:
            weights = loop.model.state_dict()
            going.best = {name: value.clone() for name, value in weights.items()}
        due = loop.finished or time.monotonic() - going.saved >= self.save_every
        if due and self.folder is not None:
            self._save(going)
        # No checkpoint can hold how long it took itself: this goes into those of later epochs.
        entry["seconds"]["save"] += time.perf_counter() - ended
        if self.watch is not None and loop.fabric.is_global_zero:
            self.watch(copy.deepcopy(entry))  # whose the result is, whatever a watcher does
        if not loop.finished:
            signum = any_process(loop.fabric, asked.signum or 0)
            if signum and not due:
                self._save(going)
            self._stop_if(signum, loop)

    def _save(self, going: Going) -> None:
        loop, state = going.loop, going.loop.state_dict()
        if self.folder is not None and loop.fabric.is_global_zero:
            self._save_best(going)
            spent, processes = going.spent.so_far(), loop.fabric.world_size
            self.folder.save(state, spent, self.problem.digest, processes)
        going.saved = time.monotonic()

    def _save_best(self, going: Going) -> None:
        """Write the best weights so far, which a checkpoint names."""
        best = going.loop.best_epoch
        if self.folder is not None and going.best is not None and going.written != best:
            self.folder.save_best(best, _restorable(going.loop, going.best))
            going.written = best

    def _stop_if(self, signum: int, loop: Loop) -> None:
        if signum and self.folder is not None:
            raise RunInterrupted(
                signum,
                f"Stopped by {signal.Signals(signum).name} in epoch {loop.epoch} of "
                f"{self.config.epochs}; the same command resumes from {self.folder.path}.",
            )


@dataclass
class Going:
    """How far a run is."""

    loop: Loop
    spent: Spent
    best: dict[str, Any] | None
    """The weights of the best epoch so far."""
    written: int
    """The best epoch whose weights are in the folder."""
    saved: float
    """When the last checkpoint was written, on a clock that never goes back."""


class Spent:
    """Seconds outside the epochs, and processor seconds, over all parts of an interrupted run."""

    def __init__(
        self,
        setup: float = 0.0,
        test: float = 0.0,
        cpu: float = 0.0,
        *,
        clock: Callable[[], float] = time.process_time,
    ) -> None:
        self.setup, self.test = setup, test
        self._clock, self._before = clock, cpu - clock()

    @property
    def cpu(self) -> float:
        return self._before + self._clock()

    def so_far(self) -> dict[str, float]:
        return {"setup": self.setup, "test": self.test, "cpu": self.cpu}


def _result(
    loop: Loop,
    fabric: Fabric,
    outcome: Evaluation,
    per_label: dict[str, list[Any]],
    spent: Spent,
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
