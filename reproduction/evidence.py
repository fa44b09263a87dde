"""What our runs say to the paper's claims of the comparison: ranks, cost, convergence.

"Clear" is a 95 % interval, paired by fold and seed, that does not hold zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from judging import (
    COMPARED,
    FIRST,
    HUNDREDTH,
    LEVEL,
    PAPER_METHODS,
    RANKED,
    UNTESTABLE,
    Finding,
    difference,
    in_part,
    main_study,
    most,
    side_study,
    verdict,
)

from d2ace import evaluation
from d2ace.evaluation import METRICS
from d2ace.report import published
from d2ace.report.collect import Laboratory
from d2ace.report.judgement import judge
from d2ace.report.method_comparison import MethodComparison, Scores
from d2ace.report.method_names import BASELINE, CANDIDATE
from d2ace.report.run_values import Array, curve
from d2ace.report.tables import convergence as convergence_tables
from d2ace.report.tables import cost as cost_tables
from d2ace.report.tables.table import ReportTable

BY_HARDNESS = ("DIHCL", "Hard-Imb")
BY_UNCERTAINTY = ("Active", "Recent", "ML-Unc")
MANY_LABELS = ("cal500", "enron")
BIBTEX = "bibtex"
"""The study of step 6, on the dataset where the paper shows convergence, overfitting and time."""
AS_CHEAP = 1.05
EARLY = slice(10, 30)
"""Epochs 11 to 30, the first in which methods select."""


# The comparison ------------------------------------------------------------------------------


def best_rank(laboratory: Laboratory) -> Finding:
    """The place of D2ACE by average rank, ours and the paper's on the same datasets."""
    holds, told = [], []
    for one in _compared(laboratory):
        places = []
        for metric in RANKED:
            theirs = _published(one, metric)
            ours = {dataset: row for dataset, row in one.block(metric).items() if dataset in theirs}
            own, printed = _place(ours, metric), _place(theirs, metric)
            if printed == 1:
                holds.append(own == 1)
            places.append(f"{own} and {printed} ({METRICS[metric].title})")
        told.append(f"{one.model}: {', '.join(places)}")
    return in_part(holds), f"our place of {CANDIDATE} and the paper's. {'. '.join(told)}"


def _published(one: MethodComparison, metric: str) -> Scores:
    """The paper's scores on those of our datasets that it has."""
    printed = published.load(None)
    table = {
        dataset: {
            method: score
            for method in PAPER_METHODS
            if (score := printed.score(metric, one.model, dataset, method)) is not None
        }
        for dataset in one.datasets
    }
    return {dataset: row for dataset, row in table.items() if row}


def _place(table: Scores, metric: str) -> int:
    """Of D2ACE by average rank."""
    ranks = evaluation.average_ranks(table, METRICS[metric].higher_is_better)
    return 1 + sum(rank < ranks[CANDIDATE] for rank in ranks.values())


def significant(laboratory: Laboratory) -> Finding:
    """How often D2ACE is better by the paper's test, which is not corrected."""
    judged = [judge(main_study(laboratory, FIRST), metric) for metric in RANKED]
    p_values = [one.p_value for verdicts in judged for one in verdicts.tests.values()]
    corrected = min(p for verdicts in judged for p in verdicts.holm.values())
    better = sum(p < LEVEL for p in p_values)
    told = (
        f"{better} of {len(p_values)}, smallest p {min(p_values):.4f}; corrected by Holm "
        f"{corrected:.4f}, where not even a win on all six datasets would be significant"
    )
    return verdict(better >= 0.9 * len(p_values)), told


def images(laboratory: Laboratory) -> Finding:
    """VOC2007 and MS-COCO are out of reach."""
    return (
        UNTESTABLE,
        "neither is here, nor a pretrained ResNet-101; [images](../docs/how-to/images.md) has more",
    )


# Cost ----------------------------------------------------------------------------------------


def random_is_fastest(laboratory: Laboratory) -> Finding:
    """Selection takes the smallest share of time with Random."""
    shares = [_shares(one, dataset) for one, dataset in _tables(laboratory)]
    first = sum(share[BASELINE] == min(share.values()) for share in shares)
    told = f"smallest share with {BASELINE} in {first} of {len(shares)} tables"
    return verdict(first == len(shares)), told


