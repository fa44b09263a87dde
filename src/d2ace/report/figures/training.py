"""Figures of the training itself: convergence, time by part, what was selected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from d2ace.benchmark.store import StoredRun
from d2ace.evaluation import METRICS
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.registry import register_figure
from d2ace.report.run_values import curve, number
from d2ace.report.topics import ComparisonTopic

from . import style
from .figure import Array, Figure, canvas, legend_below, mean_and_spread, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

Looks = dict[str, style.Look]


def losses(name: str, comparison: MethodComparison, dataset: str, looks: Looks) -> Figure | None:
    """Training loss by epoch."""
    runs = _all_runs(comparison, dataset)
    full = bool(runs) and all(np.isfinite(curve(run, "epoch_loss")).any() for run in runs)
    key = "epoch_loss" if full else "train_loss"
    what = (
        "Mean loss over all training rows, by an evaluation pass after every epoch."
        if full
        else "Mean loss over the drawn batches. Selection biases it: a method that draws hard rows "
        "has a high loss. Runs with --set epoch_loss=true give the loss over all rows."
    )
    return _curves(
        name,
        comparison,
        dataset,
        looks,
        read=lambda run: curve(run, key),
        title=f"Training loss, {comparison.heading} on {dataset}",
        label="Training loss",
        caption=what,
        logarithmic=True,
    )


def validation(
    name: str, comparison: MethodComparison, dataset: str, looks: Looks
) -> Figure | None:
    """The monitored validation score by epoch."""
    metric = monitored(comparison, dataset)
    title = METRICS[metric].title
    return _curves(
        name,
        comparison,
        dataset,
        looks,
        read=lambda run: curve(run, "validation", metric),
        title=f"Validation {title}, {comparison.heading} on {dataset}",
        label=f"Validation {title}",
        caption="This score selects the epoch whose weights are tested; the marker on a curve is "
        "at its best mean.",
        best=max if METRICS[metric].higher_is_better else min,
    )


def effective_rows(
    name: str, comparison: MethodComparison, dataset: str, looks: Looks
) -> Figure | None:
    """Effective sample size by epoch, as a share of the training rows."""
    return _curves(
        name,
        comparison,
        dataset,
        looks,
        read=lambda run: curve(run, "effective_rows") / _train_rows(run),
        title=f"Effective sample size, {comparison.heading} on {dataset}",
        label="Share of the training rows",
        caption="Effective sample size of the sampling distribution, 1/ΣP², as a share of the "
        "training rows: 1 is uniform, small values concentrate on few rows.",
        band=False,
    )


def distinct_rows(
    name: str, comparison: MethodComparison, dataset: str, looks: Looks
) -> Figure | None:
    """Distinct rows drawn by epoch, as a share of the training rows."""
    return _curves(
        name,
        comparison,
        dataset,
        looks,
        read=lambda run: curve(run, "distinct_rows") / _train_rows(run),
        title=f"Rows seen in an epoch, {comparison.heading} on {dataset}",
        label="Share of the training rows",
        caption="Distinct rows drawn in an epoch, as a share of the training rows.",
        band=False,
    )


def time_split(name: str, comparison: MethodComparison, dataset: str) -> Figure | None:
    """Seconds of a run by part, stacked."""
    methods = [method for method in comparison.methods if comparison.runs(dataset, method)]
    split = {method: seconds(comparison.runs(dataset, method)) for method in methods}
    if not any(np.isfinite(list(parts.values())).any() for parts in split.values()):
        return None

    def draw() -> Canvas:
        picture = canvas(height=1.25 + 0.27 * len(methods))
        axes = picture.subplots()
        heights = np.arange(len(methods))[::-1]
        begin = np.zeros(len(methods))
        for part, (label, colour) in style.PARTS.items():
            lengths = np.nan_to_num([split[method][part] for method in methods])
            axes.barh(
                heights,
                lengths,
                left=begin,
                height=0.66,
                color=colour,
                edgecolor=style.INK,
                linewidth=0.5,
                label=label,
            )
            begin += lengths
        axes.set_yticks(heights, [plain(method) for method in methods])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("Seconds per run, without evaluation")
        legend_below(picture, axes, columns=3)
        return picture

    total = {method: np.nansum(list(parts.values())) for method, parts in split.items()}
    listed = ", ".join(f"{method} {value:.1f}" for method, value in total.items())
    return Figure(
        name=name,
        title=f"Time by part, {comparison.heading} on {dataset}",
        caption="Mean wall-clock seconds of a run: one-off set-up, computing weights and "
        "probabilities, drawing batches, observing predictions, forward and backward passes, "
        "writing checkpoints. Evaluation is left out.",
        alt=f"Stacked bars of seconds per run: {listed}.",
        draw=draw,
    )


def seconds(runs: tuple[StoredRun, ...]) -> dict[str, float]:
    """Mean seconds of the parts of a run; NaN where none of the runs has the part."""
    found = {}
    for part in style.PARTS:
        values = np.array([number((run.result or {})["seconds"].get(part)) for run in runs])
        if part == "save":  # older runs did not count it
            values = np.nan_to_num(values)
        values = values[np.isfinite(values)]
        found[part] = float(values.mean()) if values.size else float("nan")
    return found


def monitored(comparison: MethodComparison, dataset: str) -> str:
    """The validation metric of the runs on a dataset."""
    return str(_all_runs(comparison, dataset)[0].config.get("monitor", "macro_auc"))


def _curves(
    name: str,
    comparison: MethodComparison,
    dataset: str,
    looks: Looks,
    *,
    read: Callable[[StoredRun], Array],
    title: str,
    label: str,
    caption: str,
    logarithmic: bool = False,
    best: Callable[..., float] | None = None,
    band: bool = True,
) -> Figure | None:
    """A curve per method: the mean over folds and seeds, with a band of one standard deviation."""
    lines = {}
    for method in comparison.methods:
        curves = [read(run) for run in comparison.runs(dataset, method)]
        epochs, mean, spread = mean_and_spread([one for one in curves if one.size])
        if np.isfinite(mean).any():
            lines[method] = (epochs, mean, spread)
    if not lines:
        return None
    several = max(len(comparison.runs(dataset, method)) for method in lines) > 1

    def draw() -> Canvas:
        picture = canvas(height=3.1 + 0.17 * -(-len(lines) // 4))
        axes = picture.subplots()
        for method, (epochs, mean, spread) in lines.items():
            look = looks[method]
            if band and spread.any():
                axes.fill_between(
                    epochs, mean - spread, mean + spread, color=look.colour, alpha=0.1, linewidth=0
                )
            marks = []
            if best is not None:
                marks = [int(np.nanargmax(mean) if best is max else np.nanargmin(mean))]
            axes.plot(
                epochs,
                mean,
                label=plain(method),
                markevery=marks,
                **(look.point() | look.line()),
            )
        if logarithmic and all(
            (mean[np.isfinite(mean)] > 0).all() for _, mean, _ in lines.values()
        ):
            axes.set_yscale("log")
            _plain_log_ticks(axes)
        axes.set_xlabel("Epoch")
        axes.set_ylabel(label)
        axes.margins(x=0.02)
        legend_below(picture, axes)
        return picture

    means = f"Mean over {comparison.spread([dataset])}" if several else "One run per method"
    shade = "; the band is ± one standard deviation" if several and band else ""
    return Figure(
        name=name,
        title=title,
        caption=f"{caption} {means}{shade}.",
        alt=f"{title}: curves over epochs for {', '.join(lines)}, "
        f"ending at {', '.join(f'{mean[-1]:.3g}' for _, mean, _ in lines.values())}.",
        draw=draw,
    )


def _plain_log_ticks(axes: Any) -> None:
    """0.2 rather than 2 × 10⁻¹."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axes.get_ylim()
    short = high < 10 * low
    steps = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0) if short else (1.0, 2.0, 5.0)
    axes.yaxis.set_major_locator(LogLocator(subs=steps))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _all_runs(comparison: MethodComparison, dataset: str) -> list[StoredRun]:
    return [run for method in comparison.methods for run in comparison.runs(dataset, method)]


def _train_rows(run: StoredRun) -> float:
    return number((run.result or {}).get("dataset", {}).get("train"))


@register_figure("convergence", order=10)
def _convergence(topic: ComparisonTopic) -> Iterator[Figure | None]:
    yield from _by_dataset(topic, {"loss": losses, "validation": validation})


@register_figure("time", order=10)
def _time(topic: ComparisonTopic) -> Iterator[Figure | None]:
    for dataset in topic.comparison.datasets:
        name = topic.name("time-plot", topic.heading, dataset)
        yield time_split(name, topic.comparison, dataset)


@register_figure("selection", order=10)
def _selection(topic: ComparisonTopic) -> Iterator[Figure | None]:
    yield from _by_dataset(
        topic, {"effective-rows": effective_rows, "distinct-rows": distinct_rows}
    )


def _by_dataset(
    topic: ComparisonTopic, kinds: dict[str, Callable[..., Figure | None]]
) -> Iterator[Figure | None]:
    for dataset in topic.comparison.datasets:
        for kind, make in kinds.items():
            name = topic.name(kind, topic.heading, dataset)
            yield make(name, topic.comparison, dataset, topic.looks)
