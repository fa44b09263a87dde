"""The report on a store: what the runs allow one to say, as one page with tables and figures.

:func:`write_report` writes it, :func:`compare` says what changed between two stores. A table of
your own stands in the page once a function that makes it is marked with :func:`register_table`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .folder import WrittenFolder
from .naming import tell_apart
from .registry import register_figure, register_table
from .store_comparison import compare
from .tables.table import Cell, ReportTable

if TYPE_CHECKING:
    from .page import Written as Written
    from .page import write_report as write_report

# Loaded when first used: a page needs jinja2.
_PAGE = ("Written", "write_report")


def __getattr__(name: str) -> Any:
    if name in _PAGE:
        return getattr(import_module(f"{__name__}.page"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PAGE})


__all__ = [
    "Cell",
    "ReportTable",
    "Written",
    "WrittenFolder",
    "compare",
    "register_figure",
    "register_table",
    "tell_apart",
    "write_report",
]
