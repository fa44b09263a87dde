"""What changed between two stores: scores on common folds and seeds, settings, time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Any

from d2ace.evaluation import METRICS

from .specs import canonical
from .store import Store, StoredRun

Group = tuple[str, str, str, str]
Pair = tuple[int, int]
IDENTITY = ("fold", "seed")


def compare(before: Store, after: Store) -> dict[str, Any]:
    """Groups of runs (study, dataset, model, method) that two stores have in common or alone.

    A difference is taken between runs of the same fold and seed, second store minus first, with a
    95 % interval for its mean by Student's t where there are at least two.
    """
    first, second = _grouped(before), _grouped(after)
    common = [group for group in first if group in second]
    return {
        "first": str(before.path),
        "second": str(after.path),
        "common": [_compared(group, first[group], second[group]) for group in common],
        "only_first": [_alone(group, first[group]) for group in first if group not in second],
        "only_second": [_alone(group, second[group]) for group in second if group not in first],
        "versions": {"first": _versions(first.values()), "second": _versions(second.values())},
    }


def _grouped(store: Store) -> dict[Group, dict[Pair, StoredRun]]:
    """Finished runs by group, then by fold and seed; of several the one stored last."""
    groups: dict[Group, dict[Pair, StoredRun]] = {}
    for run in store.runs():
        group = (run.study, run.dataset, run.model, run.method)
        groups.setdefault(group, {})[run.fold, run.seed] = run
    return groups


def _compared(
    group: Group, first: dict[Pair, StoredRun], second: dict[Pair, StoredRun]
) -> dict[str, Any]:
    pairs = sorted(set(first) & set(second))
    return {
        **_named(group),
        "pairs": len(pairs),
        "only_first": [list(pair) for pair in sorted(set(first) - set(second))],
        "only_second": [list(pair) for pair in sorted(set(second) - set(first))],
        "metrics": {
            metric: _difference(
                [_score(first[pair], metric) for pair in pairs],
                [_score(second[pair], metric) for pair in pairs],
            )
            for metric in METRICS
        },
        "seconds": _difference(
            [_seconds(first[pair]) for pair in pairs], [_seconds(second[pair]) for pair in pairs]
        ),
        "settings": _settings([(first[pair], second[pair]) for pair in pairs]),
    }


def _difference(first: list[float | None], second: list[float | None]) -> dict[str, Any]:
    """Means over the pairs where both values are defined, and of their differences."""
    both = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    if not both:
        return dict.fromkeys(("first", "second", "difference", "low", "high"))
    changes = [b - a for a, b in both]
    mean = statistics.fmean(changes)
    low = high = None
    if len(changes) > 1:
        from scipy.stats import t

        half = t.ppf(0.975, len(changes) - 1) * statistics.stdev(changes) / math.sqrt(len(changes))
        low, high = mean - float(half), mean + float(half)
    return {
        "first": statistics.fmean(a for a, _ in both),
        "second": statistics.fmean(b for _, b in both),
        "difference": mean,
        "low": low,
        "high": high,
    }


def _settings(pairs: list[tuple[StoredRun, StoredRun]]) -> dict[str, list[Any]]:
    """Settings that differ -> [first, second], of the first pair in which they do."""
    differing: dict[str, list[Any]] = {}
    for a, b in pairs:
        for key in dict.fromkeys([*a.config, *b.config]):
            values = [a.config.get(key), b.config.get(key)]
            if key not in IDENTITY and canonical(values[0]) != canonical(values[1]):
                differing.setdefault(key, values)
    return differing


def _alone(group: Group, runs: dict[Pair, StoredRun]) -> dict[str, Any]:
    return {**_named(group), "runs": len(runs)}


def _named(group: Group) -> dict[str, str]:
    return dict(zip(("study", "dataset", "model", "method"), group, strict=True))


def _score(run: StoredRun, metric: str) -> float | None:
    return (run.result or {}).get("test", {}).get(metric)


def _seconds(run: StoredRun) -> float | None:
    return (run.result or {}).get("seconds", {}).get("total")


def _versions(groups: Iterable[dict[Pair, StoredRun]]) -> list[str]:
    found = {
        str((run.result or {}).get("environment", {}).get("d2ace"))
        for runs in groups
        for run in runs.values()
    }
    return sorted(found)
