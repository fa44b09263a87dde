"""The report's page before it is written: chapters, groups, and the names of their files."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from d2ace.report.figures.figure import Figure
from d2ace.report.tables.table import ReportTable

TableOrFigure = ReportTable | Figure


@dataclass
class Group:
    """Parts under one heading: tables, then figures."""

    title: str
    tables: list[ReportTable] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *parts: TableOrFigure | None) -> None:
        """Take what there is."""
        for part in parts:
            if isinstance(part, ReportTable):
                self.tables.append(part)
            elif part is not None:
                self.figures.append(part)


@dataclass
class Section:
    """A chapter of the page."""

    name: str
    title: str
    intro: str = ""
    groups: list[Group] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """What was not run, and how to run it."""

    @property
    def parts(self) -> list[TableOrFigure]:
        """All tables and figures."""
        found: list[TableOrFigure] = []
        for group in self.groups:
            found += [*group.tables, *group.figures]
        return found

    def group(self, title: str) -> Group:
        """A new group at the end."""
        self.groups.append(Group(title))
        return self.groups[-1]


@dataclass
class Page:
    """The whole page."""

    headline: str
    lead: str
    """What qualifies the headline."""
    facts: list[str]
    findings: list[tuple[str, list[tuple[str, list[str]]]]]
    """Comparison -> metric -> sentences."""
    sections: list[Section]


class Names:
    """File names made of titles, none twice."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def __call__(self, *words: str) -> str:
        slug = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")[:80] or "part"
        name, number = slug, 2
        while name in self._given:
            name, number = f"{slug}-{number}", number + 1
        self._given.add(name)
        return name
