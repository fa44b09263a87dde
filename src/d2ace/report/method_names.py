"""The methods as tables name and order them: which is tested, and which all are compared with."""

from __future__ import annotations

import re
from collections.abc import Iterable

from d2ace.selectors import D2ACE, SELECTORS, Random

BASELINE = Random.title
CANDIDATE = D2ACE.title
METHODS = tuple(method.title for method in SELECTORS.values())
"""The library's own methods, in the order of the registry."""


def title_of(selector: str) -> str:
    """A selector's name in tables: its title, or the name of your own class."""
    return SELECTORS[selector].title if selector in SELECTORS else selector.rpartition(":")[2]


def base_of(name: str) -> str:
    """The name without what stands in brackets: "D2ACE (reference)" is a variant of "D2ACE"."""
    return re.sub(r" \([^()]*\)$", "", name)


def order(methods: Iterable[str]) -> list[str]:
    """The library's methods in its order, each followed by its variants; others after, by name."""

    def place(method: str) -> tuple[int, str, str]:
        base = base_of(method)
        return (METHODS.index(base) if base in METHODS else len(METHODS), base, method)

    return sorted(set(methods), key=place)
