"""What a report says in words and averages is true of the runs, also where they are uneven."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from report_data import METHODS, findings, scored

from d2ace.benchmark.store.database import Store
from d2ace.report import published
from d2ace.report.collect import collect
from d2ace.report.figures import scores as figures_scores
from d2ace.report.figures import studies as figures_studies
from d2ace.report.figures import style
from d2ace.report.headline import headline
from d2ace.report.intervals import Pair, interval, over_folds
from d2ace.report.judgement import judge
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.summary import sentences
from d2ace.report.tables.cost import inventory, missing_runs
from d2ace.report.tables.gains import by_dataset, gains
from d2ace.report.tables.glance import glance
from d2ace.report.tables.scores import scores
from d2ace.report.tables.studies import sweep


def comparison(store: Store) -> MethodComparison:
    (one,) = collect(store).comparisons
    return one


def lead(store: Store) -> tuple[str, str]:
    """The sentence at the top, and what qualifies it."""
    laboratory = collect(store)
    found = [finding for one in laboratory.comparisons for finding in findings(one)]
    first, *rest = headline(laboratory, found)
    return first, " ".join(rest)


def shown(store: Store, heading: str, metric: str = "Macro-AUC") -> tuple[str, str]:
    """Text and note of a field of "At a glance"."""
    table = glance("glance", findings(comparison(store)))
    (row,) = [row for row in table.rows if row[1].text == metric]
    cell = row[table.columns.index(heading)]
    return cell.text, cell.note


def many_small_wins(store: Store, datasets: int) -> None:
    """D2ACE wins by a little everywhere but on one dataset, where it loses by much."""
    for place, fold in itertools.product(range(datasets), range(3)):
        data = f"/data/set{place}.npz"
        gain = 0.001 + 0.0001 * (fold + place) if place else -0.1
        scored(store, "Random", "random", 0.5 + 0.01 * fold, fold, data=data)
        scored(store, "D2ACE", "d2ace", 0.5 + 0.01 * fold + gain, fold, data=data)


@pytest.mark.parametrize("datasets", [3, 12])
def test_best_by_rank_and_worse_on_average_is_not_called_better(
    store: Store, datasets: int
) -> None:
    many_small_wins(store, datasets)
    assert shown(store, "Best") == ("D2ACE", "")
    assert shown(store, "In short") == ("best rank, worse on average", "")
    _, words = lead(store)
    assert "in 3 of 4 the best by rank is worse than Random on average" in words
    if datasets == 12:
        assert "significantly better than Random in 0 of 4 tables" in words


def test_a_best_rank_of_random_says_nothing_of_means(store: Store) -> None:
    """Random has the best rank though D2ACE is better on average."""
    for place, gain in enumerate((-0.001, -0.001, 0.1)):
        for fold in range(3):
            data = f"/data/set{place}.npz"
            scored(store, "Random", "random", 0.5, fold, data=data)
            scored(store, "D2ACE", "d2ace", 0.5 + gain + 0.0001 * fold, fold, data=data)
    words = " ".join(sentences(findings(comparison(store))[0]))
    assert "No method has a better average rank than Random." in words
    assert "D2ACE itself is better than Random by 0.0328" in words


def uneven(store: Store, single: bool) -> None:
    """Five folds on two datasets, and a single pair of runs on a third."""
    for data, gain in (("birds", 0.01), ("emotions", 0.03)):
        for fold in range(5):
            scored(store, "Random", "random", 0.5, fold, data=data)
            scored(store, "D2ACE", "d2ace", 0.5 + gain + 0.0005 * fold, fold, data=data)
    if single:
        scored(store, "Random", "random", 0.5)
        scored(store, "D2ACE", "d2ace", 0.52)


@pytest.mark.parametrize("single", [False, True])
def test_an_interval_between_datasets_is_called_one(store: Store, single: bool) -> None:
    uneven(store, single)
    one = comparison(store)
    cell = gains("gains", one).rows[0][1]
    assert cell.note == ("within noise, between datasets" if single else "clear of zero")
    assert shown(store, "Better than Random by")[1] == ("between datasets" if single else "")
    words = [" ".join(sentences(finding)) for finding in findings(one)]
    assert ("interval between datasets" in words[0]) == single
    assert not any("between" in row[1].note for row in by_dataset_rows(one))


def by_dataset_rows(one: MethodComparison) -> list[list[Any]]:
    return by_dataset("gains", one, "macro_auc", published.load(None)).rows


# Uneven seeds -------------------------------------------------------------------------------


UNEVEN = [*((0, seed) for seed in range(5)), *((fold, 0) for fold in range(1, 5))]
"""Fold 0 with five seeds, four others with one."""


def test_a_fold_with_more_seeds_counts_as_much_as_another(store: Store) -> None:
    for fold, seed in UNEVEN:
        scored(store, "Random", "random", 0.5, fold, seed)
        scored(store, "D2ACE", "d2ace", 0.47 if fold == 0 else 0.51, fold, seed)
    one = comparison(store)
    assert one.means("macro_auc") == {"yeast": {"Random": 0.5, "D2ACE": 0.502}}
    assert one.block("macro_auc") == {"yeast": {"Random": 0.5, "D2ACE": 0.502}}
    table = scores("scores", one, "macro_auc", judge(one, "macro_auc"), published.load(None))
    assert [cell.text[:6] for cell in table.rows[0][1:]] == ["0.5000", "0.5020"]
    assert [row["mean"] for row in table.data or []] == pytest.approx([0.5, 0.502])
    assert by_dataset_rows(one)[0][1].text == "+0.0020"
    plot = figures_scores.scores("plot", one, "macro_auc", style.looks(one.methods))
    assert plot is not None
    drawn = [bars.lines[0].get_xdata()[0] for bars in plot.draw().axes[0].containers]
    assert drawn == pytest.approx([0.5, 0.502])


def test_seeds_of_a_fold_are_averaged_in_sweeps_too(store: Store) -> None:
    for fold, seed in UNEVEN:
        for size, level in ((4, 0.5), (6, 0.47 if fold == 0 else 0.51)):
            more = {"study": "sweep", "selector_options": {"neighbors": size}}
            scored(store, f"K={size}", "d2ace", level, fold, seed, **more)
    (one,) = collect(store).sweeps
    table = sweep("sweep", one)
    assert [row[1].text for row in table.rows] == ["0.5000", "0.5020"]
    assert table.rows[0][-1].text.startswith("−0.0020")
    means = [row["mean"] for row in table.data or [] if row["metric"] == "macro_auc"]
    assert means == pytest.approx([0.5, 0.502])
    assert "4: 0.5000, 6: 0.5020" in figures_studies.option_curve("plot", one, "macro_auc").alt


def test_the_mean_is_that_of_the_interval() -> None:
    values = [(0, 0.1), (0, 0.2), (0, 0.6), (1, 0.4), (2, 0.1)]
    pairs = [Pair(fold, seed, value, 0.25) for seed, (fold, value) in enumerate(values)]
    assert over_folds(values) == pytest.approx(0.8 / 3)
    assert interval([pairs]).mean == pytest.approx(over_folds(values))


# What did not run ---------------------------------------------------------------------------


def test_runs_of_different_settings_are_not_called_absent(store: Store) -> None:
    for fold in range(2):
        scored(store, "Random", "random", 0.5, fold, epochs=20)
        scored(store, "D2ACE", "d2ace", 0.6, fold, epochs=100)
    scored(store, "D2ACE", "d2ace", 0.6, fold=2, epochs=100)
    laboratory = collect(store)
    (said,) = sentences(findings(laboratory.comparisons[0])[0])
    assert said.startswith("No two methods have a score on the same dataset with the same settings")
    assert "same dataset, settings, fold and seed" in lead(store)[0]
    table = inventory("runs", laboratory)
    assert [[cell.text for cell in row[2:]] for row in table.rows] == [
        ["yeast", "1", "3", "1", "3", "0", "0"],
        ["yeast [epochs=20]", "1", "2", "1", "2", "0", "0"],
    ]
    assert [row["dataset"] for row in table.data or []].count("yeast [epochs=20]") == 2
    assert missing_runs(laboratory) == []


@pytest.mark.parametrize("gap", [False, True])
def test_without_random_nothing_is_said_of_being_better_than_it(store: Store, gap: bool) -> None:
    for place in range(7):
        for method, score in (("D2ACE", 0.8), ("Active", 0.7), ("Recent", 0.6)):
            scored(store, method, method.lower(), score, data=f"/data/set{place}.npz")
    if gap:
        scored(store, "Random", "random", 0.5, data="/data/set0.npz")
    where = " on the same datasets, folds and seeds" if gap else ""
    first, rest = lead(store)
    assert first == f"Random was not run{where}, so no method is compared with it."
    assert rest == "D2ACE has the best average rank in 3 of 4 tables of model and metric."


@pytest.mark.parametrize(("datasets", "quoted"), [(5, False), (6, True)])
def test_the_test_is_quoted_from_six_datasets_on(store: Store, datasets: int, quoted: bool) -> None:
    for place in range(datasets):
        data = f"/data/set{place}.npz"
        scored(store, "Random", "random", 0.5, data=data)
        scored(store, "D2ACE", "d2ace", 0.6 + 0.01 * place, data=data)
    assert (shown(store, "p (Holm)")[0] != "–") == quoted


# Ranks --------------------------------------------------------------------------------------


def test_the_block_is_the_largest_whatever_the_gaps(store: Store) -> None:
    """Every dataset lacks another method: four of each make sixteen cells, the most there are."""
    for place, (other, selector) in itertools.product(range(8), enumerate(METHODS)):
        if place != other:
            scored(store, METHODS[selector], selector, 0.5, data=f"/data/set{place}.npz")
    block = comparison(store).block("macro_auc")
    assert [len(row) for row in block.values()] == [4] * 4


def test_a_block_among_gaps_everywhere_comes_soon(store: Store) -> None:
    """Twelve methods of which every dataset lacks one: four thousand sets they have in common."""
    names = [f"M{place:02}" for place in range(12)]
    for place, other in itertools.product(range(12), range(12)):
        if place != other:
            own = {"selector_source": f"{other:064}", "data": f"/data/set{place}.npz"}
            scored(store, names[other], f"/here/{names[other]}.py:Mine", 0.5, **own)
    block = comparison(store).block("macro_auc")
    assert sum(map(len, block.values())) == 36