def balance_is_second(laboratory: Laboratory) -> Finding:
    """Only Random takes less than Balance."""
    shares = [_shares(one, dataset) for one, dataset in _tables(laboratory)]
    holds = [sorted(share, key=lambda method: share[method])[1] == "Balance" for share in shares]
    return in_part(holds), f"second in {sum(holds)} of {len(holds)} tables"


def as_cheap_as_dihcl(laboratory: Laboratory) -> Finding:
    """A run with D2ACE takes little longer than with the costlier of DIHCL and Active."""
    ratios, alone = {}, {"DIHCL": [], "Active": []}
    for one, dataset in _tables(laboratory):
        share = _shares(one, dataset)
        rival = max(share["DIHCL"], share["Active"])
        ratios[f"{one.model} on {dataset}"] = (1 + share[CANDIDATE]) / (1 + rival)
        for method, several in alone.items():
            several.append(share[CANDIDATE] / share[method])
    worst = max(ratios, key=lambda place: ratios[place])
    selection = ", ".join(
        f"{min(several):.1f} to {max(several):.1f} times that of {method}"
        for method, several in alone.items()
    )
    told = (
        f"between {min(ratios.values()):.3f} and {ratios[worst]:.3f} times as long ({worst}); "
        f"selection alone costs {selection}"
    )
    return verdict(ratios[worst] <= AS_CHEAP), told


def cheaper_than_ml_unc(laboratory: Laboratory) -> Finding:
    """Where labels are many, selection takes less with D2ACE than with ML-Unc."""
    found, told = _cheaper(main_study(laboratory, FIRST), MANY_LABELS)
    shares = [_shares(one, dataset) for one, dataset in _tables(laboratory)]
    cheaper = sum(share[CANDIDATE] < share["ML-Unc"] for share in shares)
    return found, f"{told}; cheaper in {cheaper} of all {len(shares)} tables"


def cheaper_on_bibtex(laboratory: Laboratory) -> Finding:
    """The same on bibtex."""
    return _cheaper(side_study(laboratory, BIBTEX), [BIBTEX])


def _cheaper(one: MethodComparison, datasets: Iterable[str]) -> Finding:
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
    return _learns_fastest(_as_in_the_paper(laboratory))


def hardness_learns_fastest_on_bibtex(laboratory: Laboratory) -> Finding:
    """The same on bibtex."""
    return _learns_fastest(side_study(laboratory, BIBTEX))


def _learns_fastest(one: MethodComparison) -> Finding:
    """By the loss of all training rows."""
    return _both_fastest({dataset: epochs_to_last_loss(one, dataset) for dataset in one.datasets})


def epochs_to_last_loss(one: MethodComparison, dataset: str) -> dict[str, float]:
    """Method -> median epochs until the loss of all training rows is what Random ends with."""
    goals = {
        (run.fold, run.seed): curve(run, "epoch_loss")[-1] for run in one.runs(dataset, BASELINE)
    }
    return {
        method: float(
            np.median(
                [_epoch(curve(run, "epoch_loss") <= goals[run.fold, run.seed]) for run in runs]
            )
        )
        for method in PAPER_METHODS
        if (runs := one.runs(dataset, method))
    }


def hardness_is_fastest(laboratory: Laboratory) -> Finding:
    """DIHCL and Hard-Imb reach Random's best validation score before all others."""
    return fastest_by_score(main_study(laboratory, FIRST))


