"""The figure at the top of the page: every method's difference to Random, and what would matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judging import SCORE

from d2ace.evaluation import METRICS
from d2ace.report.collect import Laboratory
from d2ace.report.figures import style
from d2ace.report.figures.figure import Figure, canvas
from d2ace.report.intervals import interval
from d2ace.report.method_names import BASELINE, order
from d2ace.report.tables.equivalence import MARGIN

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

NAME = "against-random"
FULL = {"CLIF": "CLIF (paper)"}
"""Models whose presets the page names."""


def figure(laboratory: Laboratory) -> Figure:
    """A panel for each model; points are means over its datasets, bars 95 % intervals."""
    compared = sorted(
        (one for one in laboratory.comparisons if one.study == "main"),
        key=lambda one: -len(one.datasets),
    )
    methods = order({method for one in compared for method in one.methods} - {BASELINE})
    looks = style.looks(laboratory.methods)
    title = METRICS[SCORE].title

    def draw() -> Canvas:
        picture = canvas(width=style.WIDE, height=2.9)
        panels = picture.subplots(1, len(compared), sharey=True)
        for axes, one in zip(panels, compared, strict=True):
            axes.axvspan(-MARGIN, MARGIN, color=style.ZERO, alpha=0.25, linewidth=0)
            axes.axvline(0, color=style.ZERO, linewidth=1)
            for place, method in enumerate(reversed(methods)):
                gap = interval(one.differences(SCORE, method))
                if gap.low is None or gap.high is None:
                    continue
                axes.errorbar(
                    [gap.mean],
                    [place],
                    xerr=[[gap.mean - gap.low], [gap.high - gap.mean]],
                    linestyle="none",
                    elinewidth=1,
                    **looks[method].point(),
                )
            axes.set_title(f"{FULL.get(one.model, one.model)}\n{len(one.datasets)} datasets")
            axes.set_yticks(range(len(methods)), methods[::-1])
            axes.tick_params(axis="y", length=0)
            axes.locator_params(axis="x", nbins=4)
            axes.grid(visible=False, axis="y")
        picture.supxlabel(f"Better than {BASELINE} by ({title})", fontsize=9)
        return picture

    return Figure(
        name=NAME,
        title=f"Difference to {BASELINE} in {title}",
        caption="",
        alt=f"Dot plot of the differences to {BASELINE} of {', '.join(methods)}.",
        draw=draw,
        wide=True,
    )
