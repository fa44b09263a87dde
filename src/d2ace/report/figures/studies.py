"""Figures of ablations and of sweeps over options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from d2ace.benchmark.plan import ABLATION, SYMBOLS, printed
from d2ace.benchmark.store import StoredRun
from d2ace.evaluation import METRICS
from d2ace.report.collect import TUNED, shown
from d2ace.report.intervals import interval
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.registry import register_figure
from d2ace.report.run_values import mean_score, test_score
from d2ace.report.sweeps import Sweep
from d2ace.report.topics import ComparisonTopic, SweepTopic

from . import style
from .figure import Array, Figure, canvas, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

FULL = "A"
"""The variant that is the full method."""
CURVES = ("macro_auc", "macro_f1", TUNED)
"""The metrics the paper draws over an option, and Macro-F1 at tuned thresholds."""


def ablation(name: str, study: MethodComparison, dataset: str, metric: str) -> Figure | None:
    """Bars: what a variant gains or loses against the full method."""
    title = METRICS[metric].title
    variants = [variant for variant in study.methods if variant != FULL]
    found = {
        variant: interval(study.differences(metric, variant, baseline=FULL, datasets=[dataset]))
        for variant in variants
    }
    found = {variant: one for variant, one in found.items() if one.count}
    if not found:
        return None

    def draw() -> Canvas:
        picture = canvas(height=0.75 + 0.27 * len(found))
        axes = picture.subplots()
        axes.axvline(0, color=style.ZERO, linewidth=1)
        heights = np.arange(len(found))[::-1]
        for height, one in zip(heights, found.values(), strict=True):
            worse = one.mean < 0
            axes.barh(
                height,
                one.mean,
                height=0.62,
                color=style.ORANGE if worse else style.BLUE,
                hatch="" if worse else "////",
                edgecolor=style.INK,
                linewidth=0.5,
            )
            if one.low is not None and one.high is not None:
                axes.plot([one.low, one.high], [height] * 2, color=style.INK, linewidth=1)
        axes.set_yticks(heights, [variant_title(variant) for variant in found])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(f"Better than variant {FULL} by ({title})")
        return picture

    listed = ", ".join(f"{variant} {one.mean:+.4f}" for variant, one in found.items())
    return Figure(
        name=name,
        title=f"Ablation, {title}, {study.model} on {dataset}",
        caption=(
            f"Difference of each variant to the full method ({FULL}), paired by fold and seed; "
            "plain bars to the left are worse, hatched ones to the right better. Lines are 95 % "
            "intervals: one that crosses zero is within noise."
        ),
        alt=f"Bars of the difference to the full method: {listed}.",
        draw=draw,
    )


def variant_title(variant: str) -> str:
    """The letter and what differs."""
    known = f"{variant}  {ABLATION[variant][0]}" if variant in ABLATION else variant
    return plain(known)


def option_curve(name: str, sweep: Sweep, metric: str) -> Figure:
    """Scores over the values of one option."""
    title = METRICS[metric].title
    what = axis_title(sweep.options)
    values = [value for (value,) in sweep.points]
    scores = [_scores(runs, metric) for runs in sweep.points.values()]
    means = [mean_score(runs, metric) for runs in sweep.points.values()]
    look = {"macro_auc": (style.BLUE, "o"), "macro_f1": (style.ORANGE, "s")}

    def draw() -> Canvas:
        picture = canvas(height=2.9)
        axes = picture.subplots()
        places = _places(values)
        colour, marker = look[metric]
        spread = [one.std(ddof=1) if one.size > 1 else 0.0 for one in scores]
        axes.errorbar(
            places, means, yerr=spread, color=colour, marker=marker, capsize=2.5, elinewidth=0.9
        )
        axes.set_xticks(places, [plain(_tick(value)) for value in values])
        axes.set_xlabel(what)
        axes.set_ylabel(title)
        axes.margins(x=0.06)
        return picture

    listed = ", ".join(
        f"{_tick(value)}: {mean:.4f}" for value, mean in zip(values, means, strict=True)
    )
    return Figure(
        name=name,
        title=f"{title} over {what} of {sweep.method}, {sweep.model} on {sweep.dataset}",
        caption=_sentences(
            f"Mean test {title} for each value; bars are ± one standard deviation over the runs.",
            _even_spacing(values),
            sweep.note,
        ),
        alt=f"Curve of {title} over {what} of {sweep.method}: {listed}.",
        draw=draw,
    )


def option_map(name: str, sweep: Sweep, metric: str) -> Figure | None:
    """Scores over a pair of numbers: the mixing (p_start, p_end), or two options."""
    title = METRICS[metric].title
    points = {_pair(value): runs for value, runs in sweep.points.items()}
    rows, columns = _axis(points, 0), _axis(points, 1)
    grid = np.full((len(rows), len(columns)), np.nan)
    for (row, column), runs in points.items():
        grid[rows.index(row), columns.index(column)] = mean_score(runs, metric)
    if np.isnan(grid).all():  # the metric is undefined in all runs
        return None
    named = ("p start", "p end") if len(sweep.options) == 1 else sweep.options
    left, below = (printed(word) for word in named)

    def draw() -> Canvas:
        picture = canvas(height=1.2 + 0.42 * len(rows))
        axes = picture.subplots()
        lowest, highest = np.nanmin(grid), np.nanmax(grid)
        axes.pcolormesh(
            np.arange(len(columns) + 1) - 0.5,
            np.arange(len(rows) + 1) - 0.5,
            np.ma.masked_invalid(grid),
            cmap="cividis",
            edgecolors=style.FAINT,
            linewidth=0.5,
        )
        for (row, column), value in np.ndenumerate(grid):
            if np.isnan(value):
                continue
            light = (value - lowest) > 0.55 * (highest - lowest)
            best = sweep.fair and value == (highest if METRICS[metric].higher_is_better else lowest)
            axes.text(
                column,
                row,
                f"{value:.4f}",
                ha="center",
                va="center",
                fontsize=8,
                color="#111111" if light else "#fafafa",
                fontweight="bold" if best else "normal",
            )
        axes.set_xticks(range(len(columns)), [plain(_tick(value)) for value in columns])
        axes.set_yticks(range(len(rows)), [plain(_tick(value)) for value in rows])
        axes.set_xlabel(below)
        axes.set_ylabel(left)
        axes.grid(visible=False)
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
        return picture

    listed = ", ".join(
        f"({_tick(row)}, {_tick(column)}) {mean_score(runs, metric):.4f}"
        for (row, column), runs in points.items()
    )
    return Figure(
        name=name,
        title=(
            f"{title} over {axis_title(sweep.options)} of {sweep.method}, "
            f"{sweep.model} on {sweep.dataset}"
        ),
        caption=_sentences(
            f"Mean test {title} for each pair of {left} (rows) and {below} (columns).",
            "The best is bold." if sweep.fair else "",
            "An empty field was not run." if np.isnan(grid).any() else "",
            sweep.note,
        ),
        alt=f"Heat map of {title} of {sweep.method}: {listed}.",
        draw=draw,
    )


def axis_title(options: tuple[str, ...]) -> str:
    """Options with the paper's symbols."""
    known = {option: symbol.title for option, symbol in SYMBOLS.items()}
    known["mix"] = "mixing schedule"
    return " and ".join(known.get(option, option) for option in options)