def fastest_by_score(one: MethodComparison) -> Finding:
    """By the validation score."""
    table = convergence_tables.targets("targets", one)
    found = {
        dataset: {
            method: math.inf if epoch is None else epoch
            for method, epoch in column(table, dataset, "epochs").items()
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
    return most(holds), f"median epochs of {words}, and the fastest: {'; '.join(told)}"


def faster_than_uncertainty(laboratory: Laboratory) -> Finding:
    """D2ACE has a lower loss of all training rows than methods by uncertainty, early and late."""
    return _lower_loss(_as_in_the_paper(laboratory))


def faster_than_uncertainty_on_bibtex(laboratory: Laboratory) -> Finding:
    """The same on bibtex."""
    return _lower_loss(side_study(laboratory, BIBTEX))


def _lower_loss(one: MethodComparison) -> Finding:
    """Over the first selective epochs and at the last one, each on most datasets."""
    early, late, told = [], [], []
    for dataset in one.datasets:
        curves = {
            method: np.mean([curve(run, "epoch_loss") for run in runs], axis=0)
            for method in (CANDIDATE, *BY_UNCERTAINTY, BASELINE)
            if (runs := one.runs(dataset, method))
        }
        begin = {method: float(loss[EARLY].mean()) for method, loss in curves.items()}
        end = {method: float(loss[-1]) for method, loss in curves.items()}
        for holds, losses in ((early, begin), (late, end)):
            rivals = [losses[method] for method in losses if method in BY_UNCERTAINTY]
            holds.append(losses[CANDIDATE] < min(rivals))
        pairs = ", ".join(
            f"{method} {begin[method]:.4f} and {end[method]:.4f}" for method in curves
        )
        told.append(f"{dataset}: {pairs}")
    both = [2 * sum(holds) > len(holds) for holds in (early, late)]
    return in_part(both), f"mean loss of epochs 11 to 30 and loss at the end. {'; '.join(told)}"


def hardness_overfits(laboratory: Laboratory) -> Finding:
    """DIHCL and Hard-Imb fall further below their best than Random does."""
    return overfit(main_study(laboratory, FIRST), side_study(laboratory, "longer"))


def hardness_overfits_on_bibtex(laboratory: Laboratory) -> Finding:
    """The same on bibtex."""
    return overfit(side_study(laboratory, BIBTEX))


def overfit(*comparisons: MethodComparison) -> Finding:
    """Whether both fall further on most datasets."""
    holds, told = [], []
    for one in comparisons:
        table = convergence_tables.peaks("peaks", one)
        for dataset in one.datasets:
            lost = column(table, dataset, "lost_after")
            if not lost.keys() >= {BASELINE, *BY_HARDNESS}:
                continue
            more = [lost[method] - lost[BASELINE] for method in BY_HARDNESS]
            holds.append(min(more) >= HUNDREDTH)
            epochs = " (300 epochs)" if one.study == "longer" else ""
            told.append(f"{dataset}{epochs} {' and '.join(difference(value) for value in more)}")
    words = " and ".join(BY_HARDNESS)
    return most(holds), f"{words} lose more than {BASELINE} by: {'; '.join(told)}"


# Looking at the runs -------------------------------------------------------------------------


def _as_in_the_paper(laboratory: Laboratory) -> MethodComparison:
    """Step 2, whose runs tell the loss of all training rows."""
    return next(each for each in laboratory.comparisons if each.heading == "CLIF")


def _compared(laboratory: Laboratory) -> list[MethodComparison]:
    return [main_study(laboratory, model) for model in COMPARED]


def _tables(laboratory: Laboratory) -> list[tuple[MethodComparison, str]]:
    """Every model and dataset of steps 1 and 3."""
    return [(one, dataset) for one in _compared(laboratory) for dataset in one.datasets]


def _shares(one: MethodComparison, dataset: str) -> dict[str, float]:
    """What selection takes beside training, by method."""
    found = {
        method: cost_tables.selection_share(one.runs(dataset, method)) for method in PAPER_METHODS
    }
    return {method: share for method, share in found.items() if share is not None}


def column(table: ReportTable | None, dataset: str, column: str) -> dict[str, float | None]:
    """A column of a table's data on one dataset, for the paper's eight methods."""
    return {
        row["method"]: row[column]
        for row in (table.data or () if table is not None else ())
        if row["dataset"] == dataset and row["method"] in PAPER_METHODS
    }


def _epoch(reached: Array) -> float:
    """The first epoch, from 1, where it is true."""
    return float(np.argmax(reached) + 1) if reached.any() else math.inf
