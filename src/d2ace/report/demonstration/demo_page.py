"""The demo's page: one file that holds everything."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from d2ace.data import AnnotatedData
from d2ace.report.folder import WrittenFolder
from d2ace.report.inspection.certainty import lead, percent
from d2ace.report.inspection.contents import Card, Contents
from d2ace.report.templating import drawing, render
from d2ace.report.wording import counted

from .demo_figures import curves, differences, found_errors
from .findings import Demonstration
from .known_errors import KnownErrors, most_suspicious

PAGE = "index.html"
MOST_PICTURES, MOST_SUSPECTS = 12, 50


@dataclass(frozen=True)
class _Part:
    name: str
    title: str


@dataclass(frozen=True)
class _Top:
    """What stands at the top of the page."""

    headline: str
    lead: str
    facts: list[str]
    sections: list[_Part]


def write_demo_page(shown: Demonstration, out: str | Path, *, store: Path) -> Path:
    """Write ``index.html`` into the folder ``out``; ``store`` holds the runs."""
    folder = WrittenFolder(Path(out))
    data, known = shown.data, shown.true is not None
    found, compared = shown.found(), shown.compared()
    contents = Contents(shown.insights.row_names, data)
    issues = most_suspicious(shown.insights, MOST_SUSPECTS)
    first = list(dict.fromkeys(issues["row"].tolist()))[:MOST_PICTURES]
    cards = contents.cards(first, issues, shown.insights.rows())
    suspects = contents.suspects(issues, MOST_SUSPECTS)
    usual = shown.insights.state == "full"
    top = _Top(
        headline=found[0],
        lead=compared[0] if known else lead(len(shown.insights.label_issues()), usual=usual),
        facts=[
            data.name,
            counted(data.n, "row"),
            counted(data.q, "label"),
            counted(shown.seeds, "seed"),
            counted(len(shown.methods[0].curves[0]), "epoch"),
        ],
        sections=[
            _Part("suspects", "Wrong labels"),
            _Part("methods", "What they cost" if known else "Methods"),
            _Part("next", "Next steps"),
        ],
    )
    page = render(
        "demo.html",
        ["report.css", "inspection.css"],
        pictures=True,
        kind="demo",
        page=top,
        known=known,
        exchanged=len(data.flipped) / data.n if isinstance(data, AnnotatedData) else 0.0,
        plain=shown.methods[0].method,
        found=found[1:],
        compared=compared,
        found_figure=found_errors(shown.errors) if shown.errors else None,
        difference_figure=differences(shown) if len(shown.every) > 1 else None,
        curve_figure=curves(shown.every),
        drawing=drawing,
        cards=cards,
        notes=_truths(KnownErrors(data), cards) if isinstance(data, AnnotatedData) else {},
        suspects=suspects,
        crisp=contents.pictures is not None and contents.pictures.drawn,
        sparse=contents.features is not None and contents.features.sparse,
        features=contents.features is not None,
        percent=percent,
        tested=shown.tested,
        rows=shown.rows(),
        commands={
            "inspect": shlex.join(["d2ace", "inspect", str(shown.run), "-o", "inspection"]),
            "report": shlex.join(["d2ace", "report", str(store), "-o", "comparison"]),
        },
    )
    folder.write({PAGE: page.encode(errors="replace")})
    return folder.folder / PAGE


def _truths(errors: KnownErrors, cards: list[Card]) -> dict[int, str]:
    """For each card, its true labels, and how many of its suspects are truly wrong."""
    names = errors.data.label_names
    said = {}
    for card in cards:
        row = card.row.number
        true = ", ".join(names[label] for label in errors.true_Y[row].nonzero()[0])
        hits = sum(bool(errors.wrong[row, names.index(one.label)]) for one in card.suspects)
        how = {0: "wrongly suspected", len(card.suspects): "rightly suspected"}.get(hits, "partly")
        said[row] = f"Truth: {true} ({how})"
    return said
