"""The insights that receive the predictions observed by a selector."""

from __future__ import annotations

import scipy.sparse as sp

from d2ace._util.validation import truth
from d2ace.insights import Insights

__all__ = ["insights_of"]


def insights_of(
    given: bool | Insights, labels: sp.csr_array, on_invalid: str, state: str
) -> Insights | None:
    """The insights that the option ``insights`` asks for, with these labels."""
    if isinstance(given, Insights):
        given.refuse_other_labels(labels)
        return given
    if not truth("insights", given):
        return None
    return Insights(labels, state=state, on_invalid=on_invalid)
