"""The runs of a store in the shapes that tables and figures want."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from d2ace.benchmark.plan.specs import METHODS, canonical
from d2ace.benchmark.store.database import Store, StoredRun
from d2ace.benchmark.store.shape import check_recording
from d2ace.evaluation import METRICS

from .figures import style
from .intervals import Pair, over_folds
from .naming import dataset_names, tell_apart, versions

BASELINE = "Random"
CANDIDATE = "D2ACE"
SHOWN = ("macro_auc", "macro_f1", "ranking_loss", "mean_average_precision")
"""The metrics of the report: the paper's three for tabular data, and its one for images."""
DIGITS = 4
"""Decimals of a printed score. Ranks are those of the printed scores, as in the paper."""
STUDIES = ("ablation", "sweep", "case")
"""Studies with sections of their own; every other one compares methods."""
_TRIED = 1000  # sets of methods of which the largest block is chosen

Array = np.ndarray[Any, np.dtype[np.float64]]
Scores = dict[str, dict[str, float]]
"""Dataset -> method -> score."""
Recording = dict[str, Any]
"""What a run recorded for case studies: the arrays of its ``record.npz``, by name."""


@dataclass(frozen=True)
class Comparison:
    """The finished runs of one study with one model, by dataset and method."""

    study: str
    model: str
    cells: dict[tuple[str, str], tuple[StoredRun, ...]]

    @property
    def heading(self) -> str:
        """What is compared: the model, and the study unless it is the main one."""
        return self.model if self.study == "main" else f"{self.model}, {self.study}"

    @property
    def datasets(self) -> list[str]:
        """Datasets, by name."""
        return sorted({dataset for dataset, _ in self.cells})

    @property
    def methods(self) -> list[str]:
        """Methods, in the paper's order."""
        return style.order(method for _, method in self.cells)

    def runs(self, dataset: str, method: str) -> tuple[StoredRun, ...]:
        """The runs of a cell by seed and fold; none is empty."""
        return self.cells.get((dataset, method), ())

    def values(self, metric: str, dataset: str, method: str) -> Array:
        """Test scores of a cell, without undefined ones."""
        scores = [test_score(run, metric) for run in self.runs(dataset, method)]
        return np.array([score for score in scores if not np.isnan(score)])

    def means(self, metric: str) -> Scores:
        """Printed mean scores; a cell without a defined score is missing."""
        table: Scores = {dataset: {} for dataset in self.datasets}
        for dataset in self.datasets:
            for method in self.methods:
                mean = mean_score(self.runs(dataset, method), metric)
                if not np.isnan(mean):
                    table[dataset][method] = round(mean, DIGITS)
        return table

    def block(self, metric: str) -> Scores:
        """The largest part of `means` without a gap; ranks and tests need one.

        Largest by cells, so that neither a dataset with few methods nor a method with few
        datasets empties it; two methods go before one alone. Methods that some datasets have in
        common are tried, which are few unless gaps lie everywhere; then the most promising.
        """
        table = self.means(metric)

        def size(methods: frozenset[str]) -> tuple[bool, int, int, list[str]]:
            held = sum(methods <= set(row) for row in table.values())
            return len(methods) > 1, held * len(methods), len(methods), sorted(methods)

        choices: set[frozenset[str]] = set()
        for kind in sorted({frozenset(row) for row in table.values()}, key=size, reverse=True):
            choices |= {kind} | {kind & other for other in choices}
            if len(choices) > _TRIED:
                choices = set(heapq.nlargest(_TRIED, choices, key=size))
        best = max(choices, key=size, default=frozenset())
        whole = [dataset for dataset, row in table.items() if best and best <= set(row)]
        block = {dataset: self._common_means(metric, dataset, sorted(best)) for dataset in whole}
        return {dataset: row for dataset, row in block.items() if row}

    def _common_means(self, metric: str, dataset: str, methods: list[str]) -> dict[str, float]:
        """Printed means over the folds and seeds that all the methods have; none is empty."""
        scores = {
            method: {
                (run.fold, run.seed): test_score(run, metric) for run in self.runs(dataset, method)
            }
            for method in methods
        }
        common = set.intersection(
            *({pair for pair, score in own.items() if score == score} for own in scores.values())
        )
        if not common:
            return {}
        return {
            method: round(
                over_folds((fold, own[fold, seed]) for fold, seed in sorted(common)), DIGITS
            )
            for method, own in scores.items()
        }

    def fair(self, metric: str, dataset: str) -> bool:
        """Whether all methods on a dataset have scores of the same folds and seeds."""
        cells = [self.runs(dataset, method) for method in self.methods]
        scored = [
            frozenset((run.fold, run.seed) for run in runs if not np.isnan(test_score(run, metric)))
            for runs in cells
        ]
        return len({own for own in scored if own}) <= 1

    def other_rows(self, datasets: Iterable[str]) -> list[str]:
        """Those of these datasets where methods had other rows on the same fold and seed."""
        return [dataset for dataset in datasets if self._had_other_rows(dataset)]

    def _had_other_rows(self, dataset: str) -> bool:
        had: dict[tuple[int, int], set[str]] = {}
        for method in self.methods:
            for run in self.runs(dataset, method):
                had.setdefault((run.fold, run.seed), set()).update(rows_of(run))
        return any(len(digests) > 1 for digests in had.values())

    def differences(
        self, metric: str, method: str, baseline: str = BASELINE, datasets: Iterable[str] = ()
    ) -> list[list[Pair]]:
        """Score minus the baseline's, dataset by dataset; those without a pair are left out."""
        found = [
            paired(metric, self.runs(dataset, method), self.runs(dataset, baseline))
            for dataset in datasets or self.datasets
        ]
        return [pairs for pairs in found if pairs]

    def spread(self, datasets: Iterable[str] = ()) -> str:
        """How many folds and seeds a cell has, in words."""
        wanted = set(datasets or self.datasets)
        cells = [runs for (dataset, _), runs in self.cells.items() if dataset in wanted]
        folds = [len({run.fold for run in runs}) for runs in cells]
        seeds = [len({run.seed for run in runs}) for runs in cells]
        return f"{_ranging(folds, 'fold')} and {_ranging(seeds, 'seed')}"


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
        return METHODS.get(self.selector, self.selector.rpartition(":")[2])

    @property
    def fair(self) -> bool:
        """Whether all values were run on the same folds and seeds."""
        return len({pairs(runs) for runs in self.points.values()}) == 1

    @property
    def note(self) -> str:
        """What to know of the runs before comparing values; often nothing."""
        if not self.fair:
            return (
                "No fold was run with every value, so that their scores are not comparable and "
                "none is marked."
            )
        if self.left_out:
            return f"Without {counted(self.left_out, 'run')} on folds that not every value has."
        return ""


