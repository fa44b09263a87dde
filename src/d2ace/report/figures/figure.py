"""A figure of the report: drawn once, given as SVG (in the page and as a file) and as PDF."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Figure:
    """A picture that is drawn when it is asked for.

    Parameters
    ----------
    name : str
        Used in the names of its files and elements.
    title, caption : str
        What it shows; how to read it, in sentences.
    alt : str
        The picture in words, for readers who cannot see it.
    draw : callable
        Returns the matplotlib figure. Called inside `style.applied`.
    wide : bool
        Wider than a phone: scrolls in its box there.
    """

    name: str
    title: str
    caption: str
    alt: str
    draw: Callable[[], Canvas]
    wide: bool = False

    kind = "figure"

    def svg(self) -> str:
        """The figure as SVG; the same bytes every time."""
        with self._drawn() as canvas:
            return self._vector(canvas)

    def render(self) -> tuple[str, bytes]:
        """The figure as SVG and as PDF; the same bytes every time."""
        with self._drawn() as canvas:
            vector, document = self._vector(canvas), io.BytesIO()
            canvas.set_layout_engine("none")  # settled by the first drawing
            canvas.savefig(
                document,
                format="pdf",
                metadata={"CreationDate": None, "Title": self.title},
            )
        return vector, document.getvalue()

    @contextlib.contextmanager
    def _drawn(self) -> Iterator[Canvas]:
        with style.applied(), warnings.catch_warnings():
            # A name in a script that the font lacks becomes boxes in the PDF; that is not an error.
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            # Names so long that they leave no room for the axes are drawn over them.
            warnings.filterwarnings("ignore", message="constrained_layout not applied")
            yield self.draw()

    def _vector(self, canvas: Canvas) -> str:
        out = io.BytesIO()
        canvas.savefig(out, format="svg", transparent=True, metadata={"Date": None})
        return self._own_names(out.getvalue().decode())

    def _own_names(self, svg: str) -> str:
        """Only the drawing, under element names that no other figure of the page has."""
        svg = svg[svg.index("<svg") :]
        svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)

        def tidy(tag: re.Match[str]) -> str:
            text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{self.name}-", tag[0])
            # To a hundredth of a point: the difference is invisible, and the page smaller.
            text = re.sub(r"(?<=[ \"(,])(-?\d+\.\d{2})\d+(?=[ \"),])", r"\1", text)
            return re.sub(r' xmlns:xlink="[^"]*"', "", text).replace("xlink:href", "href")

        return re.sub(r"<[^>]+>", tidy, svg)  # tags only: names in the text stay as they are


def standalone(svg: str) -> str:
    """The SVG as a file of its own, readable on dark ground too."""
    head, rest = svg.split(">", 1)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f"{head}><style>{style.dark_rules('svg')}</style>{rest}\n"
    )


def canvas(width: float = style.WIDTH, height: float = 3.2) -> Canvas:
    """An empty figure that lays itself out."""
    from matplotlib.figure import Figure as Canvas

    return Canvas(figsize=(width, height), layout="constrained")


def legend_below(picture: Canvas, axes: Axes, columns: int = 4) -> None:
    """One legend under the axes, where it covers nothing, read row by row."""
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    rows = -(-len(handles) // columns)
    order = [row * columns + column for column in range(columns) for row in range(rows)]
    order = [place for place in order if place < len(handles)]
    picture.legend(
        [handles[place] for place in order],
        [labels[place] for place in order],
        loc="outside lower center",
        ncols=min(columns, len(handles)),
        columnspacing=1.4,
    )


def mean_and_spread(curves: list[Array]) -> tuple[Array, Array, Array]:
    """Epochs that all curves reach, their mean and standard deviation there (0 for one curve)."""
    length = min((len(curve) for curve in curves), default=0)
    if not length:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    stacked = np.stack([curve[:length] for curve in curves])
    spread = stacked.std(axis=0, ddof=1) if len(stacked) > 1 else np.zeros(length)
    return np.arange(1, length + 1, dtype=float), stacked.mean(axis=0), spread


def plain(text: str) -> str:
    """A name as a legend takes it: one that begins with an underscore would be left out."""
    return f" {text}" if text.startswith("_") else text


def shortened(name: str, most: int = 18) -> str:
    """A name that leaves room for the figure."""
    return name if len(name) <= most else f"{name[: most - 1]}…"
