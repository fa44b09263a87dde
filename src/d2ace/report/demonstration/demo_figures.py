"""The demo's figures: how many suspects are wrong, how methods compare, and how they learn."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from d2ace.evaluation import METRICS
from d2ace.report.figures import style
from d2ace.report.figures.figure import Figure, canvas, legend_below
from d2ace.report.inspection.certainty import percent

from .findings import METRIC, Demonstration, Difference, MethodRuns
from .known_errors import FoundErrors

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def found_errors(errors: list[FoundErrors]) -> Figure:
    """The share of suspects that are truly wrong, by how many are looked at."""
    length = min(len(one.hits) for one in errors)
    checked = np.arange(1, length + 1)
    shares = np.array([np.cumsum(one.hits[:length]) / checked for one in errors])
    chance = fmean(one.chance for one in errors)

    def draw() -> Canvas:
        picture = canvas()
        axes = picture.subplots()
        axes.fill_between(
            checked, shares.min(0), shares.max(0), color=style.BLUE, alpha=0.2, linewidth=0
        )
        axes.plot(checked, shares.mean(0), color=style.BLUE, label="most suspicious first")
        axes.axhline(chance, color=style.ORANGE, linestyle="dashed", label="picked at random")
        axes.set(xlabel="Labels that you check", ylabel="Share truly wrong")
        axes.set_ylim(bottom=0)
        axes.margins(x=0.02)
        legend_below(picture, axes, 2)
        return picture

    return Figure(
        name="found",
        title="How many suspects are wrong",
        caption="You check the most suspicious labels first: this share of the checked labels is "
        "truly wrong. Mean over seeds; the band is from the lowest to the highest seed.",
        alt=f"Truly wrong are {percent(float(shares.mean(0)[-1]))} of the {length} most suspicious "
        f"labels, and {percent(chance)} of labels picked at random.",
        draw=draw,
    )


def differences(shown: Demonstration) -> Figure:
    """How much better than the first method each is, with its interval."""
    plain, *others = shown.methods
    rows = [*others, *([] if shown.true is None else [shown.true])]
    found = [Difference.between(one, plain) for one in rows]
    looks = style.looks([one.method for one in [plain, *rows]])
    title = METRICS[METRIC].title

    def draw() -> Canvas:
        picture = canvas(height=1.1 + 0.38 * len(rows))
        axes = picture.subplots()
        for place, (one, difference) in enumerate(zip(rows, found, strict=True)):
            look = looks[one.method]
            if difference.interval is not None:
                ends = (difference.interval.low, difference.interval.high)
                axes.plot(ends, (place, place), color=look.colour, linewidth=2)
            axes.plot([difference.mean], [place], linestyle="none", **look.point())
        axes.axvline(0, color=style.ZERO, linewidth=0.8)
        axes.set_yticks(range(len(rows)), [one.method for one in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel(f"{title}, difference from {plain.method}")
        return picture

    said = "; ".join(
        f"{one.method} {difference.mean:+.4f}" for one, difference in zip(rows, found, strict=True)
    )
    return Figure(
        name="differences",
        title=f"Against {plain.method}",
        caption="The point is the mean over seeds, the line its 95 % interval. A line that crosses "
        "zero is within noise.",
        alt=f"{title}, difference from {plain.method}: {said}.",
        draw=draw,
    )


def curves(runs: list[MethodRuns]) -> Figure:
    """The validation score by epoch: the mean over seeds, and their range."""
    looks = style.looks([one.method for one in runs])
    tables = {one.method: np.array(one.curves) for one in runs}

    def draw() -> Canvas:
        picture = canvas(height=3.6)
        axes = picture.subplots()
        for method, table in tables.items():
            epochs, line = np.arange(1, table.shape[1] + 1), looks[method].line()
            axes.plot(epochs, table.mean(0), label=method, **line)
            low, high = table.min(0), table.max(0)
            axes.fill_between(epochs, low, high, color=line["color"], alpha=0.12, linewidth=0)
        axes.set(xlabel="Epoch", ylabel=f"Validation {METRICS[METRIC].title}")
        legend_below(picture, axes, 2)
        return picture

    ends = "; ".join(f"{method} {table[:, -1].mean():.3f}" for method, table in tables.items())
    return Figure(
        name="curves",
        title="Validation score during training",
        caption="Mean over seeds on validation rows, by their given labels; the band is from the "
        "lowest to the highest seed.",
        alt=f"Validation {METRICS[METRIC].title} after the last epoch: {ends}.",
        draw=draw,
    )
