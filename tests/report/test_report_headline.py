"""The sentence at the top of a report says first what is shown, and no more than that."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from report_data import findings, scored

from d2ace.benchmark.store.database import Store
from d2ace.report.collect import collect
from d2ace.report.headline import headline
from d2ace.report.verdicts import Verdict

FOLDS = 3
NAMES = {"Random": "random", "Active": "active", "ML-Unc": "ml_unc", "D2ACE": "d2ace"}
Score = Callable[[str, int, int], float]


def told(store: Store) -> tuple[str, str]:
    """The headline, and what follows."""
    laboratory = collect(store)
    found = [finding for one in laboratory.comparisons for finding in findings(one)]
    first, *rest = headline(laboratory, found)
    return first, " ".join(rest)


def fill(store: Store, datasets: int, methods: list[str], score: Score) -> None:
    """Runs of methods on datasets; all metrics have the same score (so less loss is worse)."""
    for place in range(datasets):
        for method in methods:
            for fold in range(FOLDS):
                value = score(method, place, fold)
                scored(store, method, NAMES[method], value, fold, data=f"/data/set{place}.npz")


def level(place: int, fold: int) -> float:
    return 0.5 + 0.01 * place + 0.005 * fold


def ahead(who: str, by: float) -> Score:
    """One method is ahead of all others by about this much, everywhere."""

    def score(method: str, place: int, fold: int) -> float:
        own = by * (1 + 0.1 * place + 0.05 * fold) if method == who else 0.0
        return level(place, fold) + own

    return score


def noisy(method: str, place: int, fold: int) -> float:
    chance = np.random.default_rng([len(method), place, fold])
    return level(place, fold) + 0.02 * float(chance.normal())


@pytest.mark.parametrize("datasets", [1, 8])
def test_noise_shows_no_method_to_be_better(store: Store, datasets: int) -> None:
    fill(store, datasets, [*NAMES], noisy)
    first, rest = told(store)
    assert first == "No method is shown to be better than Random."
    assert "the best average rank" in rest
    assert "is better than" not in rest


def test_a_method_that_is_clearly_better_is_named_first(store: Store) -> None:
    fill(store, 8, [*NAMES], ahead("ML-Unc", 0.03))
    first, rest = told(store)
    assert first == "ML-Unc is better than Random in 3 of 4 tables of model and metric."
    # Of the loss, less is better, and it has more.
    assert rest.startswith("ML-Unc is worse than Random in 1 of 4 tables of model and metric.")


def test_methods_that_are_better_are_named_with_how_often(store: Store) -> None:
    def score(method: str, place: int, fold: int) -> float:
        gain = {"ML-Unc": 0.02, "D2ACE": 0.03}.get(method, 0.0)
        return level(place, fold) + gain * (1 + 0.1 * place + 0.05 * fold)

    fill(store, 10, ["Random", "ML-Unc", "D2ACE"], score)
    first, _ = told(store)
    assert first == "ML-Unc and D2ACE are better than Random in 3 of 4 tables of model and metric."


@pytest.mark.parametrize(("datasets", "where"), [(1, "this dataset"), (3, "these datasets")])
def test_with_few_datasets_it_speaks_of_these_alone(
    store: Store, datasets: int, where: str
) -> None:
    fill(store, datasets, ["Random", "D2ACE"], ahead("D2ACE", 0.03))
    first, rest = told(store)
    assert first == f"D2ACE is better than Random on {where} in 3 of 4 tables of model and metric."
    assert "nothing is shown for other datasets" in rest


def test_a_method_that_is_clearly_worse_is_called_so(store: Store) -> None:
    fill(store, 8, ["Random", "Active", "D2ACE"], ahead("D2ACE", -0.03))
    (one,) = collect(store).comparisons
    found = {finding.metric: finding for finding in findings(one)}
    assert found["macro_auc"].against_baseline["D2ACE"] is Verdict.WORSE
    assert found["macro_auc"].against_baseline["Random"] is Verdict.BASELINE
    assert found["ranking_loss"].against_baseline["D2ACE"] is Verdict.BETTER  # less is better
    assert headline(collect(store), [found["macro_auc"]])[:2] == [
        "No method is shown to be better than Random.",
        "D2ACE is worse than Random.",
    ]


def test_the_best_rank_of_many_methods_by_chance_is_no_headline(store: Store) -> None:
    """One of many is ahead by more than its own interval, which among many is no wonder."""

    def score(method: str, place: int, fold: int) -> float:
        wobble = {"D2ACE": 0.01, "Active": -0.002, "ML-Unc": 0.001}.get(method, 0.0)
        return level(place, fold) + wobble * (1 + 0.15 * (fold - 1))

    fill(store, 1, [*NAMES], score)
    (one,) = collect(store).comparisons
    verdicts = {finding.metric: finding.against_baseline["D2ACE"] for finding in findings(one)}
    assert verdicts["macro_auc"] is Verdict.BETTER_NOT_SHOWN
    assert told(store)[0] == "No method is shown to be better than Random."


def test_a_single_method_has_nothing_to_be_compared_with(store: Store) -> None:
    fill(store, 2, ["D2ACE"], noisy)
    assert told(store) == (
        "No two methods finished the same dataset, settings, fold and seed: there is nothing to "
        "compare yet.",
        "",
    )
    (one,) = collect(store).comparisons
    assert {finding.verdict for finding in findings(one)} == {Verdict.ALONE}


def test_without_the_baseline_it_says_that_first(store: Store) -> None:
    fill(store, 8, ["Active", "D2ACE"], ahead("D2ACE", 0.03))
    first, rest = told(store)
    assert first == "Random was not run, so no method is compared with it."
    assert rest == "D2ACE has the best average rank in 3 of 4 tables of model and metric."
