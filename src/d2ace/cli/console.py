"""Standard output as commands use it: shaped for a terminal, whole lines for a pipe."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

__all__ = ["make_console", "print_table"]

_UNBROKEN = 100_000  # columns


def make_console() -> Console:
    """As wide as the terminal; elsewhere wide enough that no line wraps."""
    return Console(width=None if sys.stdout.isatty() else _UNBROKEN, highlight=False)


def print_table(table: Table) -> None:
    """Print a table without spaces at the ends of its lines."""
    console = make_console()
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))
