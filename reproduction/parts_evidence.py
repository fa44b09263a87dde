"""What the ablations and sweeps say to the paper's claims about the parts of D2ACE."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from judging import (
    HUNDREDTH,
    SCORE,
    UNDECIDED,
    Finding,
    better,
    decided,
    in_part,
    joined,
    words,
    worse,
)

from d2ace.benchmark import StoredRun
from d2ace.evaluation import METRICS
from d2ace.report.collect import Laboratory
from d2ace.report.intervals import PairedInterval, interval
from d2ace.report.run_values import paired, test_score
from d2ace.report.sweeps import Sweep

MIXTURES, OTHERS = "BCDEF", "GIJK"
"""Variants of the ablation: other mixtures of the two metrics, and what is left beside H."""


def mixtures_lose(laboratory: Laboratory) -> Finding:
    """One metric alone, or a fixed mixture, is worse than the full method."""
    return _lose(laboratory, MIXTURES)


def others_lose(laboratory: Laboratory) -> Finding:
    """So are other label weights, instance weights and schedules."""
    return _lose(laboratory, OTHERS)


def _lose(laboratory: Laboratory, variants: str) -> Finding:
    found, told = [], []
    for dataset, gaps in _ablation(laboratory, "A").items():
        here = {variant: gaps[variant] for variant in variants}
        clear = [f"{variant} {words(gap)}" for variant, gap in here.items() if not gap.noise]
        found.append(
            decided(
                holds=all(worse(gap) for gap in here.values()),
                against=any(better(gap) for gap in here.values()),
            )
        )
        told.append(f"{dataset}: {', '.join(clear) or 'none of them clear'}")
    return joined(found), f"clear differences to A. {'; '.join(told)}"


def correlation_matters_most(laboratory: Laboratory) -> Finding:
    """Variant H loses most, clearly."""
    against_h = _ablation(laboratory, "H")
    found, told = [], []
    for dataset, gaps in _ablation(laboratory, "A").items():
        worst = min(gaps, key=lambda variant: gaps[variant].mean)
        more = [
            variant for variant in gaps if variant != "H" and worse(against_h[dataset][variant])
        ]
        found.append(decided(holds=worst == "H" and worse(gaps["H"]), against=bool(more)))
        other = "" if worst == "H" else f", most {worst} {words(gaps[worst])}"
        told.append(f"{dataset}: H {words(gaps['H'])}{other}")
    return joined(found), "; ".join(told)


def k_is_best_at_six_or_seven(laboratory: Laboratory) -> Finding:
    """The best K is 6 or 7, clearly better than the worst; a flat curve decides nothing."""
    found, told = [], []
    for sweep in _sweeps(laboratory, "neighbors"):
        means = {value[0]: _mean(runs) for value, runs in sweep.points.items()}
        best, worst = (choose(means, key=lambda value: means[value]) for choose in (max, min))
        gap = _difference(sweep, best, worst)
        found.append(decided(holds=best in (6, 7) and better(gap), against=False))
        told.append(f"{sweep.dataset}: best K = {best}, {words(gap)} against K = {worst}")
    return joined(found), "; ".join(told)


def all_rows_are_too_many(laboratory: Laboratory) -> Finding:
    """With K = n scores drop."""
    found, told = [], []
    for sweep in _sweeps(laboratory, "neighbors"):
        gap = _difference(sweep, "n", 6)
        found.append(decided(holds=worse(gap), against=better(gap)))
        told.append(f"{sweep.dataset}: {words(gap)} against K = 6")
    return joined(found), "; ".join(told)


def lambda2_is_flat(laboratory: Laboratory) -> Finding:
    """Differences between λ2 = 0.7, 0.8 and 0.9 are surely below a hundredth."""
    flat, steep, told = [], [], []
    for sweep in _sweeps(laboratory, "flip_smoothing"):
        gaps = {
            f"{METRICS[metric].title}, {a:g} and {b:g}": _difference(sweep, a, b, metric)
            for metric in ("macro_auc", "macro_f1")
            for a, b in itertools.combinations((0.7, 0.8, 0.9), 2)
        }
        widest = max(gaps, key=lambda pair: max(-gaps[pair].low, gaps[pair].high))
        flat.append(max(-gaps[widest].low, gaps[widest].high) < HUNDREDTH)
        steep += [gap for gap in gaps.values() if gap.low > HUNDREDTH or gap.high < -HUNDREDTH]
        told.append(f"{sweep.dataset}: least certain {words(gaps[widest])} ({widest})")
    undecided = not any(flat) and not steep
    return UNDECIDED if undecided else in_part(flat), "; ".join(told)


def high_to_low_is_best(laboratory: Laboratory) -> Finding:
    """The schedules that the paper prefers are better than the others, on average and clearly."""
    found, told = [], []
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
        found.append(decided(holds=better(gap), against=worse(gap)))
        start, end = best[0]
        told.append(f"{sweep.dataset}: {words(gap)}; best of all is {start:g} → {end:g}")
    return joined(found), "; ".join(told)


# Looking at the runs -------------------------------------------------------------------------


def _ablation(laboratory: Laboratory, baseline: str) -> dict[str, dict[str, PairedInterval]]:
    """Dataset -> variant but A -> its difference to one of the variants."""
    (study,) = laboratory.ablations
    return {
        dataset: {
            variant: interval(study.differences(SCORE, variant, baseline, [dataset]))
            for variant in study.methods
            if variant != "A"
        }
        for dataset in study.datasets
    }


def _sweeps(laboratory: Laboratory, option: str) -> list[Sweep]:
    return [sweep for sweep in laboratory.sweeps if sweep.options == (option,)]


def _mean(runs: Iterable[StoredRun]) -> float:
    return float(np.mean([test_score(run, SCORE) for run in runs]))


def _difference(sweep: Sweep, value: Any, other: Any, metric: str = SCORE) -> PairedInterval:
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
