"""What the paper claims, judged by rules that were written down before the numbers were known.

Every claim has a rule, the steps whose runs it needs, and a function that looks at the runs:
whether the rule holds, and the numbers that say so. While a step is not complete its claims stay
open.
"Clear" is a 95 % interval, paired by fold and seed, that does not hold zero.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from d2ace import evaluation
from d2ace.benchmark import convergence_tables, cost_tables
from d2ace.benchmark.frames import (
    BASELINE,
    CANDIDATE,
    SHOWN,
    Comparison,
    Laboratory,
    Sweep,
    paired,
    test_score,
)
from d2ace.benchmark.style import METHODS
from d2ace.benchmark.tables import Table, signed
from d2ace.benchmark.verdicts import Interval, interval, judge
from d2ace.evaluation import METRICS

MODELS = ("CLIF (reference)", "DELA", "PACA")
"""Of steps 1 and 3."""
RANKED = ("macro_auc", "macro_f1", "ranking_loss")
"""The paper's metrics for tabular data."""
SCORE = SHOWN[0]
"""Macro-AUC, which the studies of D2ACE's parts are judged by."""
BY_HARDNESS = ("DIHCL", "Hard-Imb")
MANY_LABELS = ("cal500", "enron")
OVERFITS = 0.01
"""By how much more than Random a method that overfits falls after its best epoch."""
AS_CHEAP = 1.05

REPRODUCED, IN_PART, NOT, UNTESTABLE, OPEN = (
    "reproduced",
    "in part",
    "not reproduced",
    "not testable here",
    "open",
)
Finding = tuple[str, str]
"""A verdict and its evidence."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper."""

    words: str
    rule: str
    """Reproduced if this holds."""
    steps: tuple[str, ...]
    """Whose runs it needs."""
    look: Callable[[Laboratory], Finding]


def judgements(laboratory: Laboratory, complete: set[str]) -> Iterator[tuple[Claim, Finding]]:
    """Every claim with its verdict; a claim is open unless all of its steps are complete."""
    for claim in CLAIMS:
        missing = [step for step in claim.steps if step not in complete]
        if missing:
            yield claim, (OPEN, f"waits for {' and '.join(f'step {step}' for step in missing)}")
        else:
            yield claim, claim.look(laboratory)


# The comparison ------------------------------------------------------------------------------


def best_rank(laboratory: Laboratory) -> Finding:
    """The place of D2ACE by average rank among the eight, model by model."""
    places: list[int] = []
    told = []
    for one in _compared(laboratory):
        here = []
        for metric in RANKED:
            table = {
                dataset: {method: row[method] for method in METHODS}
                for dataset, row in one.block(metric).items()
            }
            ranks = evaluation.average_ranks(table, METRICS[metric].higher_is_better)
            place = 1 + sum(rank < ranks[CANDIDATE] for rank in ranks.values())
            here.append(f"{place} ({METRICS[metric].title})")
            places.append(place)
        told.append(f"{one.model}: {', '.join(here)}")
    first = [place == 1 for place in places]
    return _in_part(first), f"place of {CANDIDATE} among the eight. {'. '.join(told)}"


def significant(laboratory: Laboratory) -> Finding:
    """Whether D2ACE is better than every rival by the paper's test, corrected."""
    one = _main(laboratory, MODELS[0])
    judged = [judge(one, metric) for metric in RANKED]
    p_values = [p for verdicts in judged for p in verdicts.holm.values()]
    told = f"smallest corrected p of {len(p_values)} comparisons: {min(p_values):.4f}"
    if not any(verdicts.reachable for verdicts in judged):
        return UNTESTABLE, f"{told}; a win on every dataset would not be significant either"
    return _verdict(all(p < 0.05 for p in p_values)), told


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
    one = _main(laboratory, MODELS[0])
    shares = {dataset: _shares(one, dataset) for dataset in MANY_LABELS}
    told = [
        f"{dataset}: {share[CANDIDATE]:.2%} of training against {share['ML-Unc']:.2%}"
        for dataset, share in shares.items()
    ]
    holds = [share[CANDIDATE] < share["ML-Unc"] for share in shares.values()]
    return _verdict(all(holds)), "; ".join(told)


