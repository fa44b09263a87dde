"""Pages: the report on a store, and what insights say about the data of a run.

:func:`write_report` writes the first, :func:`write_inspection` the second; :func:`compare` shows
the differences between two stores. To add your own table to the report, mark the function that
makes it with :func:`register_table`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .folder import WrittenFolder
from .naming import tell_apart
from .registry import register_figure, register_table
from .store_comparison import compare
from .tables.table import Cell, ReportTable

if TYPE_CHECKING:
    from .demonstration import Demonstration as Demonstration
    from .demonstration import KnownErrors as KnownErrors
    from .demonstration import demonstrate as demonstrate
    from .demonstration import write_demo_page as write_demo_page
    from .inspection import Inspection as Inspection
    from .inspection import inspect_run as inspect_run
    from .inspection import write_inspection as write_inspection
    from .page import Written as Written
    from .page import write_report as write_report

# Imported on first use: pages need jinja2.
_PAGES = {
    "Demonstration": "demonstration",
    "Inspection": "inspection",
    "KnownErrors": "demonstration",
    "Written": "page",
    "demonstrate": "demonstration",
    "inspect_run": "inspection",
    "write_demo_page": "demonstration",
    "write_inspection": "inspection",
    "write_report": "page",
}


def __getattr__(name: str) -> Any:
    if name in _PAGES:
        return getattr(import_module(f"{__name__}.{_PAGES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PAGES})


__all__ = [
    "Cell",
    "Inspection",
    "ReportTable",
    "Written",
    "WrittenFolder",
    "compare",
    "inspect_run",
    "register_figure",
    "register_table",
    "tell_apart",
    "write_inspection",
    "write_report",
]
