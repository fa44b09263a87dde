"""``d2ace inspect``."""

from __future__ import annotations

import json
import math
from typing import Annotated

import typer

from d2ace._util.errors import UserError
from d2ace._util.paths import given_path


def inspect(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The out folder of a finished run.")],
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the page.")
    ] = "inspection",
    above: Annotated[
        float | None,
        typer.Option(help="Flag labels with a larger suspicion; raise it to flag fewer."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of flagged labels on the page.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Write a page on the wrong labels in a run trained with --insights."""
    from d2ace.report import inspect_run

    if above is not None and not math.isfinite(above):
        raise UserError(f"--above is {above}; give a finite number, such as 1.5.")
    written = inspect_run(run, given_path(out, "--out"), above=above, top=top)
    if as_json:
        print(json.dumps(written.summary, indent=1, allow_nan=False))
    else:
        print(written.headline)
        print(written.page)
