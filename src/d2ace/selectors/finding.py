"""Methods by name, one's own too."""

from __future__ import annotations

from typing import Any

from d2ace._util import validation as inputs
from d2ace._util.own_class import Family

from .base import Selector

SELECTORS: dict[str, type[Selector]] = {}
"""The methods by name; the registry fills it, so that a method may look for another one."""

SELECTOR_FAMILY = Family("selector", Selector, "d2ace.Selector", SELECTORS)


def make_selector(
    name: str, labels: inputs.Labels, features: inputs.Features = None, **options: Any
) -> Selector:
    """The selector called ``name``, with its options.

    ``name`` is a key of ``SELECTORS``, or says where a class of one's own is:
    ``"package.module:Class"`` or ``"path/to/file.py:Class"``.
    """
    return find_selector(name)(labels, features, **options)


def find_selector(name: str) -> type[Selector]:
    """The class that ``name`` means; see :func:`make_selector`."""
    return SELECTOR_FAMILY.find(name)
