"""The report: one page that needs nothing else, and its figures and tables as files beside it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from d2ace.errors import RunError, UserError

from . import published as printed
from . import sections, style
from .figures import Figure, standalone
from .frames import collect
from .layout import Report, Section
from .store import Store

TEMPLATES = "templates"


@dataclass(frozen=True)
class Written:
    """What a report consists of."""

    page: Path
    headline: str
    """The summary in a sentence or two."""
    figures: int
    tables: int


def write_report(
    store: Store,
    out: str | Path,
    published: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Written:
    """Write ``index.html`` into the folder ``out``, with ``figures/`` and ``tables/`` beside it.

    The same store gives the same bytes.

    Parameters
    ----------
    store : Store
        Finished and failed runs.
    out : path
        Folder, made if need be. Files of the same names are replaced, others stay.
    published : path, optional
        Folder with CSV files of published figures instead of the D2ACE paper's (`published.py`).
    progress : callable, optional
        Called with the number of parts written and of all parts.
    """
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder for the report")
    everything = sections.build(collect(store), printed.load(published))
    try:
        drawings = _write_parts(everything.sections, folder, progress)
        page = folder / "index.html"
        page.write_text(_page(everything, drawings), encoding="utf-8")
    except OSError as error:
        raise RunError(f"the report cannot be written to {folder}: {error.strerror}") from None
    tables = sum(part.kind == "table" for one in everything.sections for part in one.parts)
    headline = f"{everything.headline} {everything.lead}".strip()
    return Written(page, headline, len(drawings), tables)


def _write_parts(
    parts_of: list[Section], folder: Path, progress: Callable[[int, int], None] | None
) -> dict[str, Markup]:
    """Write the files; returns the drawings by the figure's name, ready for the page."""
    for name in ("figures", "tables"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    parts = [part for one in parts_of for part in one.parts]
    drawings: dict[str, Markup] = {}
    for done, part in enumerate(parts, start=1):
        if isinstance(part, Figure):
            svg, pdf = part.render()
            alt = escape(part.alt)
            svg = svg.replace("<svg ", f'<svg role="img" aria-label="{alt}" ', 1)
            drawings[part.name] = Markup(svg)  # noqa: S704 - matplotlib escapes what it prints
            path = folder / "figures" / part.name
            path.with_name(f"{part.name}.svg").write_text(standalone(svg), encoding="utf-8")
            path.with_name(f"{part.name}.pdf").write_bytes(pdf)
        else:
            path = folder / "tables" / part.name
            path.with_name(f"{part.name}.csv").write_text(part.csv(), encoding="utf-8")
            path.with_name(f"{part.name}.tex").write_text(part.latex(), encoding="utf-8")
        if progress is not None:
            progress(done, len(parts))
    return drawings


def _page(everything: Report, drawings: dict[str, Markup]) -> str:
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        loader=jinja2.FunctionLoader(_template),
    )
    script = _template("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("report.html").render(
        report=everything,
        drawings=drawings,
        # These two are ours, not the user's.
        style_sheet=Markup(_template("report.css") + style.dark_rules(".drawing")),  # noqa: S704
        script=Markup(script),  # noqa: S704
        policy=(
            f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
            "base-uri 'none'; form-action 'none'"
        ),
    )


def _template(name: str) -> str:
    return (resources.files("d2ace.benchmark") / TEMPLATES / name).read_text(encoding="utf-8")
