"""The rules by which the paper's claims are judged, on runs whose verdict is known beforehand."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import case_evidence
import claims
import evidence
import judging
import numpy as np
import parts_evidence
import pytest
from judging import PAPER_METHODS

from d2ace.benchmark.store.database import StoredRun
from d2ace.report.collect import Laboratory
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.sweeps import Sweep

FOLDS = (-0.02, 0.0, 0.02)
"""What a fold adds to every score; differences within a fold do not see it."""


def run(fold: int, score: float, seconds: float = 0.0, curve: Sequence[float] = ()) -> StoredRun:
    test = {"macro_auc": score, "macro_f1": score, "ranking_loss": 1 - score}
    result = {
        "test": test,
        "dataset": {"train": 360, "test": 100, "labels": 9},
        "seconds": {"setup": 0.0, "observe": seconds, "train": 100.0},
        "history": [
            {"validation": {"macro_auc": value}, "epoch_loss": 1 - value, "seconds": {"sum": 1}}
            for value in curve
        ],
    }
    names = ("key", "main", "method", "data", "model", "selector")
    return StoredRun(0, *names, fold, 0, "finished", None, {}, result, "")


def runs(score: float, noise: Sequence[float] = (), **more: Any) -> tuple[StoredRun, ...]:
    """Three folds, all with the same advantage unless ``noise`` is added."""
    levels = [base + extra for base, extra in itertools.zip_longest(FOLDS, noise, fillvalue=0.0)]
    return tuple(run(fold, score + level, **more) for fold, level in enumerate(levels))


def laboratory(**parts: Any) -> Laboratory:
    empty = {name: [] for name in ("comparisons", "ablations", "cases", "sweeps")}
    bare = {"finished": [], "failed": [], "recording": lambda run: None}
    return Laboratory(**{**empty, **bare, **parts})


def compared(
    scores: Mapping[str, float],
    model: str,
    datasets: Sequence[str],
    study: str = "main",
    **more: Any,
) -> MethodComparison:
    cells = {
        (dataset, method): runs(score, **{key: values[method] for key, values in more.items()})
        for dataset in datasets
        for method, score in scores.items()
    }
    return MethodComparison(study, model, cells)


def models(scores: Mapping[str, float], **more: Any) -> Laboratory:
    """Steps 1 and 3, and what step 6 adds: a dataset with few methods, which must not count."""
    ours = [
        compared(scores, model, datasets, **more) for model, datasets in judging.COMPARED.items()
    ]
    few = {"Random": 0.9, "D2ACE": 0.1}
    ours[0].cells.update(compared(few, judging.FIRST, ["bibtex"], **more).cells)
    return laboratory(comparisons=ours)


def on_bibtex(**more: Any) -> MethodComparison:
    """Step 6, which has five of the methods."""
    few = {method: RISING[method] for method in ("Random", "DIHCL", "Hard-Imb", "ML-Unc", "D2ACE")}
    return compared(few, "CLIF", ["bibtex"], "bibtex", **more)


def sweep(option: str, scores: Mapping[Any, float], noise: Sequence[float] = ()) -> Sweep:
    """Only the first value has the noise, so that no difference to it is clear."""
    first = next(iter(scores))
    points = {
        (value,): runs(score, noise if value == first else ()) for value, score in scores.items()
    }
    return Sweep("CLIF", "birds", "d2ace", (option,), points, 0)


RISING = {method: 0.70 + 0.01 * place for place, method in enumerate(PAPER_METHODS)}
"""Scores in the order of the methods: D2ACE is best."""
NOISE = (0.05, -0.05, 0.0)


def test_best_rank_wants_first_places_everywhere() -> None:
    assert evidence.best_rank(models(RISING))[0] == judging.REPRODUCED
    falling = {method: 1 - score for method, score in RISING.items()}
    verdict, told = evidence.best_rank(models(falling))
    assert verdict == judging.NOT
    assert "DELA: 8 and 1 (Macro-AUC), 8 and 1 (Macro-F1), 8 and 1 (Ranking loss)" in told
    assert "PACA: 8 and 2 (Macro-AUC)" in told  # of the paper's own on birds and scene
    mixed = models(RISING)
    mixed.comparisons[1] = compared(falling, "DELA", ["birds", "scene"])
    assert evidence.best_rank(mixed)[0] == judging.IN_PART


def test_a_variant_of_d2ace_does_not_cost_it_its_rank() -> None:
    scores = {**RISING, "D2ACE (reference)": 0.99}
    assert evidence.best_rank(models(scores))[0] == judging.REPRODUCED


def test_significance_by_the_papers_test() -> None:
    verdict, told = evidence.significant(models(RISING))
    assert verdict == judging.REPRODUCED
    assert told.startswith("21 of 21")
    close = {**RISING, "ML-Unc": RISING["D2ACE"], "Hard-Imb": RISING["D2ACE"], "DIHCL": 0.9}
    verdict, told = evidence.significant(models(close))
    assert verdict == judging.NOT
    assert told.startswith("12 of 21")


SECONDS = {method: float(2 * place) for place, method in enumerate(PAPER_METHODS)}


@pytest.mark.parametrize(
    ("change", "fastest", "cheap", "cheaper"),
    [
        ({}, True, False, False),  # 14 s where Active and DIHCL have 2 and 6
        ({"D2ACE": 10.0}, True, True, True),
        ({"Random": 3.0}, False, False, False),
        ({"D2ACE": 11.5, "ML-Unc": 11.0}, True, False, False),
    ],
)
def test_cost(change: dict[str, float], fastest: bool, cheap: bool, cheaper: bool) -> None:
    found = models(RISING, seconds={**SECONDS, **change})
    found.comparisons.append(on_bibtex(seconds={**SECONDS, **change}))
    assert evidence.random_is_fastest(found)[0] == judging.verdict(fastest)
    assert evidence.as_cheap_as_dihcl(found)[0] == judging.verdict(cheap)
    assert evidence.cheaper_than_ml_unc(found)[0] == judging.verdict(cheaper)
    assert evidence.cheaper_on_bibtex(found)[0] == judging.verdict(cheaper)


@pytest.mark.parametrize(("balance", "holds"), [(1.0, True), (3.0, False)])
def test_balance_follows_random(balance: float, holds: bool) -> None:
    found = models(RISING, seconds={**SECONDS, "Balance": balance})
    assert evidence.balance_is_second(found)[0] == judging.verdict(holds)


@pytest.mark.parametrize(
    ("early", "end", "verdict"),
    [
        (0.7, 0.9, judging.REPRODUCED),
        (0.5, 0.9, judging.IN_PART),  # ends ahead, after having been behind
        (0.7, 0.7, judging.IN_PART),
        (0.6, 0.8, judging.NOT),  # no faster than others
    ],
)
def test_faster_than_uncertainty_early_and_at_the_end(
    early: float, end: float, verdict: str
) -> None:
    def rising(begin: float, last: float) -> list[float]:
        return [0.5] * 10 + [begin] * 20 + [0.75] * 5 + [last]

    curves = {method: rising(0.6, 0.8) for method in PAPER_METHODS} | {"D2ACE": rising(early, end)}
    curves["Hard-Imb"] = curves["Random"] = rising(0.9, 0.99)  # are not asked
    found = laboratory(comparisons=[compared(RISING, "CLIF", ["birds"], curve=curves)])
    found.comparisons.append(on_bibtex(curve=curves))
    assert evidence.faster_than_uncertainty(found)[0] == verdict
    assert evidence.faster_than_uncertainty_on_bibtex(found)[0] == verdict


def test_verdicts_over_datasets() -> None:
    yes, no, unknown = judging.REPRODUCED, judging.NOT, judging.UNDECIDED
    assert judging.joined([yes, yes]) == yes
    assert judging.joined([yes, no]) == judging.joined([unknown, yes]) == judging.IN_PART
    assert judging.joined([no, unknown]) == no
    assert judging.joined([unknown, unknown]) == unknown


def reaching(epoch: int) -> list[float]:
    return [0.5] * (epoch - 1) + [0.8] * (11 - epoch)


@pytest.mark.parametrize(
    ("epochs", "holds"),
    [
        ({"DIHCL": 2, "Hard-Imb": 3}, True),
        ({"DIHCL": 2, "Hard-Imb": 6}, False),  # no faster than others
        ({"DIHCL": 2, "Hard-Imb": 9}, False),
        ({"DIHCL": 2, "Hard-Imb": 11}, False),
        ({"DIHCL": 11, "Hard-Imb": 11}, False),
    ],
)
def test_hardness_is_fastest_if_both_are(epochs: dict[str, int], holds: bool) -> None:
    curves = {method: reaching({"Random": 8, **epochs}.get(method, 6)) for method in PAPER_METHODS}
    found = models(RISING, curve=curves)
    found.comparisons.append(compared(RISING, "CLIF", ["birds"], curve=curves))
    found.comparisons.append(on_bibtex(curve=curves))
    for look in (
        evidence.hardness_is_fastest,
        evidence.hardness_learns_fastest,
        evidence.hardness_learns_fastest_on_bibtex,
    ):
        verdict, told = look(found)
        assert verdict == judging.verdict(holds)
        assert ("never" in told) == (11 in epochs.values())


@pytest.mark.parametrize(("fall", "holds"), [(0.03, True), (0.015, False)])
def test_hardness_overfits_if_it_loses_a_hundredth_more(fall: float, holds: bool) -> None:
    falls = {"DIHCL": fall, "Hard-Imb": 0.04, "Random": 0.01}
    curves = {method: [0.5, 0.8, 0.8 - falls.get(method, 0.0)] for method in PAPER_METHODS}
    found = models(RISING, curve=curves)
    found.comparisons.append(
        compared(RISING, "CLIF (reference)", ["birds"], "longer", curve=curves)
    )
    found.comparisons.append(on_bibtex(curve=curves))
    assert evidence.hardness_overfits(found)[0] == judging.verdict(holds)
    assert evidence.hardness_overfits_on_bibtex(found)[0] == judging.verdict(holds)


def ablation(**changed: tuple[StoredRun, ...]) -> Laboratory:
    """All variants a little worse than A in every fold, but for those given."""
    level = {variant: runs(0.8 - 0.001 * place) for place, variant in enumerate("ABCDEFGHIJK")}
    cells = {("birds", variant): own for variant, own in {**level, **changed}.items()}
    return laboratory(ablations=[MethodComparison("ablation", "CLIF", cells)])


def test_all_variants_must_lose() -> None:
    for look, variant in ((parts_evidence.mixtures_lose, "D"), (parts_evidence.others_lose, "K")):
        assert look(ablation())[0] == judging.REPRODUCED
        assert look(ablation(**{variant: runs(0.8, NOISE)}))[0] == judging.UNDECIDED
        verdict, told = look(ablation(**{variant: runs(0.81)}))
        assert verdict == judging.NOT
        assert f"{variant} +0.0100" in told
        assert look(ablation(H=runs(0.9)))[0] == judging.REPRODUCED  # has a claim of its own


@pytest.mark.parametrize(
    ("h", "verdict"),
    [
        (runs(0.75), judging.REPRODUCED),
        (runs(0.79), judging.NOT),  # C clearly loses more
        (runs(0.75, NOISE), judging.UNDECIDED),
    ],
)
def test_correlation_matters_most_if_h_loses_most_clearly(
    h: tuple[StoredRun, ...], verdict: str
) -> None:
    found = ablation(H=h, C=runs(0.78))
    assert parts_evidence.correlation_matters_most(found)[0] == verdict


@pytest.mark.parametrize(
    ("scores", "noise", "verdict"),
    [
        ({6: 0.81, 0: 0.80, "n": 0.79}, (), judging.REPRODUCED),
        ({6: 0.81, 0: 0.80, "n": 0.79}, NOISE, judging.UNDECIDED),
        ({0: 0.81, 6: 0.80, "n": 0.79}, (), judging.UNDECIDED),
        ({0: 0.81, 6: 0.80, 7: 0.82, "n": 0.79}, (), judging.REPRODUCED),
    ],
)
def test_best_k(scores: dict[Any, float], noise: Sequence[float], verdict: str) -> None:
    found = laboratory(sweeps=[sweep("neighbors", scores, noise)])
    assert parts_evidence.k_is_best_at_six_or_seven(found)[0] == verdict


@pytest.mark.parametrize(
    ("n", "noise", "verdict"),
    [
        (0.79, (), judging.REPRODUCED),
        (0.81, (), judging.NOT),
        (0.79, NOISE, judging.UNDECIDED),
    ],
)
def test_all_rows_as_neighbours(n: float, noise: Sequence[float], verdict: str) -> None:
    found = laboratory(sweeps=[sweep("neighbors", {6: 0.80, "n": n}, noise)])
    assert parts_evidence.all_rows_are_too_many(found)[0] == verdict


@pytest.mark.parametrize(
    ("best", "noise", "verdict"),
    [
        (0.802, (), judging.REPRODUCED),  # small, though in every fold
        (0.815, (), judging.NOT),
        (0.800, (0.001, -0.001, 0.0), judging.REPRODUCED),
        (0.810, NOISE, judging.UNDECIDED),
    ],
)
def test_lambda2_is_flat_if_that_is_sure(best: float, noise: Sequence[float], verdict: str) -> None:
    scores = {0.8: best, 0.7: 0.80, 0.9: 0.80, 0.1: 0.5}
    found = laboratory(sweeps=[sweep("flip_smoothing", scores, noise)])
    assert parts_evidence.lambda2_is_flat(found)[0] == verdict


MIXED = {(0.7, 0.3): 0.82, (0.9, 0.1): 0.80, (0.3, 0.1): 0.79, (0.5, 0.5): 0.81}


@pytest.mark.parametrize(
    ("scores", "noise", "expected"),
    [
        (MIXED, (), judging.REPRODUCED),
        (MIXED, NOISE, judging.UNDECIDED),
        ({(0.7, 0.3): 0.82, (0.9, 0.9): 0.85, (0.3, 0.1): 0.83}, (), judging.NOT),
    ],
)
def test_mixing(scores: dict[Any, float], noise: Sequence[float], expected: str) -> None:
    found = laboratory(sweeps=[sweep("mix", scores, noise)])
    verdict, told = parts_evidence.high_to_low_is_best(found)
    assert verdict == expected
    assert f"best of all is {'0.7 → 0.3' if (0.5, 0.5) in scores else '0.9 → 0.9'}" in told


def recorded(dataset: str, recordings: Mapping[str, Mapping[str, Any]]) -> Laboratory:
    """One run of each method on a dataset, with what it recorded."""
    names = ("main", "method", dataset, "CLIF", "d2ace", 0, 0, "finished", None, {"record": True})
    cells = {(dataset, method): (StoredRun(0, method, *names, {}, ""),) for method in recordings}
    case = MethodComparison("case", "CLIF", cells)
    return laboratory(cases=[case], recording=lambda run: recordings[run.key])


def drawing(high: int, epoch: int, what: str) -> dict[str, Any]:
    """A hundred of 1,000 rows are drawn most, ``high`` of which are in the top third."""
    value = np.repeat([2.0, 1.0, 0.0], [333, 333, 334])
    P = np.full(1000, 1.0)
    P[:high] = P[-(100 - high) :] = 2.0
    values = value if what == "outlier" else value[None]
    return {"epochs": [epoch], "P": P[None], "outlier": value, what: values}


@pytest.mark.parametrize(
    ("high", "low", "verdict"),
    [
        (60, 40, judging.REPRODUCED),  # 0.07 is a standard error of the difference
        (50, 40, judging.UNDECIDED),
        (40, 50, judging.UNDECIDED),
        (40, 60, judging.NOT),
    ],
)
def test_the_rows_drawn_most_are_listed(high: int, low: int, verdict: str) -> None:
    found = recorded(
        "cal500",
        {"Hard-Imb": drawing(high, 20, "outlier"), "D2ACE": drawing(low, 20, "outlier")},
    )
    told = f"high outlier score. cal500: Hard-Imb {high}%, D2ACE {low}% of 100 rows each"
    assert case_evidence.fewer_outliers_early(found) == (verdict, told)
    found = recorded(
        "cal500", {"ML-Unc": drawing(low, 80, "loss"), "D2ACE": drawing(high, 80, "loss")}
    )
    assert case_evidence.more_hard_rows_late(found)[0] == verdict


@pytest.mark.parametrize(
    ("slopes", "verdict"),
    [
        ((-1.0, -2.0), judging.REPRODUCED),
        ((-1.0, 1.0), judging.IN_PART),
        ((0.0, 1.0), judging.NOT),  # one is the same for all labels
    ],
)
def test_label_weights_against_auc(slopes: tuple[float, float], verdict: str) -> None:
    auc = np.linspace(0.6, 0.9, 12)
    weights = dict(zip(("uncertainty", "hardness"), slopes, strict=True))
    early = [0.5] * len(auc)  # only the end counts
    recording = {
        "label_auc": np.array([early, auc]),
        **{f"label_weight_{k}": np.array([auc, slope * auc]) for k, slope in weights.items()},
    }
    found = recorded("corel5k", {"D2ACE": recording})
    assert case_evidence.weights_go_against_auc(found)[0] == verdict


def test_a_claim_is_open_until_its_steps_are_complete() -> None:
    found = {claim.words: verdict for claim, (verdict, _) in claims.judgements(laboratory(), set())}
    assert found.pop("Best mAP on images") == judging.UNTESTABLE  # whatever is run
    assert set(found.values()) == {claims.OPEN}
    assert len(found) == len(claims.CLAIMS) - 1
