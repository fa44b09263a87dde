"""``d2ace report``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from d2ace._util.paths import given_path


def report(
    store: Annotated[Path, typer.Argument(metavar="RUNS.DB", help="The store of a grid.")],
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the report.")
    ] = "report",
    published: Annotated[
        Path | None,
        typer.Option(help="Folder with CSV files of published numbers, instead of the paper's."),
    ] = None,
) -> None:
    """Write a report on a store: a page, figures (SVG, PDF) and tables (CSV, LaTeX)."""
    from d2ace.benchmark.store import Store
    from d2ace.report import write_report

    folder = given_path(out, "--out")
    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        Store(store, read_only=True) as runs,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("tables and figures", total=None)
        written = write_report(
            runs,
            folder,
            published,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    print(written.headline)
    print(f"{written.page} ({written.tables} tables, {written.figures} figures)")
