"""What our runs say to each of the paper's claims: whether its rule holds, and the numbers.

"Clear" is a 95 % interval, paired by fold and seed, that does not hold zero.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from d2ace import evaluation
from d2ace.benchmark import convergence_tables, cost_tables
from d2ace.benchmark.frames import (
    BASELINE,
    CANDIDATE,
    SHOWN,
    Array,
    Comparison,
    Laboratory,
    Sweep,
    curve,
    paired,
    test_score,
)
from d2ace.benchmark.intervals import Interval, interval, plus
from d2ace.benchmark.store import StoredRun
from d2ace.benchmark.style import METHODS
from d2ace.benchmark.tables import Table, signed
from d2ace.benchmark.verdicts import judge
from d2ace.evaluation import METRICS

COMPARED = {
    "CLIF (reference)": ("emotions", "birds", "scene", "yeast", "cal500", "enron"),
    "DELA": ("emotions", "birds", "scene"),
    "PACA": ("emotions", "birds", "scene"),
}
"""Models and datasets of steps 1 and 3."""
FIRST = "CLIF (reference)"
"""The model of step 1."""
RANKED = ("macro_auc", "macro_f1", "ranking_loss")
"""The paper's metrics for tabular data."""
SCORE = SHOWN[0]
"""Macro-AUC, which the studies of D2ACE's parts are judged by."""
LEVEL = 0.05
BY_HARDNESS = ("DIHCL", "Hard-Imb")
MANY_LABELS = ("cal500", "enron")
BIBTEX = "bibtex"
"""The study of step 6, on the dataset where the paper shows convergence, overfitting and time."""
HUNDREDTH = 0.01
"""A difference in a score that matters: of one that overfits, or that is not flat."""
AS_CHEAP = 1.05

REPRODUCED, IN_PART, NOT, UNDECIDED = ("reproduced", "in part", "not reproduced", "undecided")
Finding = tuple[str, str]
"""A verdict and its evidence."""


# The comparison ------------------------------------------------------------------------------


def best_rank(laboratory: Laboratory) -> Finding:
    """The place of D2ACE by average rank among the eight, model by model."""
    places: list[int] = []
    told = []
    for one in _compared(laboratory):
        here = []
        for metric in RANKED:
            ranks = evaluation.average_ranks(one.block(metric), METRICS[metric].higher_is_better)
            place = 1 + sum(rank < ranks[CANDIDATE] for rank in ranks.values())
            here.append(f"{place} ({METRICS[metric].title})")
            places.append(place)
        told.append(f"{one.model}: {', '.join(here)}")
    first = [place == 1 for place in places]
    return in_part(first), f"place of {CANDIDATE} among the eight. {'. '.join(told)}"


def significant(laboratory: Laboratory) -> Finding:
    """How often D2ACE is better by the paper's test, which is not corrected."""
    judged = [judge(_main(laboratory, FIRST), metric) for metric in RANKED]
    p_values = [one.p_value for verdicts in judged for one in verdicts.tests.values()]
    corrected = min(p for verdicts in judged for p in verdicts.holm.values())
    better = sum(p < LEVEL for p in p_values)
    told = (
        f"{better} of {len(p_values)}, smallest p {min(p_values):.4f}; corrected by Holm "
        f"{corrected:.4f}, where not even a win on all six datasets would be significant"
    )
    return _verdict(better >= 0.9 * len(p_values)), told


# Cost ----------------------------------------------------------------------------------------


def random_is_fastest(laboratory: Laboratory) -> Finding:
    """Selection takes the smallest share of time with Random."""
    shares = [_shares(one, dataset) for one, dataset in _tables(laboratory)]
    first = sum(share[BASELINE] == min(share.values()) for share in shares)
    told = f"smallest share with {BASELINE} in {first} of {len(shares)} tables"
    return _verdict(first == len(shares)), told