# Convergence ---------------------------------------------------------------------------------


def hardness_is_fastest(laboratory: Laboratory) -> Finding:
    """DIHCL and Hard-Imb reach Random's best score before all others."""
    one = _main(laboratory, MODELS[0])
    table = convergence_tables.targets("targets", one)
    holds, told = [], []
    for dataset in one.datasets:
        epochs = {
            method: math.inf if epoch is None else epoch
            for method, epoch in _column(table, dataset, "epochs").items()
        }
        ours = [epochs[method] for method in BY_HARDNESS]
        fastest = min(epochs, key=lambda method: epochs[method])
        others = min(epochs[method] for method in epochs if method not in BY_HARDNESS)
        holds.append(max(ours) < math.inf and max(ours) <= others)
        first, second = (f"{epoch:g}".replace("inf", "never") for epoch in ours)
        told.append(f"{dataset} {first} and {second} ({fastest} {epochs[fastest]:g})")
    words = " and ".join(BY_HARDNESS)
    return _most(holds), f"median epochs of {words}, and the fastest: {'; '.join(told)}"


def hardness_overfits(laboratory: Laboratory) -> Finding:
    """DIHCL and Hard-Imb fall further below their best than Random does."""
    holds, told = [], []
    for one in (_main(laboratory, MODELS[0]), _study(laboratory, "longer")):
        table = convergence_tables.peaks("peaks", one)
        for dataset in one.datasets:
            lost = _column(table, dataset, "lost_after")
            more = [lost[method] - lost[BASELINE] for method in BY_HARDNESS if method in lost]
            if more:
                holds.append(min(more) >= OVERFITS)
                longer = "" if one.study == "main" else f" ({one.study})"
                numbers = " and ".join(_plus(value) for value in more)
                told.append(f"{dataset}{longer} {numbers}")
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
    return _verdict(all(holds)), "; ".join(told)


def k_is_best_at_six_or_seven(laboratory: Laboratory) -> Finding:
    """The best K is 6 or 7, clearly better than the worst."""
    holds, told = [], []
    for sweep in _sweeps(laboratory, "neighbors"):
        means = _means(sweep)
        best, worst = (choose(means, key=lambda value: means[value]) for choose in (max, min))
        gap = _difference(sweep, best, worst)
        holds.append(best[0] in (6, 7) and not gap.noise)
        told.append(
            f"{sweep.dataset}: best K = {best[0]}, {_words(gap)} better than K = {worst[0]}"
        )
    return _verdict(all(holds)), "; ".join(told)


def lambda2_is_flat(laboratory: Laboratory) -> Finding:
    """No clear difference between λ2 = 0.7, 0.8 and 0.9."""
    holds, told = [], []
    for sweep in _sweeps(laboratory, "flip_smoothing"):
        gaps = [
            _difference(sweep, (a,), (b,)) for a, b in itertools.combinations((0.7, 0.8, 0.9), 2)
        ]
        widest = max(gaps, key=lambda gap: abs(gap.mean))
        holds.append(all(gap.noise for gap in gaps))
        told.append(f"{sweep.dataset}: largest difference {_words(widest)}")
    return _verdict(all(holds)), "; ".join(told)


def high_to_low_is_best(laboratory: Laboratory) -> Finding:
    """The best schedule falls, and is clearly better than the best that does not."""
    holds, told = [], []
    for sweep in _sweeps(laboratory, "mix"):
        means = _means(sweep)
        falling, others = (
            max((value for value in means if (value[0][0] > value[0][1]) == falls), key=means.get)
            for falls in (True, False)
        )
        gap = _difference(sweep, falling, others)
        holds.append(gap.mean > 0 and not gap.noise)
        told.append(
            f"{sweep.dataset}: {_mix(falling)} against {_mix(others)}, the best of the others: "
            f"{_words(gap)}"
        )
    return _verdict(all(holds)), "; ".join(told)


