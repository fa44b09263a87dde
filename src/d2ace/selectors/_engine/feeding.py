"""The insights that a selector feeds with what it observes."""

from __future__ import annotations

import scipy.sparse as sp

from d2ace._util.validation import truth
from d2ace.insights import Insights

__all__ = ["insights_of"]


def insights_of(
    given: bool | Insights, labels: sp.csr_array, on_invalid: str, state: str
) -> Insights | None:
    """What the option ``insights`` means for a selector with these labels."""
    if isinstance(given, Insights):
        given.refuse_other_labels(labels)
        return given
    if not truth("insights", given):
        return None
    return Insights(labels, state=state, on_invalid=on_invalid)