def as_cheap_as_dihcl(laboratory: Laboratory) -> Finding:
    """A run with D2ACE takes little longer than with the costlier of DIHCL and Active."""
    ratios = {}
    for one, dataset in _tables(laboratory):
        share = _shares(one, dataset)
        rival = max(share["DIHCL"], share["Active"])
        ratios[f"{one.model} on {dataset}"] = (1 + share[CANDIDATE]) / (1 + rival)
    worst = max(ratios, key=lambda place: ratios[place])
    told = f"between {min(ratios.values()):.3f} and {ratios[worst]:.3f} times as long ({worst})"
    return _verdict(ratios[worst] <= AS_CHEAP), told


def cheaper_than_ml_unc(laboratory: Laboratory) -> Finding:
    """Where labels are many, selection takes less with D2ACE than with ML-Unc."""
    return _cheaper(_main(laboratory, FIRST), MANY_LABELS)


def cheaper_on_bibtex(laboratory: Laboratory) -> Finding:
    """The same on bibtex."""
    return _cheaper(_study(laboratory, BIBTEX), [BIBTEX])


def _cheaper(one: Comparison, datasets: Iterable[str]) -> Finding:
    """Whether selection takes less with D2ACE than with ML-Unc."""
    holds, told = [], []
    for dataset in datasets:
        share = _shares(one, dataset)
        labels = (one.runs(dataset, BASELINE)[0].result or {})["dataset"]["labels"]
        holds.append(share[CANDIDATE] < share["ML-Unc"])
        told.append(
            f"{dataset} ({labels} labels): {share[CANDIDATE]:.2%} of training against "
            f"{share['ML-Unc']:.2%}"
        )
    return in_part(holds), "; ".join(told)


# Convergence ---------------------------------------------------------------------------------


def hardness_learns_fastest(laboratory: Laboratory) -> Finding:
    """DIHCL and Hard-Imb reach the training loss that Random ends with before all others."""
    return _learns_fastest(next(each for each in laboratory.comparisons if each.heading == "CLIF"))


def hardness_learns_fastest_on_bibtex(laboratory: Laboratory) -> Finding:
    """The same on bibtex."""
    return _learns_fastest(_study(laboratory, BIBTEX))


def _learns_fastest(one: Comparison) -> Finding:
    """By the loss of all training rows."""
    found = {}
    for dataset in one.datasets:
        goals = {
            (run.fold, run.seed): curve(run, "epoch_loss")[-1]
            for run in one.runs(dataset, BASELINE)
        }
        found[dataset] = {
            method: float(
                np.median(
                    [
                        _epoch(curve(run, "epoch_loss") <= goals[run.fold, run.seed])
                        for run in one.runs(dataset, method)
                    ]
                )
            )
            for method in METHODS
            if one.runs(dataset, method)
        }
    return _both_fastest(found)


def hardness_is_fastest(laboratory: Laboratory) -> Finding:
    """DIHCL and Hard-Imb reach Random's best validation score before all others."""
    one = _main(laboratory, FIRST)
    table = convergence_tables.targets("targets", one)
    found = {
        dataset: {
            method: math.inf if epoch is None else epoch
            for method, epoch in _column(table, dataset, "epochs").items()
        }
        for dataset in one.datasets
    }
    return _both_fastest(found)


def _both_fastest(found: dict[str, dict[str, float]]) -> Finding:
    """Dataset -> method -> median epochs; whether none is faster than DIHCL and Hard-Imb."""
    holds, told = [], []
    for dataset, epochs in found.items():
        ours = [epochs[method] for method in BY_HARDNESS]
        fastest = min(epochs, key=lambda method: epochs[method])
        others = min(epochs[method] for method in epochs if method not in BY_HARDNESS)
        holds.append(max(ours) < others)
        first, second = (f"{epoch:g}".replace("inf", "never") for epoch in ours)
        told.append(f"{dataset} {first} and {second} ({fastest} {epochs[fastest]:g})")
    words = " and ".join(BY_HARDNESS)
    return _most(holds), f"median epochs of {words}, and the fastest: {'; '.join(told)}"


