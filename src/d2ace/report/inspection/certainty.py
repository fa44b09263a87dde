"""How many labels look wrong, and how sure that is: no more than was measured."""

from __future__ import annotations

PRECISION, RECALL = 0.34, 0.40
"""Of what is flagged, the share that is wrong; of what is wrong, the share that is flagged.

Means over the ten datasets of docs/explanation/insights.md, at the default limit.
"""


def headline(flagged: int, pairs: int) -> str:
    """How many of how many."""
    if not flagged:
        return f"None of {pairs:,} labels looks wrong."
    looks = "label looks" if pairs == 1 else "labels look" if flagged > 1 else "labels looks"
    return f"{flagged:,} of {pairs:,} {looks} wrong ({percent(flagged / pairs)})."


def lead(flagged: int, *, usual: bool) -> str:
    """How far to trust that; ``usual``: flagged as in the measurement."""
    measured = (
        f"On ten datasets in which we changed 5 to 20\u00a0% of the positives, "
        f"{percent(PRECISION)} of the flagged labels were changed ones, and {percent(RECALL)} of "
        "the changed ones were flagged"
    )
    if not usual:
        measured += " (with the default limit; this page uses another)"
    if not flagged:
        return f"Some may still be wrong. {measured}."
    return (
        f"Some of them are right: look before you change any. {measured}. With fewer wrong labels "
        "in the data, fewer of the flagged ones are wrong."
    )


def percent(share: float) -> str:
    """A share as one reads it; small ones are not called nothing."""
    if 0.0 < share < 0.0005:
        return "under 0.1\u00a0%"
    return f"{100 * share:.1f}\u00a0%" if share < 0.0995 else f"{100 * share:.0f}\u00a0%"