@dataclass(frozen=True)
class Laboratory:
    """Everything a report tells of."""

    comparisons: list[Comparison]
    ablations: list[Comparison]
    cases: list[Comparison]
    """Runs made for their recordings alone: too few to compare scores."""
    sweeps: list[Sweep]
    finished: list[StoredRun]
    failed: list[StoredRun]
    recording: Callable[[StoredRun], Recording | None]
    """Reads what a run recorded, while the store is open."""
    outdated: frozenset[tuple[str, str]] = frozenset()
    """Study and key of failed runs whose method finished in another version: none is missing."""

    @property
    def methods(self) -> list[str]:
        """All methods of the comparisons."""
        return style.order(method for one in self.comparisons for method in one.methods)

    def recorded(self, one: Comparison, dataset: str) -> dict[str, list[Recording]]:
        """Method -> recordings of its runs on a dataset; those without are left out."""
        found = {
            method: [
                recording
                for run in one.runs(dataset, method)
                if run.config.get("record") and (recording := self.recording(run)) is not None
            ]
            for method in one.methods
        }
        return {method: several for method, several in found.items() if several}


def collect(store: Store) -> Laboratory:
    """The runs of a store, sorted out. The order in which they were stored plays no part."""
    stored = store.runs(status=None)
    names = tell_apart(stored)
    named = list(zip(stored, versions(stored), strict=True))
    everything = sorted(
        (replace(run, dataset=names[run.key], method=version.name) for run, version in named),
        key=_place,
    )
    finished = [run for run in everything if run.status == "finished" and run.result]
    others = [run for run in finished if run.study not in STUDIES]
    studies = sorted({run.study for run in others}, key=lambda study: (study != "main", study))
    comparisons = [
        one for study in studies for one in _compare([r for r in others if r.study == study])
    ]
    return Laboratory(
        comparisons=comparisons,
        ablations=_compare([run for run in finished if run.study == "ablation"]),
        cases=_compare([run for run in finished if run.study == "case"]),
        sweeps=_sweeps([run for run in finished if run.study == "sweep"]),
        finished=finished,
        failed=[run for run in everything if run.status == "failed"],
        recording=lambda run: _recording(store, run),
        outdated=frozenset((run.study, run.key) for run, version in named if version.outdated),
    )