def hardness_overfits(laboratory: Laboratory) -> Finding:
    """DIHCL and Hard-Imb fall further below their best than Random does."""
    return _overfits(_main(laboratory, FIRST), _study(laboratory, "longer"))


def hardness_overfits_on_bibtex(laboratory: Laboratory) -> Finding:
    """The same on bibtex."""
    return _overfits(_study(laboratory, BIBTEX))


def _overfits(*comparisons: Comparison) -> Finding:
    """Whether both fall further on most datasets."""
    holds, told = [], []
    for one in comparisons:
        table = convergence_tables.peaks("peaks", one)
        for dataset in one.datasets:
            lost = _column(table, dataset, "lost_after")
            if not lost.keys() >= {BASELINE, *BY_HARDNESS}:
                continue
            more = [lost[method] - lost[BASELINE] for method in BY_HARDNESS]
            holds.append(min(more) >= HUNDREDTH)
            epochs = " (300 epochs)" if one.study == "longer" else ""
            told.append(f"{dataset}{epochs} {' and '.join(_plus(value) for value in more)}")
    words = " and ".join(BY_HARDNESS)
    return _most(holds), f"{words} lose more than {BASELINE} by: {'; '.join(told)}"


# The parts of D2ACE --------------------------------------------------------------------------


def correlation_matters_most(laboratory: Laboratory) -> Finding:
    """Variant H loses most, clearly."""
    (study,) = laboratory.ablations
    holds, told = [], []
    for dataset in study.datasets:
        gains = {
            variant: interval(study.differences(SCORE, variant, baseline="A", datasets=[dataset]))
            for variant in study.methods
            if variant != "A"
        }
        worst = min(gains, key=lambda variant: gains[variant].mean)
        holds.append(worst == "H" and not gains["H"].noise)
        other = "" if worst == "H" else f", most {worst} {_words(gains[worst])}"
        told.append(f"{dataset}: H {_words(gains['H'])}{other}")
    return in_part(holds), "; ".join(told)


def k_is_best_at_six_or_seven(laboratory: Laboratory) -> Finding:
    """The best K is 6 or 7, clearly better than the worst."""
    holds, told = [], []
    for sweep in _sweeps(laboratory, "neighbors"):
        means = {value[0]: _mean(runs) for value, runs in sweep.points.items()}
        best, worst = (choose(means, key=lambda value: means[value]) for choose in (max, min))
        gap = _difference(sweep, best, worst)
        holds.append(best in (6, 7) and not gap.noise)
        told.append(f"{sweep.dataset}: best K = {best}, {_words(gap)} against K = {worst}")
    return in_part(holds), "; ".join(told)


def lambda2_is_flat(laboratory: Laboratory) -> Finding:
    """Differences between λ2 = 0.7, 0.8 and 0.9 are surely below a hundredth."""
    flat, steep, told = [], [], []
    for sweep in _sweeps(laboratory, "flip_smoothing"):
        gaps = [
            _difference(sweep, a, b, metric)
            for metric in ("macro_auc", "macro_f1")
            for a, b in itertools.combinations((0.7, 0.8, 0.9), 2)
        ]
        widest = max(gaps, key=lambda gap: max(-gap.low, gap.high))
        flat.append(max(-widest.low, widest.high) < HUNDREDTH)
        steep += [gap for gap in gaps if gap.low > HUNDREDTH or gap.high < -HUNDREDTH]
        told.append(f"{sweep.dataset}: least certain {_words(widest)}")
    undecided = not any(flat) and not steep
    return UNDECIDED if undecided else in_part(flat), "; ".join(told)