def is_pair(sweep: Sweep) -> bool:
    """Whether the varied value is a pair: one option of two numbers, or two options."""
    if len(sweep.options) == 2:
        return True
    return len(sweep.options) == 1 and all(
        isinstance(value, tuple) and len(value) == 2 for (value,) in sweep.points
    )


def _pair(value: tuple[Any, ...]) -> tuple[Any, Any]:
    flat = value[0] if len(value) == 1 else value
    return flat[0], flat[1]


def _axis(points: dict[tuple[Any, Any], Any], place: int) -> list[Any]:
    values = {pair[place] for pair in points}
    return sorted(values, key=lambda value: (isinstance(value, str), value))


def _places(values: list[Any]) -> list[float]:
    """Where values stand: evenly, unless they are numbers that spread evenly enough to show so."""
    return [float(value) for value in values] if _to_scale(values) else list(range(len(values)))


def _to_scale(values: list[Any]) -> bool:
    plain_numbers = all(
        isinstance(value, (int, float)) and not isinstance(value, bool) for value in values
    )
    if not plain_numbers or len(values) < 3:
        return False
    steps = np.diff(np.array(values, dtype=float))
    return bool(steps.max() <= 4 * steps.min())


def _even_spacing(values: list[Any]) -> str:
    return "" if _to_scale(values) else "The values stand side by side, not to scale."


def _sentences(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _tick(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _scores(runs: tuple[Any, ...], metric: str) -> Array:
    scores = np.array([test_score(run, metric) for run in runs])
    return scores[np.isfinite(scores)]


def _curves(runs: Iterable[StoredRun]) -> list[str]:
    return [metric for metric in shown(runs) if metric in CURVES]


@register_figure("ablation", order=10)
def _ablation(topic: ComparisonTopic) -> Iterator[Figure | None]:
    study = topic.comparison
    for dataset in study.datasets:
        for metric in _curves(study.every_run):
            name = topic.name("ablation-plot", study.model, dataset, metric)
            yield ablation(name, study, dataset, metric)


@register_figure("sweeps", order=10)
def _sweep(topic: SweepTopic) -> Iterator[Figure | None]:
    sweep = topic.sweep
    draw = option_map if is_pair(sweep) else option_curve if len(sweep.options) == 1 else None
    if draw is None:
        return
    for metric in _curves(run for runs in sweep.points.values() for run in runs):
        yield draw(topic.name("sweep-plot", *topic.place, metric), sweep, metric)