def _recording(store: Store, run: StoredRun) -> Recording | None:
    found = store.recording(run.id)
    if found is not None:
        try:
            check_recording(found)
        except ValueError as error:
            raise store.bad_run(run.key, error) from None
    return found


def test_score(run: StoredRun, metric: str) -> float:
    """A run's score on the test fold; NaN where it is undefined."""
    return number((run.result or {}).get("test", {}).get(metric))


def mean_score(runs: Iterable[StoredRun], metric: str) -> float:
    """The mean test score, seeds averaged within folds; without undefined ones, NaN of none."""
    scores = [(run.fold, test_score(run, metric)) for run in runs]
    return over_folds((fold, score) for fold, score in scores if not np.isnan(score))


def paired(metric: str, runs: Iterable[StoredRun], base: Iterable[StoredRun]) -> list[Pair]:
    """Scores minus those of ``base`` on the same dataset, by fold and seed, where both have one."""
    sign = 1.0 if METRICS[metric].higher_is_better else -1.0
    known = {(run.fold, run.seed): test_score(run, metric) for run in base}
    found = [
        Pair(
            run.fold,
            run.seed,
            sign * (test_score(run, metric) - known[run.fold, run.seed]),
            test_to_train(run),
        )
        for run in runs
        if (run.fold, run.seed) in known
    ]
    return [pair for pair in found if not np.isnan(pair.difference)]


def test_to_train(run: StoredRun) -> float:
    """Rows that a run tested over rows that it trained on."""
    rows = (run.result or {})["dataset"]
    return float(rows["test"] / rows["train"])


def rows_of(run: StoredRun) -> list[str]:
    """The checksum of the rows that a run had, in a list; empty where it was not stored."""
    digest = (run.result or {})["dataset"].get("digest")
    return [str(digest)] if digest else []


def curve(run: StoredRun, *keys: str) -> Array:
    """One value per epoch of a run's history; NaN where there is none."""
    values = []
    for epoch in (run.result or {}).get("history") or ():
        value: Any = epoch
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        values.append(number(value))
    return np.array(values, dtype=float)


def number(value: Any) -> float:
    """A float of what JSON holds; NaN for null."""
    return float("nan") if value is None else float(value)


def counted(count: int, noun: str) -> str:
    """One fold is "1 fold", five are "5 folds"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _ranging(counts: list[int], noun: str) -> str:
    """Unequal counts are "2 to 5 folds"."""
    most = counted(max(counts), noun)
    return most if min(counts) == max(counts) else f"{min(counts)} to {most}"


def title(metric: str) -> str:
    """A metric's name as printed, and which way is better."""
    one = METRICS[metric]
    return f"{one.title} ({'higher' if one.higher_is_better else 'lower'} is better)"


def _compare(runs: list[StoredRun]) -> list[Comparison]:
    """One comparison per model."""
    names = dataset_names(runs)
    found: dict[str, dict[tuple[str, str], dict[tuple[int, int], StoredRun]]] = {}
    for run in runs:
        cell = found.setdefault(run.model, {}).setdefault((names[run.key], run.method), {})
        # The same work with and without a recording gives the same scores: it counts once.
        cell.setdefault((run.seed, run.fold), run)
    return [
        Comparison(
            study=runs[0].study,
            model=model,
            cells={
                where: tuple(cell[key] for key in sorted(cell))
                for where, cell in sorted(cells.items())
            },
        )
        for model, cells in sorted(found.items())
    ]


def _sweeps(runs: list[StoredRun]) -> list[Sweep]:
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
        if len(sources[run.selector]) > 1:  # the file of a user's own was edited in between
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


def pairs(runs: tuple[StoredRun, ...]) -> frozenset[tuple[int, int]]:
    """The seeds and folds of runs."""
    return frozenset((run.seed, run.fold) for run in runs)


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


def _place(run: StoredRun) -> tuple[Any, ...]:
    # Where one work was done twice, that of which more is known.
    less = not run.config.get("record"), not run.config.get("epoch_loss")
    where = (run.study, run.model, run.dataset, run.method, run.seed, run.fold)
    return (*where, *less, run.key)