def high_to_low_is_best(laboratory: Laboratory) -> Finding:
    """The schedules that the paper prefers are better than the others, on average and clearly."""
    holds, told = [], []
    for sweep in _sweeps(laboratory, "mix"):
        preferred = {
            value: 0.7 <= value[0][0] <= 0.9 and 0.1 <= value[0][1] <= 0.5 for value in sweep.points
        }
        inside, outside = (
            _by_fold([runs for value, runs in sweep.points.items() if preferred[value] == wanted])
            for wanted in (True, False)
        )
        gap = interval([paired(SCORE, inside, outside)])
        best = max(sweep.points, key=lambda value: _mean(sweep.points[value]))
        holds.append(gap.mean > 0 and not gap.noise)
        start, end = best[0]
        told.append(f"{sweep.dataset}: {_words(gap)}; best of all is {start:g} → {end:g}")
    return in_part(holds), "; ".join(told)


# Looking at the runs -------------------------------------------------------------------------


def _main(laboratory: Laboratory, model: str) -> Comparison:
    """The eight methods on the datasets of steps 1 and 3; step 6 and variants are left out."""
    one = next(
        each for each in laboratory.comparisons if (each.study, each.model) == ("main", model)
    )
    cells = {
        (dataset, method): runs
        for (dataset, method), runs in one.cells.items()
        if dataset in COMPARED[model] and method in METHODS
    }
    return Comparison(one.study, one.model, cells)


def _study(laboratory: Laboratory, name: str) -> Comparison:
    return next(one for one in laboratory.comparisons if one.study == name)


def _compared(laboratory: Laboratory) -> list[Comparison]:
    return [_main(laboratory, model) for model in COMPARED]


def _tables(laboratory: Laboratory) -> list[tuple[Comparison, str]]:
    """Every model and dataset of steps 1 and 3."""
    return [(one, dataset) for one in _compared(laboratory) for dataset in one.datasets]


def _shares(one: Comparison, dataset: str) -> dict[str, float]:
    """What selection takes beside training, by method."""
    found = {method: cost_tables.selection_share(one.runs(dataset, method)) for method in METHODS}
    return {method: share for method, share in found.items() if share is not None}


def _column(table: Table | None, dataset: str, column: str) -> dict[str, float | None]:
    """A column of a table's data on one dataset, for the paper's eight methods."""
    return {
        row["method"]: row[column]
        for row in (table.data or () if table is not None else ())
        if row["dataset"] == dataset and row["method"] in METHODS
    }


def _epoch(reached: Array) -> float:
    """The first epoch, from 1, where it is true."""
    return float(np.argmax(reached) + 1) if reached.any() else math.inf


def _sweeps(laboratory: Laboratory, option: str) -> list[Sweep]:
    return [sweep for sweep in laboratory.sweeps if sweep.options == (option,)]


def _mean(runs: Iterable[StoredRun]) -> float:
    return float(np.mean([test_score(run, SCORE) for run in runs]))


def _difference(sweep: Sweep, value: Any, other: Any, metric: str = SCORE) -> Interval:
    return interval([paired(metric, sweep.points[value,], sweep.points[other,])])


def _by_fold(cells: list[tuple[StoredRun, ...]]) -> list[StoredRun]:
    """A run for every fold and seed whose score is the mean over the cells."""
    alike: dict[tuple[int, int], list[StoredRun]] = {}
    for run in itertools.chain(*cells):
        alike.setdefault((run.fold, run.seed), []).append(run)
    return [
        replace(runs[0], result={**(runs[0].result or {}), "test": {SCORE: _mean(runs)}})
        for runs in alike.values()
    ]


# Words ---------------------------------------------------------------------------------------


def _words(gap: Interval) -> str:
    """As in the text of the page: mean (low to high)."""
    return f"{_plus(gap.mean)} ({_plus(gap.low)} to {_plus(gap.high)})"


def _plus(value: float) -> str:
    return signed(plus(value))


def _verdict(holds: bool) -> str:
    return REPRODUCED if holds else NOT


def _most(holds: list[bool]) -> str:
    return _verdict(2 * sum(holds) > len(holds))


def in_part(holds: list[bool]) -> str:
    """All, some or none of them hold."""
    return IN_PART if any(holds) and not all(holds) else _verdict(all(holds))
