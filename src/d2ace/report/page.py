"""The report: one page that needs nothing else, and its figures and tables as files beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup, escape

from d2ace.benchmark.store import Store
from d2ace.report.figures.figure import Figure, standalone

from . import published as printed
from . import sections
from .collect import collect
from .folder import WrittenFolder
from .layout import TableOrFigure
from .templating import render

PAGE = "index.html"


@dataclass(frozen=True)
class Written:
    """What a report consists of."""

    page: Path
    headline: str
    """The summary in one or two sentences."""
    figures: int
    tables: int


def write_report(
    store: Store,
    out: str | Path,
    published: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Written:
    """Write ``index.html`` into the folder ``out``, with ``figures/`` and ``tables/`` beside it.

    The report is deterministic: the same store gives the same bytes.

    Parameters
    ----------
    store : Store
        Finished and failed runs.
    out : path
        Folder, made if needed. Files of an earlier report are replaced. If a file there was not
        written by d2ace or has changed since, the call is refused before anything is written.
    published : path, optional
        Folder with CSV files of published numbers instead of the D2ACE paper's (`published.py`).
    progress : callable, optional
        Called with the number of written parts and of all parts.
    """
    folder = WrittenFolder(Path(out))
    folder.check([PAGE])
    everything = sections.build(collect(store), printed.load(published))
    parts = [part for one in everything.sections for part in one.parts]
    folder.check([PAGE, *(name for part in parts for name in _files_of(part))])
    files: dict[str, bytes] = {}
    drawings: dict[str, Markup] = {}
    for done, part in enumerate(parts, start=1):
        if isinstance(part, Figure):
            svg, document = part.render()
            alt = escape(part.alt)
            svg = svg.replace("<svg ", f'<svg role="img" aria-label="{alt}" ', 1)
            drawings[part.name] = Markup(svg)  # noqa: S704 - matplotlib escapes what it prints
            contents = (standalone(svg).encode(), document)
        else:
            contents = (part.csv().encode(), part.latex().encode())
        files |= zip(_files_of(part), contents, strict=True)
        if progress is not None:
            progress(done, len(parts))
    files[PAGE] = render(
        "report.html",
        ["report.css"],
        script="report.js",
        kind="report",
        page=everything,
        drawings=drawings,
    ).encode()
    folder.write(files)
    tables = sum(part.kind == "table" for part in parts)
    headline = f"{everything.headline} {everything.lead}".strip()
    return Written(folder.folder / PAGE, headline, len(drawings), tables)


def _files_of(part: TableOrFigure) -> tuple[str, str]:
    """The two files of a table or figure."""
    if isinstance(part, Figure):
        return f"figures/{part.name}.svg", f"figures/{part.name}.pdf"
    return f"tables/{part.name}.csv", f"tables/{part.name}.tex"
