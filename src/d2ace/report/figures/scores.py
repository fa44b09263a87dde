"""Figures of the comparison: scores by dataset, difference to Random, average ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from d2ace import evaluation
from d2ace.evaluation import METRICS
from d2ace.report.intervals import PairedInterval, interval
from d2ace.report.judgement import Judgement, comparable
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.method_names import BASELINE
from d2ace.report.registry import register_figure
from d2ace.report.run_values import mean_score
from d2ace.report.topics import ComparisonTopic
from d2ace.report.wording import counted

from . import style
from .figure import Figure, canvas, legend_below, plain, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


def scores(
    name: str, comparison: MethodComparison, metric: str, looks: dict[str, style.Look]
) -> Figure:
    """A point per dataset and method, with the standard deviation over folds and seeds."""
    title = METRICS[metric].title

    def draw() -> Canvas:
        datasets, methods = comparison.datasets[::-1], comparison.methods
        picture = canvas(height=1.35 + 0.105 * len(datasets) * (len(methods) + 2))
        axes = picture.subplots()
        _bands(axes, len(datasets))
        for method, shift in zip(methods, _shifts(len(methods)), strict=True):
            values = [comparison.values(metric, dataset, method) for dataset in datasets]
            there = [place for place, value in enumerate(values) if value.size]
            axes.errorbar(
                [mean_score(comparison.runs(datasets[at], method), metric) for at in there],
                [place + shift for place in there],
                xerr=[_deviation(values[place]) for place in there],
                linestyle="none",
                elinewidth=0.9,
                label=plain(method),
                **looks[method].point(),
            )
        _name_rows(axes, datasets)
        axes.set_xlabel(title)
        legend_below(picture, axes)
        return picture

    return Figure(
        name=name,
        title=f"{title} by dataset, {comparison.heading}",
        caption=(
            f"Mean test {title} of every method on every dataset; bars are ± one standard "
            f"deviation over {comparison.spread()}. "
            f"{'Further right' if METRICS[metric].higher_is_better else 'Further left'} is better."
        ),
        alt=f"Dot plot of {title} for {counted(len(comparison.methods), 'method')} on "
        f"{', '.join(comparison.datasets)}.",
        draw=draw,
    )


def gains(
    name: str, comparison: MethodComparison, metric: str, looks: dict[str, style.Look]
) -> Figure:
    """Difference to Random, paired, with its 95 % interval."""
    title = METRICS[metric].title
    methods = [method for method in comparison.methods if method != BASELINE]
    intervals = {
        (dataset, method): interval(comparison.differences(metric, method, datasets=[dataset]))
        for dataset in comparison.datasets
        for method in methods
    }

    def draw() -> Canvas:
        datasets = comparison.datasets[::-1]
        picture = canvas(height=1.35 + 0.105 * len(datasets) * (len(methods) + 2))
        axes = picture.subplots()
        _bands(axes, len(datasets))
        axes.axvline(0, color=style.ZERO, linewidth=1)
        for method, shift in zip(methods, _shifts(len(methods)), strict=True):
            there = [
                (place + shift, intervals[dataset, method])
                for place, dataset in enumerate(datasets)
                if intervals[dataset, method].count
            ]
            axes.errorbar(
                [one.mean for _, one in there],
                [height for height, _ in there],
                xerr=np.array([_reach(one) for _, one in there]).reshape(-1, 2).T,
                linestyle="none",
                elinewidth=0.9,
                label=plain(method),
                **looks[method].point(),
            )
        _name_rows(axes, datasets)
        axes.set_xlabel(f"Better than {BASELINE} by ({title})")
        legend_below(picture, axes)
        return picture

    return Figure(
        name=name,
        title=f"Gain over {BASELINE} in {title}, {comparison.heading}",
        caption=(
            f"Mean difference to {BASELINE}, paired by fold and seed, with its 95 % interval; "
            f"right of the line is better than {BASELINE}. An interval that crosses the line "
            "is within noise."
        ),
        alt=f"Dot plot of the gain over {BASELINE} with intervals on "
        f"{', '.join(comparison.datasets)}.",
        draw=draw,
    )


def ranks(
    name: str,
    comparison: MethodComparison,
    metric: str,
    judgement: Judgement,
    looks: dict[str, style.Look],
) -> Figure:
    """Average ranks on a line; bars join methods that the Nemenyi test cannot tell apart."""
    title = METRICS[metric].title
    difference = judgement.critical_difference
    averages = judgement.average_ranks
    groups: list[tuple[float, float]] = []
    if difference is not None:
        higher = METRICS[metric].higher_is_better
        found = evaluation.average_ranks(judgement.table, higher, ties="average")
        averages = {str(method): rank for method, rank in found.items()}
        groups = [
            (averages[str(group[0])], averages[str(group[-1])])
            for group in evaluation.similar_methods(found, difference)
        ]

    def draw() -> Canvas:
        ordered = sorted(averages, key=lambda method: (averages[method], method))
        best, count = max(averages.values()), len(ordered)
        levels = -(-count // 2)
        above = 0.9 if difference is not None else 0.45
        bars = 0.16 * len(groups)
        height = above + bars + 0.24 * levels + 0.5
        picture = canvas(width=style.WIDE * 0.8, height=height)
        axes = picture.subplots()
        low, high = 1, max(2, int(np.ceil(best)))
        axes.set_xlim(low - 0.02, high + 0.02)
        axes.set_ylim(-height + above, above)
        axes.axis("off")
        ink = style.INK
        axes.plot([low, high], [0, 0], color=ink, linewidth=1)
        for tick in range(low, high + 1):
            axes.plot([tick, tick], [0, 0.1], color=ink, linewidth=1)
            axes.text(tick, 0.15, str(tick), ha="center", va="bottom")
        if difference is not None:
            axes.plot([low, low + difference], [0.6, 0.6], color=ink, linewidth=1.6)
            for end in (low, low + difference):
                axes.plot([end, end], [0.54, 0.66], color=ink, linewidth=1.6)
            label = f"critical difference {difference:.2f}"
            axes.text(low + difference / 2, 0.68, label, ha="center", va="bottom", fontsize=8.5)
        for place, (first, last) in enumerate(groups):
            depth = -0.12 - 0.16 * place
            margin = 0.012 * (high - low)
            axes.plot([first - margin, last + margin], [depth] * 2, color=ink, linewidth=3)
        for place, method in enumerate(ordered):
            rank = averages[method]
            left = place < levels
            row = place if left else count - 1 - place
            depth = -0.3 - bars - 0.24 * row
            look = looks[method]
            end = low if left else high
            axes.plot([rank, rank, end], [0, depth, depth], color=look.colour, linewidth=1)
            axes.plot([rank], [0], linestyle="none", clip_on=False, **look.point())
            pad = -0.012 * (high - low) if left else 0.012 * (high - low)
            axes.text(
                end + pad,
                depth,
                f"{plain(method)}  {rank:.2f}",
                ha="right" if left else "left",
                va="center",
            )
        return picture

    listed = ", ".join(
        f"{method} {rank:.2f}"
        for method, rank in sorted(averages.items(), key=lambda item: (item[1], item[0]))
    )
    if difference is None:
        bar = f"No critical difference is drawn: {judgement.untestable}."
    else:
        bar = (
            "A thick bar joins methods whose average ranks differ by less than the critical "
            f"difference of the Nemenyi test, {difference:.2f} at the 5 % level: it cannot tell "
            "them apart. Equal scores share the mean of their ranks here."
        )
    return Figure(
        name=name,
        title=f"Average ranks in {title}, {comparison.heading}",
        caption=(
            f"Average rank over {counted(judgement.datasets, 'dataset')}; 1, at the left, is best. "
            f"{bar}"
        ),
        alt=f"Average ranks: {listed}.",
        draw=draw,
        wide=True,
    )


def _shifts(count: int) -> list[float]:
    """Heights of the methods within a row, the first on top."""
    if count == 1:
        return [0.0]
    return [float(shift) for shift in np.linspace(0.36, -0.36, count)]


def _bands(axes: Axes, rows: int) -> None:
    """Every second row shaded, so that the eye finds a row's points."""
    for place in range(0, rows, 2):
        axes.axhspan(place - 0.5, place + 0.5, color=style.ZERO, alpha=0.09, linewidth=0)


def _name_rows(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), [shortened(name) for name in names])
    axes.locator_params(axis="x", nbins=5)
    axes.set_ylim(-0.5, len(names) - 0.5)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.06)


def _deviation(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if values.size > 1 else 0.0


def _reach(one: PairedInterval) -> tuple[float, float]:
    """Down and up from the mean; nothing where one pair has no interval."""
    if one.low is None or one.high is None:
        return 0.0, 0.0
    return one.mean - one.low, one.high - one.mean


@register_figure("scores", order=10)
def _scores_and_gains(topic: ComparisonTopic) -> Iterator[Figure]:
    comparison = topic.comparison
    for metric in topic.judged:
        name = topic.name("score-plot", topic.heading, metric)
        yield scores(name, comparison, metric, topic.looks)
        if BASELINE in comparison.methods and len(comparison.methods) > 1:
            name = topic.name("gain-plot", topic.heading, metric)
            yield gains(name, comparison, metric, topic.looks)


@register_figure("ranks", order=10)
def _ranks(topic: ComparisonTopic) -> Iterator[Figure]:
    for metric, judgement in comparable(topic.judged).items():
        name = topic.name("rank-plot", topic.heading, metric)
        yield ranks(name, topic.comparison, metric, judgement, topic.looks)
