"""The data map: how sure the model was of each row, against how much that changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from d2ace.insights import Records
from d2ace.report.figures.figure import Figure, canvas, legend_below
from d2ace.report.figures.style import PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

MOST_POINTS = 1500
"""Of one kind; beyond it a sample is drawn, and of rows without suspected labels a density."""

_GREY, _AMBER, _RED = (PALETTE[place][0] for place in (0, 1, 7))
_KINDS = (
    ("no suspected label", _GREY, "o", 8, 0.55),
    ("one suspected label", _AMBER, "s", 14, 0.9),
    ("two or more", _RED, "^", 20, 0.9),
)
Chosen = np.ndarray[Any, np.dtype[np.int64]]


def data_map(rows: Records) -> Figure | None:
    """The figure; None where no row was seen twice, so that nothing is known of changes."""
    x, y, suspected = (rows[name] for name in ("variability", "confidence", "suspected"))
    shown = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if not len(shown):
        return None
    kinds = [
        shown[suspected[shown] == 0],
        shown[suspected[shown] == 1],
        shown[suspected[shown] > 1],
    ]
    dense = len(kinds[0]) > MOST_POINTS
    points = [_sample(kind) for kind in kinds]

    def draw() -> Canvas:
        from matplotlib.colors import ListedColormap, LogNorm, to_rgb

        picture = canvas(height=4.2)
        axes = picture.subplots()
        if dense:
            shades = ListedColormap([(*to_rgb(_GREY), alpha) for alpha in (0.15, 0.3, 0.5, 0.75)])
            axes.hexbin(
                *(x[kinds[0]], y[kinds[0]]),
                gridsize=36,
                cmap=shades,
                norm=LogNorm(),
                mincnt=1,
                linewidths=0,
            )
            axes.scatter([], [], s=30, c=_GREY, marker="h", label=f"{_KINDS[0][0]} (density)")
        for (words, colour, marker, size, alpha), own in zip(_KINDS, points, strict=True):
            if len(own) and not (dense and colour == _GREY):
                axes.scatter(
                    *(x[own], y[own]),
                    s=size,
                    c=colour,
                    marker=marker,
                    alpha=alpha,
                    linewidths=0,
                    label=words,
                )
        axes.set_xlabel("Variability of the confidence over visits")
        axes.set_ylabel("Confidence in the given labels")
        axes.margins(0.03)
        legend_below(picture, axes, 2)
        return picture

    return Figure(
        name="data-map",
        title="Data map",
        caption=_caption(int((rows["visits"] == 1).sum()), kinds, points, dense),
        alt=_alt(y, kinds),
        draw=draw,
    )


def _sample(rows: Chosen) -> Chosen:
    if len(rows) <= MOST_POINTS:
        return rows
    chosen = np.random.default_rng(0).choice(len(rows), MOST_POINTS, replace=False)
    return rows[np.sort(chosen)]


def _caption(once: int, kinds: list[Chosen], points: list[Chosen], dense: bool) -> str:
    said = [
        "Each point is a row. Rows at the top left are easy: the model agrees with the given "
        "labels on every visit. Rows to the right are ambiguous. Rows at the bottom left are hard: "
        "the model keeps disagreeing, and a label may be wrong.",
    ]
    if dense:
        said.append(
            "There are many rows without a suspected label, so the map shows their density: darker "
            "means more."
        )
    if any(len(own) < len(kind) for own, kind in zip(points[1:], kinds[1:], strict=True)):
        said.append(f"Of each kind of rows with suspected labels, {MOST_POINTS:,} are drawn.")
    if once:
        were = "row was" if once == 1 else "rows were"
        said.append(f"{once:,} {were} seen only once, so not on the map.")
    return " ".join(said)


def _alt(y: np.ndarray[Any, Any], kinds: list[Chosen]) -> str:
    said = [
        f"{len(own):,} with {words}, median confidence {np.median(y[own]):.2f}"
        for (words, *_), own in zip(_KINDS, kinds, strict=True)
        if len(own)
    ]
    return f"Confidence of rows against its variability: {'; '.join(said)}."
