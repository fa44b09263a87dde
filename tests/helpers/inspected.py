"""Insights of made-up trainings, to write pages on."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import d2ace

Labels = npt.NDArray[np.int64]
HOSTILE = [
    "<script>alert('label')</script>",
    '"><img src=x onerror=alert(1)>',
    "very_long_name_without_a_space_" * 40,
    "תווית בעברית‏",
    "🦊 & 🐻‍❄️ {{ 7 * 7 }}",
]
"""Names of labels or rows that would break a careless page."""


def labels_with(n: int, q: int, seed: int = 0) -> Labels:
    return (np.random.default_rng(seed).random((n, q)) < 0.3).astype(np.int64)


def trained(
    labels: Labels,
    wrong: list[tuple[int, int]],
    *,
    rows: Any = None,
    visits: int = 4,
    **options: Any,
) -> d2ace.Insights:
    """A model that believes what is given, but for the ``wrong`` pairs; ``rows`` were seen."""
    rng = np.random.default_rng(1)
    insights = d2ace.Insights(labels, **options)
    true = np.array(labels)
    for pair in wrong:
        true[pair] = 1 - true[pair]
    seen = np.arange(len(labels)) if rows is None else np.asarray(rows)
    for _ in range(visits):
        noise = rng.uniform(0.02, 0.12, (len(seen), labels.shape[1]))
        insights.observe(seen, probs=np.abs(true[seen] - noise).astype(np.float32))
    return insights
