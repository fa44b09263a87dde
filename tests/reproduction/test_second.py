"""The second part: differences within a fold, and the verdicts that its rules give."""

from __future__ import annotations

import further_methods
import handicaps
import label_gains
import pytest
import static_tables
from trim import tables

from d2ace.benchmark.plan.specs import RunSpec
from d2ace.benchmark.store import Store
from d2ace.report.collect import Laboratory, collect
from d2ace.report.intervals import PairedInterval
from d2ace.report.method_comparison import MethodComparison


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
    found = static_tables.gains(rows, "D2ACE", "10", "macro_auc")
    assert found == pytest.approx({"a": 0.0, "b": 0.3})


def test_of_a_loss_less_is_better() -> None:
    rows = [row("a", "0", "Random", 0.2), row("a", "0", "D2ACE", 0.3)]
    for one in rows:
        one["ranking_loss"] = one.pop("macro_auc")
    assert static_tables.gains(rows, "D2ACE", "10", "ranking_loss") == pytest.approx({"a": -0.1})


@pytest.mark.parametrize(
    ("own", "static", "words"),
    [
        (0.001, 0.01, "nothing to explain"),
        (0.004, 0.003, "only label-rich rows"),
        (0.009, 0.003, "more than label-rich rows"),
    ],
)
def test_what_static_draws_explain(own: float, static: float, words: str) -> None:
    gains = {"D2ACE": own, **dict.fromkeys(static_tables.STATIC, static)}
    gains |= {f"D2ACE, pressure {pressure}": own for pressure in (2, 4, 10)}
    found = {(method, "best"): {"a": gain, "b": gain} for method, gain in gains.items()}
    assert words in static_tables.verdicts(found)[0]


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
    assert label_gains.balance_verdict(one) == verdict


def test_intervals_of_static_gains_are_students() -> None:
    assert tables.interval({"a": 0.01, "b": 0.01}) == "+0.0100 [+0.0100, +0.0100]"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.001, 0.009, "explains the gain"),
        (0.006, 0.009, "explains the gain"),
        (0.001, 0.005, "explains a part"),
        (-0.004, 0.002, "does not explain it"),
        (-0.004, -0.002, "does not explain it"),
        (-0.001, 0.004, "undecided"),
        (None, None, "undecided"),
    ],
)
def test_what_a_handicap_explains(low: float | None, high: float | None, verdict: str) -> None:
    assert handicaps.verdict(PairedInterval(0.0, low, high, 5)) == verdict


def test_a_handicap_costs_what_random_is_ahead_in_the_same_part(store: Store) -> None:
    def part(scores: dict[tuple[str, str], float], number: int, plain: int = 2) -> Laboratory:
        from report_data import result

        with Store(store.path.with_name(f"{number}.db")) as one:
            for (study, method), score in scores.items():
                for fold in range(plain if study == "main" else 2):
                    config = {"data": "birds", "model": "clif", "selector": "random", "fold": fold}
                    config |= {"model_options": {"preset": "reference"}, "epochs": 3}
                    config["weight_decay"] = 0.0 if study == "no weight decay" else 1e-4
                    spec = RunSpec(study, method, config)
                    content = result(spec)
                    content["test"]["macro_auc"] = score + 0.1 * fold
                    one.add(spec, content)
            return collect(one)

    handicapped = ("no weight decay", "Random (no weight decay)")
    first = part({("main", "Random"): 0.7}, 1)
    second = part({("main", "Random"): 0.71, handicapped: 0.68}, 2)
    alone = part({handicapped: 0.68}, 3)
    begun = part({("main", "Random"): 0.71, handicapped: 0.68}, 4, plain=1)
    for later, cost in ((second, 0.03), (alone, 0.02), (begun, 0.02)):
        (pairs,) = handicaps.costs(first, later, "no weight decay", "macro_auc").values()
        assert [pair.difference for pair in pairs] == pytest.approx([cost, cost])


def test_a_form_is_compared_by_what_each_gains_over_its_own_random(store: Store) -> None:
    def comparison(base: float, method: str, gains: tuple[float, float]) -> MethodComparison:
        from report_data import result

        with Store(store.path.with_name(f"{method}.db")) as one:
            for fold, gain in enumerate(gains):
                for name, score in (("Random", base), (method, base + gain)):
                    selector = "random" if name == "Random" else "dihcl"
                    config = {"data": "birds", "model": "mlp", "selector": selector, "fold": fold}
                    spec = RunSpec("main", name, {**config, "epochs": 3})
                    content = result(spec)
                    content["test"]["macro_auc"] = score
                    one.add(spec, content)
            return collect(one).comparisons[0]

    before = comparison(0.7, "DIHCL", (0.01, 0.03))
    after = comparison(0.6, "DIHCL (original)", (0.02, 0.06))
    found = further_methods.gap_to_form(before, after, "DIHCL (original)")
    assert (found.mean, found.count) == (pytest.approx(0.02), 2)


def test_a_method_with_shorter_epochs_is_compared_after_as_many_steps(store: Store) -> None:
    from report_data import result

    curves = {"Random": [(200, 0.5), (200, 0.6), (200, 0.8)], "InfoBatch": [(200, 0.5), (50, 0.7)]}
    for name, selector in (("Random", "random"), ("InfoBatch", "info_batch")):
        config = {"data": "birds", "model": "mlp", "selector": selector, "batch_size": 128}
        spec = RunSpec("main", name, {**config, "epochs": 3})
        content = result(spec)
        content["history"] = [
            {"epoch": epoch, "validation": {"macro_auc": score}, "distinct_rows": rows}
            for epoch, (rows, score) in enumerate(curves[name], 1)
        ]
        store.add(spec, content)
    (one,) = collect(store).comparisons
    (dataset,) = one.datasets
    gap = further_methods.gaps_at_steps(one, "InfoBatch", dataset)
    assert (gap.steps, gap.full) == (3, 6)
    assert gap.whole[0].difference == pytest.approx(-0.1)
    assert gap.equal[0].difference == pytest.approx(0.2)  # Random has 0.5 after 2 of its 6 steps
