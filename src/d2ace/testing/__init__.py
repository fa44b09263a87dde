"""A conformance kit: does a selector keep what every selector promises?

    from d2ace.testing import check_selector

    check_selector(MySelector)                  # raises AssertionError with the broken promise
    check_selector(MySelector, window=3)        # with options

or, one test per promise, under pytest::

    @pytest.mark.parametrize("check", d2ace.testing.CHECKS, ids=lambda check: check.__name__)
    def test_promise(check):
        check(MySelector, window=3)
"""

from __future__ import annotations

from typing import Any

from d2ace.selectors import SELECTORS, Selector

from . import drawing, observing, resuming  # noqa: F401  (their checks register themselves)
from .problem import CHECKS, OWN

__all__ = ["CHECKS", "SETTINGS", "check_selector"]

_SMALL: dict[str, dict[str, Any]] = {
    "recent": {"window": 3},
    "hard_imb": {"neighbors": 3},
    "ml_unc": {"window": 3},
    "d2ace": {"window": 3, "neighbors": 3, "mix_epochs": (2, 5)},
}
"""Options that fit the few epochs and rows of the checks, where a method's own are too large."""

SETTINGS = {name: _SMALL.get(name, {}) for name in SELECTORS}
"""One canonical setting per registered method, so that a new one is checked, too."""


def check_selector(cls: type[Selector], **options: Any) -> None:
    """Run every check on ``cls`` made with ``options``; the first broken promise raises."""
    if not isinstance(cls, type) or not issubclass(cls, Selector):
        raise TypeError(
            f"check_selector needs a subclass of d2ace.Selector, got {cls!r}; pass the class "
            "itself, such as d2ace.D2ACE."
        )
    for option in options:
        if option in OWN:
            raise ValueError(
                f"check_selector got {option}={options[option]!r}, which its checks decide "
                f"themselves (as they do {', '.join(OWN)}); leave it out."
            )
    for check in CHECKS:
        try:
            check(cls, **options)
        except Exception as broken:
            problem = str(broken) or type(broken).__name__
            raise AssertionError(f"{cls.__name__} fails {check.__name__}: {problem}") from broken
