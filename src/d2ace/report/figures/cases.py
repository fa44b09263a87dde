"""Figures of the case studies that runs recorded: deciles, and label weights against label AUC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from d2ace.report.registry import register_figure
from d2ace.report.run_values import Recording
from d2ace.report.topics import CaseTopic
from d2ace.report.wording import counted

from . import style
from .figure import Array, Figure, canvas, legend_below, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

GROUPS = 10
PROPERTIES = {"outlier": "outlier score", "loss": "loss"}
PAPER_LABELS = ("sun", "turn")
"""The two labels of the paper's figure (Corel5k)."""


def shares(recording: Recording, epoch: int, what: str) -> Array:
    """Share of each tier in each tenth of the training rows, by falling probability [10, 3].

    Tiers are thirds of the rows by the property. P has many ties, and so may the property (a score
    from five neighbours, say); they are broken at random with a fixed seed: by row number, whatever
    order the data came in would show as a pattern.
    """
    at = [int(known) for known in recording["epochs"]].index(epoch)
    probability = np.asarray(recording["P"][at], dtype=float)
    value = np.asarray(recording[what] if what == "outlier" else recording[what][at], dtype=float)
    rng = np.random.default_rng(0)
    falling = _sorted(-probability, rng)
    tier = np.empty(len(value), dtype=int)
    tier[_sorted(value, rng)] = 3 * np.arange(len(value)) // len(value)  # 0 low, 1 middle, 2 high
    groups = np.array_split(tier[falling], GROUPS)
    return np.array(
        [np.bincount(group, minlength=3)[:3] / max(len(group), 1) for group in groups], dtype=float
    )


