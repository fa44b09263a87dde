"""Was Random handicapped? What each difference in the authors' notebooks costs it (rule 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from beside import head, markdown_row
from judging import FIRST, RANKED, SCORE

from d2ace.benchmark.store import StoredRun
from d2ace.evaluation import METRICS
from d2ace.report.collect import Laboratory
from d2ace.report.intervals import Pair, PairedInterval, interval
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.method_names import BASELINE
from d2ace.report.run_values import paired
from d2ace.report.tables.table import signed

DATASETS = ("birds", "scene", "yeast", "cal500", "enron")
STUDIES = ("no weight decay", "stored order", "no warm-up", "all handicaps")
GAIN = 0.0053
"""D2ACE's mean gain over Random in Macro-AUC on these five datasets, in the paper."""
NOISY = ("birds", "yeast")
"""Datasets with a second seed of Random."""

Pairs = dict[str, list[Pair]]
"""Dataset -> the pairs of a fold."""


def lines(first: Laboratory, second: Laboratory) -> list[str]:
    """The costs over the datasets with their verdicts; then Macro-AUC dataset by dataset."""
    over = ["Random, handicapped", "pairs", *(METRICS[name].title for name in RANKED), "verdict"]
    rows = []
    for study in STUDIES:
        gaps = [over_datasets(costs(first, second, study, metric)) for metric in RANKED]
        words = [signed(str(gap)) for gap in gaps]
        rows.append([study, str(gaps[0].count), *words, f"**{verdict(gaps[0])}**"])
    for name, other in NOISE.items():
        found = [other(first, second, metric) for metric in RANKED]
        gaps = [over_datasets(pairs) for pairs in found]
        where = f"not at all, {name} ({', '.join(found[0])})"
        rows.append([where, str(gaps[0].count), *(signed(str(gap)) for gap in gaps), "noise"])
    each = []
    for study in STUDIES:
        found = costs(first, second, study, SCORE)
        each.append([study, *(_alone(found.get(dataset, [])) for dataset in DATASETS)])
    return [
        *head(over, words=1),
        *map(markdown_row, rows),
        "",
        *head([f"cost in {METRICS[SCORE].title}", *DATASETS], words=1),
        *map(markdown_row, each),
    ]


def costs(first: Laboratory, second: Laboratory, study: str, metric: str) -> Pairs:
    """Random minus the handicapped Random, by dataset.

    Random is that of the same part: the library's rounding has changed between them. Where the
    second part does not have it on all of the folds, it is that of the first.
    """
    found: Pairs = {}
    for dataset in DATASETS:
        for part in (first, second):
            handicapped = _runs(part, study, dataset, f"{BASELINE} ({study})")
            plain = _random(part, dataset)
            if not _folds(plain) >= _folds(handicapped):
                plain = _random(first, dataset)
            if handicapped and dataset not in found:
                found[dataset] = _seed_zero(paired(metric, plain, handicapped))
    return found


def over_datasets(pairs: Pairs) -> PairedInterval:
    return interval(pairs.values())


def verdict(gap: PairedInterval) -> str:
    """By the rule, of the mean cost in Macro-AUC."""
    if gap.low is not None and gap.high is not None:
        if gap.low > 0:
            return "explains the gain" if gap.high >= GAIN else "explains a part"
        if gap.high <= GAIN / 2:
            return "does not explain it"
    return "undecided"


# Noise -----------------------------------------------------------------------------------------


def _second_seed(first: Laboratory, _: Laboratory, metric: str) -> Pairs:
    """Two seeds of Random, in the first part."""
    found: Pairs = {}
    for dataset in NOISY:
        runs = _random(first, dataset)
        zero, one = ([run for run in runs if run.seed == seed] for seed in (0, 1))
        found[dataset] = paired(metric, zero, [replace(run, seed=0) for run in one])
    return found


def _run_again(first: Laboratory, second: Laboratory, metric: str) -> Pairs:
    """The same Random in both parts: only rounding differs."""
    found = {
        dataset: _seed_zero(paired(metric, _random(first, dataset), _random(second, dataset)))
        for dataset in DATASETS
    }
    return {dataset: pairs for dataset, pairs in found.items() if pairs}


NOISE: dict[str, Callable[[Laboratory, Laboratory, str], Pairs]] = {
    "another seed": _second_seed,
    "other rounding": _run_again,
}


# Looking at the runs ---------------------------------------------------------------------------


def _seed_zero(pairs: list[Pair]) -> list[Pair]:
    return [pair for pair in pairs if pair.seed == 0]


def _folds(runs: tuple[StoredRun, ...]) -> set[int]:
    return {run.fold for run in runs}


def _runs(part: Laboratory, study: str, dataset: str, method: str) -> tuple[StoredRun, ...]:
    for one in part.comparisons:
        if (one.study, one.model) == (study, FIRST):
            return _named(one, dataset, method)
    return ()


def _random(part: Laboratory, dataset: str) -> tuple[StoredRun, ...]:
    return _runs(part, "main", dataset, BASELINE)


def _named(one: MethodComparison, dataset: str, method: str) -> tuple[StoredRun, ...]:
    """The dataset's runs; its name has more words where files of it differ."""
    return tuple(
        run
        for name in one.datasets
        if name.partition(" [")[0] == dataset
        for run in one.runs(name, method)
    )


def _alone(pairs: list[Pair]) -> str:
    return signed(f"{np.mean([pair.difference for pair in pairs]):+.4f}") if pairs else "–"
