"""The runs that vary options of a method, by the values that these had."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from d2ace.benchmark.plan import canonical
from d2ace.benchmark.store import StoredRun

from .method_names import title_of
from .naming import dataset_names
from .run_values import pairs
from .wording import counted


@dataclass(frozen=True)
class Sweep:
    """The runs of one study of options on one dataset with one model."""

    model: str
    dataset: str
    selector: str
    options: tuple[str, ...]
    """The options that were varied."""
    points: dict[tuple[Any, ...], tuple[StoredRun, ...]]
    """Values of these options -> runs, of the folds and seeds that all values have, if any."""
    left_out: int
    """Runs of other folds and seeds."""

    @property
    def method(self) -> str:
        """The method whose options they are, as shown."""
        return title_of(self.selector)

    @property
    def fair(self) -> bool:
        """Whether all values were run on the same folds and seeds."""
        return len({pairs(runs) for runs in self.points.values()}) == 1

    @property
    def note(self) -> str:
        """What to know of the runs before comparing values; often nothing."""
        if not self.fair:
            return (
                "No fold was run with every value, so their scores are not comparable and none is "
                "marked."
            )
        if self.left_out:
            return f"Without {counted(self.left_out, 'run')} on folds that not every value has."
        return ""


def find_sweeps(runs: list[StoredRun]) -> list[Sweep]:
    """Runs that set the same options belong together; the options that vary are the axes."""
    names = dataset_names(runs)
    sources: dict[str, set[str]] = {}
    for run in runs:
        sources.setdefault(run.selector, set()).add(run.config.get("selector_source") or "")
    groups: dict[tuple[str, ...], list[StoredRun]] = {}
    for run in runs:
        options = tuple(sorted(run.config["selector_options"]))
        if not options:  # nothing was varied
            continue
        dataset = names[run.key]
        if len(sources[run.selector]) > 1:  # your own file was edited in between
            dataset += f" [{(run.config.get('selector_source') or '')[:8]}]"
        where = (run.model, dataset, run.selector, json.dumps(options))
        groups.setdefault(where, []).append(run)
    sweeps = []
    for (model, dataset, selector, named), members in sorted(groups.items()):
        options = tuple(json.loads(named))
        seen = {
            key: {canonical(run.config["selector_options"][key]) for run in members}
            for key in options
        }
        varied = tuple(key for key in options if len(seen[key]) > 1) or options[:1]
        points: dict[tuple[Any, ...], dict[tuple[int, int], StoredRun]] = {}
        for run in members:
            value = tuple(_value(run, key) for key in varied)
            points.setdefault(value, {}).setdefault((run.seed, run.fold), run)
        common = frozenset.intersection(*(frozenset(own) for own in points.values()))
        kept = {
            value: tuple(
                points[value][key] for key in sorted(points[value]) if key in common or not common
            )
            for value in sorted(points, key=_sortable)
        }
        left_out = sum(map(len, points.values())) - sum(map(len, kept.values()))
        sweeps.append(Sweep(model, dataset, selector, varied, kept, left_out))
    return sweeps


def _value(run: StoredRun, option: str) -> Any:
    value = run.config["selector_options"][option]
    if option == "neighbors" and isinstance(value, int) and run.result is not None:
        rows = run.result.get("dataset", {}).get("train")
        return "n" if rows is not None and value >= rows - 1 else value
    return as_point(value)


def as_point(value: Any) -> Any:
    """An option's value on the axis of a sweep: a number, a word, or several numbers."""
    if isinstance(value, (list, tuple)):
        numbers = all(isinstance(item, (int, float)) for item in value)
        return tuple(value) if numbers else canonical(value)
    return canonical(value) if isinstance(value, dict) else value


def _sortable(values: tuple[Any, ...]) -> list[tuple[int, float, str]]:
    """Numbers by size, then words; pairs of numbers one after the other."""
    flat: list[Any] = []
    for value in values:
        flat += value if isinstance(value, tuple) else [value]
    return [
        (0, float(item), "") if isinstance(item, (int, float)) else (1, 0.0, str(item))
        for item in flat
    ]
