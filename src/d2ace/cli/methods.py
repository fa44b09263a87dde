"""The command ``d2ace methods``."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from d2ace.selectors import SELECTORS, Selector, options_of

from .console import make_console, print_table


def methods(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """List the batch selection methods and their options."""
    common = set(options_of(Selector))
    summary = {
        name: " ".join((method.__doc__ or "").split("\n\n")[0].split())
        for name, method in SELECTORS.items()
    }
    own = {
        name: [option for option in options_of(method) if option not in common]
        for name, method in SELECTORS.items()
    }
    if as_json:
        rows = [
            {"name": name, "summary": summary[name], "options": own[name]} for name in SELECTORS
        ]
        print(json.dumps({"methods": rows, "common_options": sorted(common)}, indent=2))
        return
    table = Table("name", "what it does", "its own options")
    for name in SELECTORS:
        table.add_row(name, summary[name], ", ".join(own[name]))
    print_table(table)
    make_console().print(f"Every method also takes: {', '.join(sorted(common))}.")
