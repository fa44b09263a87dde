"""One look for all figures: a method has the same colour, marker and line everywhere.

The first eight colours stay distinct under red-green blindness, and all are readable on white and
on dark backgrounds (a test measures both); markers and lines distinguish methods without colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from d2ace.report.method_names import CANDIDATE, METHODS, base_of, order

INK = "#1f2429"
"""Text and axes. In dark mode a style sheet replaces this colour; see `dark_rules`."""
FAINT = "#d4d8dd"
"""Grid lines; repainted as well."""
ZERO = "#6b747d"
"""The line of no difference; readable on both grounds."""
DARK = {INK: "#e4e7ea", FAINT: "#3a4148"}

WIDTH = 4.8  # inches; a phone shows it at its natural size, so text stays readable
WIDE = 8.4  # inches; scrolls in its box on a phone

PARTS = {
    "setup": ("Set-up", "#c3c9d0"),
    "recompute": ("Weights", "#dd4b10"),
    "draw": ("Drawing", "#f0a202"),
    "observe": ("Observing", "#33b864"),
    "train": ("Training", "#1062ad"),
    "save": ("Saving", "#62c4f5"),
}
"""Part of a run's time -> title, colour; stacked in this order."""

TIERS = {"low": "#c4dcef", "middle": "#6f9fc6", "high": "#b23808"}
"""Tercile -> colour, the higher the darker."""

PALETTE: tuple[tuple[str, str, Any], ...] = (
    ("#8a8a8a", "o", (0, (1.2, 1.2))),
    ("#f0a202", "s", (0, (5, 1.5))),
    ("#62c4f5", "^", (0, (5, 1.5, 1.2, 1.5))),
    ("#33b864", "D", (0, (3, 1.2))),
    ("#a8174f", "v", (0, (7, 2, 1.2, 2, 1.2, 2))),
    ("#7038ff", "P", (0, (8, 2))),
    ("#1062ad", "X", (0, (2, 2))),
    ("#dd4b10", "*", "solid"),
    ("#00897b", "p", (0, (4, 1, 1, 1))),
    ("#c2185b", "<", (0, (6, 1, 1, 1))),
    ("#8d6e63", ">", (0, (2, 1, 1, 1))),
    ("#5e7c16", "h", (0, (4, 1, 1, 1, 1, 1))),
    ("#ab47bc", "d", (0, (9, 1, 3, 1))),
    ("#b8860b", "8", (0, (6, 1, 1, 1, 1, 1))),
)
"""Colour, marker and line: of the library's methods in their order, then of others."""
BLUE, ORANGE, GREEN = (PALETTE[place][0] for place in (6, 7, 3))

RC: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "figure.titlesize": 10,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.6,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "lines.linewidth": 1.5,
    "lines.markersize": 5,
    "patch.edgecolor": INK,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "d2ace",  # the same figure gives the same bytes
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in a label's name is a dollar sign
    "xtick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.color": INK,
    "ytick.labelsize": 8.5,
}


@dataclass(frozen=True)
class Look:
    """How a method is drawn."""

    colour: str
    marker: str
    dashes: Any
    width: float = 1.4
    hollow: bool = False

    def line(self) -> dict[str, Any]:
        """Arguments of a curve."""
        return {"color": self.colour, "linestyle": self.dashes, "linewidth": self.width}

    def point(self) -> dict[str, Any]:
        """Arguments of a marker."""
        face = "none" if self.hollow else self.colour
        size = 8 if self.marker == "*" else 5.5
        return {
            "color": self.colour,
            "marker": self.marker,
            "markerfacecolor": face,
            "markersize": size,
        }


def looks(methods: Iterable[str]) -> dict[str, Look]:
    """The look of every method.

    A method of the library always has the same style; a variant has its method's style with hollow
    markers and a thinner line; any other gets the next free style, in the order of the names.
    """
    found: dict[str, Look] = {}
    variants: dict[str, int] = {}
    strangers = 0
    for method in order(methods):
        base = base_of(method)
        if base not in METHODS:
            found[method] = _free(strangers)
            strangers += 1
            continue
        colour, marker, dashes = PALETTE[METHODS.index(base) % len(PALETTE)]
        if method == base:
            found[method] = Look(colour, marker, dashes, width=2.1 if base == CANDIDATE else 1.4)
        else:
            number = variants[base] = variants.get(base, 0) + 1
            dashes = (0, (1.5 + number, 1.5, 1, 1.5))
            found[method] = Look(colour, marker, dashes, width=1.1, hollow=True)
    return found


def _free(number: int) -> Look:
    """The look of a method that is none of the library's, counted from 0."""
    free = PALETTE[len(METHODS) :] or PALETTE
    around, place = divmod(number, len(free))
    colour, _, dashes = free[place]
    _, marker, _ = free[(place + around) % len(free)]
    if around:  # the colours are used up
        dashes = (0, (4, 1, 1, 1 + around))
    return Look(colour, marker, dashes, hollow=around % 2 == 1)


@contextmanager
def applied() -> Iterator[None]:
    """Draw in this look."""
    import matplotlib
    from cycler import cycler

    settings: Any = RC | {"axes.prop_cycle": cycler(color=[BLUE, ORANGE, GREEN])}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a user's matplotlibrc must not change a report
        matplotlib.rcParams.update(settings)
        yield


def dark_rules(scope: str) -> str:
    """A style sheet that repaints ink and grid inside ``scope`` where the reader prefers dark."""
    rules = []
    for light, dark in DARK.items():
        rules.append(f'{scope} [style*="fill: {light}"] {{ fill: {dark} !important; }}')
        rules.append(f'{scope} [style*="stroke: {light}"] {{ stroke: {dark} !important; }}')
    return "@media screen and (prefers-color-scheme: dark) {\n  " + "\n  ".join(rules) + "\n}"
