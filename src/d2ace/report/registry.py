"""Which tables and figures stand in which section: each says so itself, in its own file.

Every module in ``tables/`` or ``figures/`` is imported. Mark a function in it with
:func:`register_table` (or :func:`register_figure`): it is called with the topic of each group of
the section (`topics`), and yields its tables::

    @register_table("scores", order=50)
    def widest_gap(topic: ComparisonTopic) -> Iterator[ReportTable]:
        yield ReportTable(name=topic.name("widest-gap", topic.comparison.heading), ...)

A lower ``order`` comes first; equal ones are sorted by their modules' names. Your own code can do
the same before it writes a report.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from d2ace._util.errors import UserError
from d2ace._util.hints import did_you_mean
from d2ace.report.figures.figure import Figure
from d2ace.report.tables.table import ReportTable

SECTIONS = (
    *("summary", "scores", "ranks", "convergence", "time"),
    *("ablation", "sweeps", "cases", "selection", "runs"),
)
"""The sections of the page, in their order."""

LAST = 1000

Made = TypeVar("Made", ReportTable, Figure)
Maker = TypeVar("Maker", bound=Callable[..., Iterable[Any]])


class Registry(Generic[Made]):
    """What makes tables, or figures, section by section."""

    def __init__(self, kind: type[Made], package: str) -> None:
        self._kind: type[Made] = kind
        self._package = package
        self._makers: dict[str, list[tuple[int, Callable[..., Iterable[Made | None]]]]] = {}

    def register(self, section: str, order: int = LAST) -> Callable[[Maker], Maker]:
        """Mark a function that makes tables (or figures) of a section."""
        if section not in SECTIONS:
            raise UserError(
                f"a report has no section {section!r}{did_you_mean(section, SECTIONS)}; "
                f"choose from {', '.join(SECTIONS)}"
            )

        def marked(make: Maker) -> Maker:
            self._makers.setdefault(section, []).append((order, make))
            return make

        return marked

    def make(self, section: str, topic: Any) -> Iterator[Made]:
        """All that a section shows of a topic."""
        _import_modules(self._package)
        for _, make in sorted(self._makers.get(section, []), key=lambda each: each[0]):
            for made in make(topic):
                if made is None:  # nothing to show
                    continue
                if not isinstance(made, self._kind):
                    raise TypeError(
                        f"{make.__name__} of section {section} must yield "
                        f"{self._kind.__name__} objects, got {made!r}."
                    )
                yield made


@functools.cache
def _import_modules(package: str) -> None:
    """Import all modules of a package, in the order of their names."""
    place = importlib.import_module(package).__path__
    for name in sorted(module.name for module in pkgutil.iter_modules(place)):
        importlib.import_module(f"{package}.{name}")


TABLES = Registry(ReportTable, "d2ace.report.tables")
FIGURES = Registry(Figure, "d2ace.report.figures")
register_table = TABLES.register
register_figure = FIGURES.register