CLAIMS = (
    Claim(
        "D2ACE has the best average rank",
        "D2ACE is first of the eight in all nine tables: CLIF (`reference`) on six datasets, DELA "
        "and PACA on three, each in Macro-AUC, Macro-F1 and ranking loss; in part if in some",
        ("1", "3"),
        best_rank,
    ),
    Claim(
        "... significantly so",
        "step 1: all corrected p below 0.05. With six datasets even a win on each is not "
        "significant after Holm's correction for seven rivals",
        ("1",),
        significant,
    ),
    Claim(
        "Random is the fastest",
        "selection takes the smallest share of time with Random, in every table of steps 1 and 3",
        ("1", "3"),
        random_is_fastest,
    ),
    Claim(
        "D2ACE is about as cheap as DIHCL and Active",
        "a whole run takes at most 5 % longer than with the costlier of the two, in every table of "
        "steps 1 and 3",
        ("1", "3"),
        as_cheap_as_dihcl,
    ),
    Claim(
        "... and cheaper than ML-Unc",
        "selection takes a smaller share of time with D2ACE where labels are many: cal500 (174), "
        "enron (53)",
        ("1",),
        cheaper_than_ml_unc,
    ),
    Claim(
        "Methods by hardness converge fastest",
        "DIHCL and Hard-Imb have the smallest medians of epochs to Random's best score on most "
        "datasets of step 1",
        ("1",),
        hardness_is_fastest,
    ),
    Claim(
        "... but overfit",
        "on most datasets of steps 1 and “why”, both lose at least 0.01 more than Random between "
        "best and last epoch",
        ("1", "why"),
        hardness_overfits,
    ),
    Claim(
        "Correlation matters most",
        "of B to K, H loses most in Macro-AUC, and clearly, on birds and on cal500",
        ("5",),
        correlation_matters_most,
    ),
    Claim(
        "K is best around 6 to 7",
        "the best K is 6 or 7, clearly better than the worst, on birds and on cal500",
        ("5",),
        k_is_best_at_six_or_seven,
    ),
    Claim(
        "λ₂ is flat in 0.7 to 0.9",
        "no clear difference between 0.7, 0.8 and 0.9, on birds and on cal500",
        ("5",),
        lambda2_is_flat,
    ),
    Claim(
        "Mixing from high to low is best",
        "the best cell has p start > p end, clearly better than the best cell without, on birds "
        "and on cal500",
        ("5",),
        high_to_low_is_best,
    ),
)


# Looking at the runs -------------------------------------------------------------------------


def _main(laboratory: Laboratory, model: str) -> Comparison:
    return next(one for one in laboratory.comparisons if (one.study, one.model) == ("main", model))


def _study(laboratory: Laboratory, study: str) -> Comparison:
    return next(one for one in laboratory.comparisons if one.study == study)


def _compared(laboratory: Laboratory) -> list[Comparison]:
    return [_main(laboratory, model) for model in MODELS]


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


def _sweeps(laboratory: Laboratory, option: str) -> list[Sweep]:
    return [sweep for sweep in laboratory.sweeps if sweep.options == (option,)]


def _means(sweep: Sweep) -> dict[tuple, float]:
    """Value -> mean score over the folds that all values have."""
    return {
        value: float(np.mean([test_score(run, SCORE) for run in runs]))
        for value, runs in sweep.points.items()
    }


def _difference(sweep: Sweep, value: tuple, other: tuple) -> Interval:
    return interval(paired(SCORE, sweep.points[value], sweep.points[other]))


# Words ---------------------------------------------------------------------------------------


def _words(gap: Interval) -> str:
    """As in the text of the page: mean (low to high)."""
    return f"{_plus(gap.mean)} ({_plus(gap.low)} to {_plus(gap.high)})"


def _plus(value: float) -> str:
    return signed(f"{round(value, 4) + 0.0:+.4f}")  # never −0


def _mix(value: tuple) -> str:
    start, end = value[0]
    return f"{start:g} → {end:g}"


def _verdict(holds: bool) -> str:
    return REPRODUCED if holds else NOT


def _most(holds: list[bool]) -> str:
    return _verdict(2 * sum(holds) > len(holds))


def _in_part(holds: list[bool]) -> str:
    return IN_PART if any(holds) and not all(holds) else _verdict(all(holds))
