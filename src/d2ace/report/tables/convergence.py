"""Tables of convergence: how soon a method is good, when it is best, what is lost afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from d2ace.benchmark.store import StoredRun
from d2ace.evaluation import METRICS
from d2ace.report.figures import style
from d2ace.report.figures.training import monitored
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.method_names import BASELINE
from d2ace.report.registry import register_table
from d2ace.report.run_values import Array, curve, number
from d2ace.report.topics import ComparisonTopic

from .table import Cell, ReportTable, Value, word


def targets(name: str, comparison: MethodComparison) -> ReportTable | None:
    """How soon a method is as good as Random ever was on the validation rows, and the reverse."""
    rows: list[list[Cell]] = []
    data: list[dict[str, Value]] = []
    for dataset in comparison.datasets:
        base = _validation(comparison, dataset, BASELINE)
        if not _goals(base):
            continue
        row = [word(dataset)]
        for method in comparison.methods:
            own = _validation(comparison, dataset, method)
            there, back = _arrivals(own, base), _arrivals(base, own)
            spread = ""
            if there.seconds is not None and not np.isnan(there.seconds):
                spread = f"{there.seconds:.1f} s"
            notes = [there.of_runs] if there.runs else []
            if there.runs and method != BASELINE:
                when = "" if back.epochs is None else f", {back.epochs:g}"
                notes.append(f"{BASELINE} {back.of_runs}{when}")
            row.append(Cell(there.text, there.epochs, spread=spread, note="\n".join(notes)))
            data.append(
                {
                    "dataset": dataset,
                    "method": method,
                    "epochs": there.epochs,
                    "seconds": there.seconds,
                    "reached": there.reached,
                    "runs": there.runs,
                    "baseline_epochs": back.epochs,
                    "baseline_reached": back.reached,
                }
            )
        rows.append(row)
    if not rows:
        return None
    return ReportTable(
        name=name,
        title=f"Epochs to {BASELINE}'s best, {comparison.heading}",
        caption=(
            f"Epochs, and seconds without evaluation, until a run's validation score is as good as "
            f"the best of {BASELINE}'s run with the same fold and seed. The median over runs, "
            "where more than half get there. Below it, how many of the runs got there, and with "
            f"the roles swapped how many of {BASELINE}'s runs reach the method's best, and when. "
            "Of two equal methods each reaches the other's best in about half of the pairs. "
            f"{BASELINE}'s own column has the epoch of its best."
        ),
        columns=["Dataset", *comparison.methods],
        rows=rows,
        data=data,
    )


def peaks(name: str, comparison: MethodComparison) -> ReportTable | None:
    """When a method is best on the validation rows, and what it has lost at the last epoch."""
    rows: list[list[Cell]] = []
    data: list[dict[str, Value]] = []
    for dataset in comparison.datasets:
        row = [word(dataset)]
        for method in comparison.methods:
            curves = [scores for _, scores in _validation(comparison, dataset, method)]
            curves = [scores for scores in curves if np.isfinite(scores).any()]
            if not curves:
                row.append(Cell("–"))
                continue
            epoch = float(np.median([np.nanargmax(scores) + 1 for scores in curves]))
            lost = float(np.mean([_best(scores) - _last(scores) for scores in curves]))
            row.append(Cell(f"{epoch:g}", epoch, note=f"−{lost:.4f}"))
            data.append(
                {
                    "dataset": dataset,
                    "method": method,
                    "best_epoch": epoch,
                    "lost_after": lost,
                    "runs": len(curves),
                }
            )
        if any(cell.value is not None for cell in row[1:]):
            rows.append(row)
    if not rows:
        return None
    return ReportTable(
        name=name,
        title=f"Best epoch, {comparison.heading}",
        caption=(
            "The epoch with the best validation score (median over runs). Below it: how much of "
            "that score is lost at the last epoch (mean over runs). A method that overfits is best "
            "early and loses much. The best of many noisy scores is too high, so all methods "
            "lose a little."
        ),
        columns=["Dataset", *comparison.methods],
        rows=rows,
        data=data,
    )


def losses(name: str, comparison: MethodComparison) -> ReportTable | None:
    """Mean loss of all training rows after a quarter, half and the whole of the epochs."""
    rows: list[list[Cell]] = []
    data: list[dict[str, Value]] = []
    for dataset in comparison.datasets:
        curves = {
            method: _mean_curve([curve(run, "epoch_loss") for run in runs])
            for method in comparison.methods
            if (runs := comparison.runs(dataset, method))
        }
        epochs = min(map(len, curves.values()), default=0)
        for epoch in sorted({-(-epochs // 4), -(-epochs // 2), epochs} - {0}):
            values = {method: float(values[epoch - 1]) for method, values in curves.items()}
            if not any(np.isfinite(value) for value in values.values()):
                continue
            row = [word(dataset), Cell(f"{epoch}", epoch)]
            for method in comparison.methods:
                value = values.get(method, float("nan"))
                if np.isnan(value):
                    row.append(Cell("–"))
                    continue
                row.append(Cell(f"{value:.4f}", value))
                data.append({"dataset": dataset, "epoch": epoch, "method": method, "loss": value})
            rows.append(row)
    if not rows:
        return None
    return ReportTable(
        name=name,
        title=f"Loss of all training rows, {comparison.heading}",
        caption=(
            "Mean loss over all training rows, by an evaluation pass after a quarter, half and all "
            "of the epochs: the mean over runs."
        ),
        columns=["Dataset", "Epoch", *comparison.methods],
        rows=rows,
        data=data,
    )


class _GoalReached(NamedTuple):
    """How many runs reach a goal; the median epoch and seconds if more than half do."""

    reached: int
    runs: int
    epochs: float | None
    seconds: float | None

    @property
    def of_runs(self) -> str:
        return f"{self.reached} of {self.runs}"

    @property
    def text(self) -> str:
        if not self.runs:
            return "–"
        if self.epochs is None:
            return "at most half" if self.reached else "never"
        return f"{self.epochs:g}"


def _arrivals(
    runs: list[tuple[StoredRun, Array]], others: list[tuple[StoredRun, Array]]
) -> _GoalReached:
    """The runs on their way to the best score of the other run with the same fold and seed."""
    goals = _goals(others)
    reached = [
        _reach(run, scores, goals[run.fold, run.seed])
        for run, scores in runs
        if (run.fold, run.seed) in goals
    ]
    hits = [hit for hit in reached if hit is not None]
    # More than half must arrive for a median that counts the others as "never".
    often = 2 * len(hits) > len(reached)
    epochs, seconds = (_median(hits, len(reached), part) if often else None for part in (0, 1))
    return _GoalReached(len(hits), len(reached), epochs, seconds)


def _goals(runs: list[tuple[StoredRun, Array]]) -> dict[tuple[int, int], float]:
    """Fold and seed -> the best score of the run, where it has one."""
    best = {(run.fold, run.seed): _best(scores) for run, scores in runs}
    return {where: goal for where, goal in best.items() if not np.isnan(goal)}


def _mean_curve(curves: list[Array]) -> Array:
    """The mean over runs, as far as all of them go."""
    shortest = min(map(len, curves))
    return np.mean([values[:shortest] for values in curves], axis=0)


def _validation(
    comparison: MethodComparison, dataset: str, method: str
) -> list[tuple[StoredRun, Array]]:
    """Runs of a method with their validation scores by epoch, turned so that more is better."""
    metric = monitored(comparison, dataset)
    sign = 1.0 if METRICS[metric].higher_is_better else -1.0
    runs = comparison.runs(dataset, method)
    return [(run, sign * curve(run, "validation", metric)) for run in runs]


def _best(values: Array) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.max()) if finite.size else float("nan")


def _last(values: Array) -> float:
    return float(values[np.isfinite(values)][-1])


def _reach(run: StoredRun, values: Array, goal: float) -> tuple[int, float] | None:
    """First epoch (from 1) as good as the goal, and the seconds until then."""
    hits = np.flatnonzero(values >= goal)
    if not hits.size:
        return None
    place = int(hits[0])
    spent = number((run.result or {})["seconds"].get("setup"))
    epochs = curve(run, "seconds", "sum")  # what a CSV file keeps of the parts
    if np.isnan(epochs).all():
        parts = {part: curve(run, "seconds", part) for part in style.PARTS if part != "setup"}
        parts["save"] = np.nan_to_num(parts["save"])  # older runs did not count it
        epochs = np.sum(list(parts.values()), axis=0)
    return place + 1, spent + float(epochs[: place + 1].sum())


def _median(hits: list[tuple[int, float]], runs: int, part: int) -> float:
    values = sorted(hit[part] for hit in hits)
    values += [float("inf")] * (runs - len(values))
    middle = (values[(runs - 1) // 2], values[runs // 2])
    return float(np.mean(middle))


@register_table("convergence", order=10)
def _convergence(topic: ComparisonTopic) -> Iterator[ReportTable | None]:
    kinds = {"targets": targets, "peaks": peaks, "losses": losses}
    for kind, make in kinds.items():
        if make is targets and BASELINE not in topic.comparison.methods:
            continue
        yield make(topic.name(kind, topic.heading), topic.comparison)