def _sorted(values: Array, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Rows by rising value, equal ones in random order."""
    shuffled = rng.permutation(len(values))
    return shuffled[np.argsort(values[shuffled], kind="stable")]


def deciles(
    name: str,
    place: str,
    what: str,
    epoch: int,
    recordings: dict[str, list[Recording]],
) -> Figure:
    """Stacked bars: what the rows are like that a method draws most and least."""
    mean = {
        method: np.mean([shares(one, epoch, what) for one in several], axis=0)
        for method, several in recordings.items()
    }
    columns = min(3, len(mean))
    rows = -(-len(mean) // columns)

    def draw() -> Canvas:
        from matplotlib.collections import PolyCollection

        picture = canvas(width=style.WIDE, height=0.75 + 1.75 * rows)
        panels = picture.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes in panels.flat[len(mean) :]:
            axes.set_visible(False)
        for axes, (method, share) in zip(panels.flat, mean.items(), strict=False):
            begin = np.zeros(GROUPS)
            for tier, (label, colour) in enumerate(style.TIERS.items()):
                # One collection of boxes: ten bars each would take seconds to draw.
                tops = begin + 100 * share[:, tier]
                axes.add_collection(
                    PolyCollection(
                        [
                            [(x - 0.41, low), (x + 0.41, low), (x + 0.41, top), (x - 0.41, top)]
                            for x, low, top in zip(range(1, GROUPS + 1), begin, tops, strict=True)
                        ],
                        facecolors=colour,
                        edgecolors=style.INK,
                        linewidths=0.5,
                        label=f"{label} {PROPERTIES[what]}",
                    )
                )
                begin = tops
            axes.set_title(plain(method))
            axes.set_xticks(range(1, GROUPS + 1))
            axes.tick_params(labelbottom=True, labelleft=True)
            axes.grid(visible=False, axis="x")
            axes.set_xlim(0.4, GROUPS + 0.6)
            axes.set_ylim(0, 100)
        for axes in panels.flat[max(0, len(mean) - columns) : len(mean)]:
            axes.set_xlabel("Tenth, most probable first")
        for axes in panels[:, 0]:
            axes.set_ylabel("Share of rows (%)")
        legend_below(picture, panels[0, 0], columns=3)
        return picture

    first = ", ".join(f"{method} {share[0, 2]:.0%}" for method, share in mean.items())
    several = max(len(found) for found in recordings.values())
    averaged = f" Mean over {counted(several, 'run')}." if several > 1 else ""
    return Figure(
        name=name,
        title=f"Sampling probability and {PROPERTIES[what]}, epoch {epoch}, {place}",
        caption=(
            "Training rows sorted by their sampling probability, in ten groups of equal size; "
            f"each bar shows how many of a group's rows have a low, middle or high "
            f"{PROPERTIES[what]} (thirds of all rows). If selection ignores the property, each "
            f"tier fills about a third of every bar.{averaged}"
        ),
        alt=f"Share of rows with high {PROPERTIES[what]} among the tenth drawn most: {first}.",
        draw=draw,
        wide=len(mean) > 1,
    )


def label_weights(name: str, place: str, method: str, recording: Recording) -> Figure | None:
    """Two labels over the epochs: their validation AUC, and the weights a method gave them."""
    weights = label_weight_curves(recording)
    auc = np.asarray(recording["label_auc"], dtype=float)
    labels = chosen_labels([str(label) for label in recording["label_names"]], auc)
    if not weights or not labels:
        return None
    names = {column: str(recording["label_names"][column]) for column in labels}

    def draw() -> Canvas:
        picture = canvas(height=1.0 + 1.45 * (1 + len(weights)))
        panels = picture.subplots(1 + len(weights), 1, sharex=True, squeeze=False)[:, 0]
        epochs = np.arange(1, len(auc) + 1)
        drawn = {"Validation AUC": auc} | {
            f"{quantity[0].upper()}{quantity[1:]}": values for quantity, values in weights.items()
        }
        for axes, (label, values) in zip(panels, drawn.items(), strict=True):
            for column, colour, dash in zip(
                labels, (style.BLUE, style.ORANGE), ("solid", (0, (4, 1.5))), strict=False
            ):
                axes.plot(
                    epochs,
                    values[:, column],
                    color=colour,
                    linestyle=dash,
                    label=plain(names[column]),
                )
            axes.set_title(label)
            axes.margins(x=0.02)
        panels[-1].set_xlabel("Epoch")
        legend_below(picture, panels[0], columns=2)
        return picture

    ends = ", ".join(f"{names[column]} {_last(auc[:, column]):.3f}" for column in labels)
    return Figure(
        name=name,
        title=f"Label weights of {method}, {place}",
        caption=(
            f"Validation AUC of two labels and the weights {method} gave them, one run. "
            + _why(list(names.values()))
        ),
        alt=f"Curves of label AUC and label weight; AUC at the end: {ends}.",
        draw=draw,
    )


def label_weight_curves(recording: Recording) -> dict[str, Array]:
    """Every kind of label weight that was recorded, epoch by epoch [epochs, labels]."""
    return {
        f"weight by {key.removeprefix('label_weight_')}": np.asarray(value, dtype=float)
        for key, value in sorted(recording.items())
        if key.startswith("label_weight_")
    }


def chosen_labels(names: list[str], auc: Array) -> list[int]:
    """The paper's two labels where they exist, else those whose AUC rose most and least."""
    if set(PAPER_LABELS) <= set(names):
        return [names.index(label) for label in PAPER_LABELS]
    defined = np.flatnonzero(np.isfinite(auc).all(axis=0)) if len(auc) else np.zeros(0, dtype=int)
    if not defined.size:
        return []
    rise = (auc[-1] - auc[0])[defined]
    most, least = int(defined[rise.argmax()]), int(defined[rise.argmin()])
    return [most] if most == least else [most, least]


def _why(names: list[str]) -> str:
    if tuple(names) == PAPER_LABELS:
        return "The labels are those of the paper's figure."
    return "Of all labels, the first's AUC rose most and the second's least."


def _last(values: Array) -> float:
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if finite.size else float("nan")


@register_figure("cases", order=10)
def _cases(topic: CaseTopic) -> Iterator[Figure | None]:
    place = topic.place
    for epoch in topic.epochs:
        here = {
            method: [one for one in several if epoch in one["epochs"]]
            for method, several in topic.recorded.items()
        }
        here = {method: several for method, several in here.items() if several}
        for what in PROPERTIES:
            name = topic.name("deciles", what, str(epoch), place)
            yield deciles(name, place, what, epoch, here)
    for method, several in topic.recorded.items():
        name = topic.name("label-weights", method, place)
        yield label_weights(name, place, method, several[0])
