"""The second part: differences within a fold, and the verdicts that its rules give."""

from __future__ import annotations

import pytest
import second
from trim import tables

from d2ace.benchmark.store import Store
from d2ace.report.collect import collect


def row(dataset: str, fold: str, method: str, score: float) -> dict[str, str]:
    cell = {"dataset": dataset, "fold": fold, "method": method, "budget": "10"}
    return {**cell, "macro_auc": str(score)}


def test_static_gains_are_differences_to_random_of_the_same_fold() -> None:
    rows = [
        row("a", "0", "Random", 0.5),
        row("a", "0", "D2ACE", 0.6),
        row("a", "1", "Random", 0.8),
        row("a", "1", "D2ACE", 0.7),
        row("b", "0", "Random", 0.1),
        row("b", "0", "D2ACE", 0.4),
    ]
    found = second.static_gains(rows, "D2ACE", "10", "macro_auc")
    assert found == pytest.approx({"a": 0.0, "b": 0.3})


@pytest.mark.parametrize(
    ("own", "static", "words"),
    [
        (0.001, 0.01, "nothing to explain"),
        (0.004, 0.003, "only label-rich rows"),
        (0.009, 0.003, "more than label-rich rows"),
    ],
)
def test_what_static_draws_explain(own: float, static: float, words: str) -> None:
    gains = {"D2ACE": own, **dict.fromkeys(second.STATIC, static)}
    gains |= {f"D2ACE, pressure {pressure}": own for pressure in (2, 4, 10)}
    found = {(method, "best"): {"a": gain, "b": gain} for method, gain in gains.items()}
    assert words in second.static_verdicts(found, ["best"])[0]


@pytest.mark.parametrize(
    ("half", "tuned", "verdict"),
    [
        (0.05, 0.004, "calibration"),
        (0.05, 0.045, "more than calibration"),
        (0.005, 0.004, "undecided"),
    ],
)
def test_what_a_gain_in_macro_f1_is(store: Store, half: float, tuned: float, verdict: str) -> None:
    from report_data import result

    from d2ace.benchmark.plan.specs import RunSpec

    for fold in range(3):
        for method, selector, share in (("Random", "random", 0), ("Balance", "balance", 1)):
            config = {"data": "yeast", "model": "mlp", "selector": selector, "fold": fold}
            spec = RunSpec("main", method, {**config, "epochs": 3})
            content = result(spec)
            luck = 0.001 * fold * share
            content["test"] |= {
                "macro_auc": 0.7,
                "macro_f1": 0.4 + share * half + luck,
                "macro_f1_tuned": 0.5 + share * tuned + luck,
            }
            store.add(spec, content)
    (one,) = collect(store).comparisons
    assert second.balance_verdict(one) == verdict


def test_intervals_of_static_gains_are_students() -> None:
    assert tables.interval({"a": 0.01, "b": 0.01}) == "+0.0100 [+0.0100, +0.0100]"
