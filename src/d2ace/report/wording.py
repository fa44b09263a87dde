"""Words of the report that several parts use, and those for each verdict."""

from __future__ import annotations

from d2ace.evaluation import METRICS


def counted(count: int, noun: str) -> str:
    """One fold is "1 fold", five are "5 folds"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def ranging(counts: list[int], noun: str) -> str:
    """Unequal counts are "2 to 5 folds"."""
    most = counted(max(counts), noun)
    return most if min(counts) == max(counts) else f"{min(counts)} to {most}"


def metric_title(metric: str) -> str:
    """A metric's name as printed, and which way is better."""
    one = METRICS[metric]
    return f"{one.title} ({'higher' if one.higher_is_better else 'lower'} is better)"
