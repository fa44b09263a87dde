"""Methods by name, your own included."""

from __future__ import annotations

import inspect
from typing import Any

from d2ace._util import validation as inputs
from d2ace._util.own_class import Family

from .base import Selector

SELECTORS: dict[str, type[Selector]] = {}
"""The methods by name; the registry fills it, so that a method can find another one."""

SELECTOR_FAMILY = Family("selector", Selector, "d2ace.Selector", SELECTORS)


def make_selector(
    name: str, labels: inputs.Labels, features: inputs.Features = None, **options: Any
) -> Selector:
    """The selector called ``name``, with its options.

    ``name`` is a key of ``SELECTORS``, or the place of your own class:
    ``"package.module:Class"`` or ``"path/to/file.py:Class"``.
    """
    method = find_selector(name)
    try:
        inspect.signature(method).bind(labels, features, **options)
    except TypeError as problem:
        raise TypeError(
            f"{name} cannot be made with (labels, features) and these options ({problem}); write "
            "its __init__ as (self, labels, features=None, *, ..., **common)."
        ) from None
    made = method(labels, features, **options)
    if not hasattr(made, "labels"):
        raise TypeError(
            f"{name} does not call super().__init__(labels, features, **common) in its __init__; "
            "call it first."
        )
    return made


def find_selector(name: str) -> type[Selector]:
    """The class that ``name`` means; see :func:`make_selector`."""
    return SELECTOR_FAMILY.find(name)
