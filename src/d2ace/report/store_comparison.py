"""What changed between two stores: scores on common folds and seeds, settings, time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from d2ace.benchmark.plan import DEFAULTS, canonical, work_of
from d2ace.benchmark.store import Store, StoredRun, opened
from d2ace.evaluation import METRICS

from .intervals import Pair, interval, over_folds
from .naming import tell_apart
from .run_values import rows_of, test_to_train

Group = tuple[str, str, str, str]
Settings = dict[str, Any]

ELSEWHERE = ("data", "fold", "seed")  # in a line's name, or what is compared within it
NO_EFFECT = ("epoch_loss", "record", "insights")
"""On scores: runs with and without are the same work."""


class RunGroup:
    """Runs of one study, dataset, model, method and of the same settings, by fold and seed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.by_pair: dict[tuple[int, int], StoredRun] = {}
        self.extras: Settings = {}


def compare(before: Store, after: Store) -> dict[str, Any]:
    """Runs (study, dataset, model, method, settings) that two stores have in common or alone.

    Runs are compared with runs of the same settings, or else with those whose settings differ
    least; the result lists what differs. Differences are between runs of the same fold and seed,
    second store minus first, with a 95 % interval for the mean if there are at least two.
    """
    stored = opened(before).runs(), opened(after).runs()
    names = tell_apart(*stored)
    first, second = (_grouped(runs, names) for runs in stored)
    common: list[dict[str, Any]] = []
    alone: dict[str, list[dict[str, Any]]] = {"only_first": [], "only_second": []}
    for group in dict.fromkeys([*first, *second]):
        sides = first.get(group, []), second.get(group, [])
        varied = _varied([runs.settings for side in sides for runs in side])
        matched = list(_matched(*sides))
        common += [_compared(group, one, other, varied) for one, other in matched]
        taken = {id(runs) for pair in matched for runs in pair}
        for which, side in zip(alone, sides, strict=True):
            left = [runs for runs in side if id(runs) not in taken]
            alone[which] += [
                {**_named(group, runs.settings, varied), "runs": len(runs.by_pair)} for runs in left
            ]
    return {
        "first": str(before.path),
        "second": str(after.path),
        "common": common,
        **alone,
        "versions": {"first": _versions(stored[0]), "second": _versions(stored[1])},
    }


def _grouped(stored: Iterable[StoredRun], names: dict[str, str]) -> dict[Group, list[RunGroup]]:
    """Finished runs by group, then by settings, then by fold and seed; the one stored last."""
    groups: dict[Group, dict[str, RunGroup]] = {}
    for run in stored:
        group = (run.study, names[run.key], run.model, run.method)
        work = work_of(run.config)
        extras = {key: work.pop(key, DEFAULTS[key]) for key in NO_EFFECT}
        settings = {key: value for key, value in work.items() if key not in ELSEWHERE}
        alike = groups.setdefault(group, {}).setdefault(canonical(settings), RunGroup(settings))
        alike.by_pair[run.fold, run.seed] = run
        alike.extras = extras
    return {group: list(alike.values()) for group, alike in groups.items()}


def _matched(first: list[RunGroup], second: list[RunGroup]) -> Iterator[tuple[RunGroup, RunGroup]]:
    """Each with the one whose settings differ least, the likest two first."""
    choices = [
        (len(_differing(one.settings, other.settings)), place, one, other)
        for place, (one, other) in enumerate((a, b) for a in first for b in second)
    ]
    taken: set[int] = set()
    for _, _, one, other in sorted(choices, key=lambda choice: choice[:2]):
        if id(one) not in taken and id(other) not in taken:
            taken |= {id(one), id(other)}
            yield one, other


def _compared(group: Group, one: RunGroup, other: RunGroup, varied: list[str]) -> dict[str, Any]:
    first, second = one.by_pair, other.by_pair
    pairs = sorted(set(first) & set(second))
    both = [(first[pair], second[pair]) for pair in pairs]
    differing = _differing(one.settings, other.settings)
    shared = [key for key in varied if key not in differing]
    return {
        **_named(group, one.settings, shared),
        "pairs": len(pairs),
        "only_first": [list(pair) for pair in sorted(set(first) - set(second))],
        "only_second": [list(pair) for pair in sorted(set(second) - set(first))],
        "metrics": {
            metric: _difference(both, functools.partial(_score, metric=metric))
            for metric in METRICS
        },
        "seconds": _difference(both, _seconds),
        "settings": differing | _differing(one.extras, other.extras) | _other_rows(both),
    }


def _difference(
    runs: list[tuple[StoredRun, StoredRun]], value: Callable[[StoredRun], float | None]
) -> dict[str, Any]:
    """Means over the pairs of runs that both have a value, and of their differences."""
    known = [
        (one, a, b)
        for one, other in runs
        if (a := value(one)) is not None and (b := value(other)) is not None
    ]
    if not known:
        return dict.fromkeys(("first", "second", "difference", "low", "high"))
    pairs = [Pair(one.fold, one.seed, b - a, test_to_train(one)) for one, a, b in known]
    change = interval([pairs])
    return {
        "first": over_folds((one.fold, a) for one, a, _ in known),
        "second": over_folds((one.fold, b) for one, _, b in known),
        "difference": change.mean,
        "low": change.low,
        "high": change.high,
    }


def _differing(one: Settings, other: Settings) -> dict[str, list[Any]]:
    """Settings that differ -> [first, second]."""
    return {
        key: [one.get(key), other.get(key)]
        for key in dict.fromkeys([*one, *other])
        if canonical(one.get(key)) != canonical(other.get(key))
    }


def _other_rows(both: list[tuple[StoredRun, StoredRun]]) -> dict[str, list[Any]]:
    """Checksums of the rows of the first pair of runs that had other rows, as a setting."""
    known = [(*rows_of(one), *rows_of(other)) for one, other in both]
    other_rows = [pair for pair in known if len(set(pair)) > 1]
    return {"rows": [digest[:8] for digest in other_rows[0]]} if other_rows else {}


def _varied(every: list[Settings]) -> list[str]:
    """The settings that are not the same in all of these."""
    return list(dict.fromkeys(key for other in every for key in _differing(every[0], other)))


def _named(group: Group, settings: Settings, varied: list[str]) -> dict[str, Any]:
    """What a line is about; ``with`` holds the settings that tell it from its neighbours."""
    names = dict(zip(("study", "dataset", "model", "method"), group, strict=True))
    return {**names, "with": {key: settings.get(key) for key in varied}}


def _score(run: StoredRun, metric: str) -> float | None:
    return (run.result or {}).get("test", {}).get(metric)


def _seconds(run: StoredRun) -> float | None:
    return (run.result or {}).get("seconds", {}).get("total")


def _versions(stored: Iterable[StoredRun]) -> list[str]:
    found = {str((run.result or {}).get("environment", {}).get("d2ace")) for run in stored}
    return sorted(found)
