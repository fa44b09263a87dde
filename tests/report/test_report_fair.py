"""Methods are compared on the same runs, whoever wrote them and however far a grid has come."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_data import findings
from report_data import scored as add

from d2ace import evaluation
from d2ace.benchmark.store.database import Store
from d2ace.report import published
from d2ace.report.collect import collect
from d2ace.report.headline import headline
from d2ace.report.judgement import judge
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.summary import sentences
from d2ace.report.tables.gains import gains
from d2ace.report.tables.glance import glance
from d2ace.report.tables.scores import scores
from d2ace.report.tables.seeds import seeds
from d2ace.report.tables.studies import ablation, sweep
from d2ace.report.tables.table import ReportTable


def comparison(store: Store) -> MethodComparison:
    (one,) = collect(store).comparisons
    return one


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.db")


def test_an_own_selector_stands_beside_the_others(store: Store) -> None:
    add(store, "Random", "random", 0.7)
    add(store, "Mine", "mine.py:Mine", 0.8, selector_source="d0" * 32)
    one = comparison(store)
    assert one.datasets == ["yeast"]
    assert one.block("macro_auc") == {"yeast": {"Random": 0.7, "Mine": 0.8}}


def test_versions_of_a_method_are_not_averaged(store: Store) -> None:
    """Whose file was edited, or whose option was changed under the same label."""
    for fold in range(5):
        add(store, "Random", "random", 0.7, fold)
        for source, score in (("a" * 64, 0.5), ("b" * 64, 0.9)):
            add(store, "Mine", "/here/mine.py:Mine", score, fold, selector_source=source)
        for options, score in (({}, 0.5), ({"window": 7}, 0.9)):
            add(store, "tuned", "d2ace", score, fold, selector_options=options)
    assert comparison(store).means("macro_auc") == {
        "yeast": {
            "Random": 0.7,
            "Mine [aaaaaaaa]": 0.5,
            "Mine [bbbbbbbb]": 0.9,
            "tuned": 0.5,
            "tuned [window=7]": 0.9,
        }
    }


@pytest.mark.parametrize("digests", [("a", "b", ""), ("a", "a", ""), ("", "b", "")])
def test_methods_that_had_other_data_are_reported(store: Store, digests: tuple[str, ...]) -> None:
    """As where the files of a dataset's name were replaced in between."""
    for method, digest in zip(("random", "active", "recent"), digests, strict=True):
        for fold in (0, 1):
            rows = digest and f"{digest}{fold}"
            add(store, method.title(), method, 0.7, fold, digest=rows)
    said = " ".join(sentences(findings(comparison(store))[0]))
    assert ("the same data on yeast (their checksums differ)" in said) == (
        digests[:2] == ("a", "b")
    )


def test_versions_of_a_swept_method_are_not_averaged(store: Store) -> None:
    for source, score in (("a" * 64, 0.5), ("b" * 64, 0.9)):
        for fold in range(3):
            more = {"selector_source": source, "selector_options": {"k": 1}, "study": "sweep"}
            add(store, "k=1", "/here/mine.py:Mine", score, fold, **more)
    first, second = collect(store).sweeps
    assert (first.dataset, second.dataset) == ("yeast [aaaaaaaa]", "yeast [bbbbbbbb]")
    for sweep_, score in ((first, 0.5), (second, 0.9)):
        assert {run.result["test"]["macro_auc"] for run in sweep_.points[1,] if run.result} == {
            score
        }


def test_settings_in_other_words_are_the_same_settings(store: Store) -> None:
    add(store, "Random", "random", 0.7, weight_decay=0)
    add(store, "D2ACE", "d2ace", 0.8, weight_decay=0.0)
    images = {"data": "corel5k-images", "model": "image_mlp", "study": "images"}
    add(store, "Random", "random", 0.7, root="/here", **images)
    add(store, "D2ACE", "d2ace", 0.8, root="/elsewhere", **images)
    found = {tuple(one.datasets) for one in collect(store).comparisons}
    assert found == {("yeast",), ("corel5k-images",)}


def test_of_the_same_work_the_run_that_knows_more_is_shown(store: Store) -> None:
    for fold in range(5):
        for epoch_loss in (False, True):
            add(store, "D2ACE", "d2ace", 0.8, fold, epoch_loss=epoch_loss)
    runs = comparison(store).runs("yeast", "D2ACE")
    assert [run.config["epoch_loss"] for run in runs] == [True] * 5


def test_two_methods_go_before_one_with_more_datasets(store: Store) -> None:
    for place in range(9):
        add(store, "D2ACE", "d2ace", 0.8, data=f"/data/set{place}.npz")
        if place < 4:
            add(store, "Random", "random", 0.7, data=f"/data/set{place}.npz")
    block = comparison(store).block("macro_auc")
    assert len(block) == 4
    assert block["set0"] == {"D2ACE": 0.8, "Random": 0.7}


def test_no_method_is_marked_where_folds_differ(store: Store) -> None:
    for fold, score in enumerate((0.9, 0.5, 0.5)):
        add(store, "Random", "random", score, fold)
    add(store, "D2ACE", "d2ace", 0.88)
    one = comparison(store)

    def places() -> list[int]:
        made = scores("scores", one, "macro_auc", judge(one, "macro_auc"), published.load(None))
        return [cell.place for cell in made.rows[0][1:]]

    assert places() == [0, 0]
    for fold in (1, 2):
        add(store, "D2ACE", "d2ace", 0.88, fold)
    one = comparison(store)
    assert places() == [2, 1]


def test_gains_over_fewer_datasets_are_marked_so(store: Store) -> None:
    for data in ("yeast", "scene"):
        add(store, "Random", "random", 0.7, data=data)
        add(store, "D2ACE", "d2ace", 0.71, data=data)
    add(store, "DIHCL", "dihcl", 0.75)
    rows = {row[0].text: row[1] for row in gains("gains", comparison(store)).rows}
    assert "1 of 2 datasets" in rows["DIHCL"].note
    assert "of 2 datasets" not in rows["D2ACE"].note


def test_a_variant_of_random_may_be_best(store: Store) -> None:
    for data in ("yeast", "scene"):
        add(store, "Random", "random", 0.7, data=data)
        more = {"selector_options": {"preset": "reference"}}
        add(store, "Random (reference)", "random", 0.8, data=data, **more)
    one = comparison(store)
    found = findings(one)
    table = glance("glance", found)
    assert {finding.best for finding in found} == {"Random", "Random (reference)"}
    assert any(row[7].text == "–" for row in table.rows)
    assert all(sentences(finding) for finding in found)


def test_equal_differences_are_ties_in_the_test(store: Store) -> None:
    """.8212 - .8200 is not .3512 - .3500 in floating point."""
    levels = (0.82, 0.35, 0.7, 0.62, 0.71, 0.85)
    gaps = (0.0012, 0.0012, -0.0012, 0.0031, -0.0031, 0.0024)
    for place, (level, gap) in enumerate(zip(levels, gaps, strict=True)):
        add(store, "Random", "random", level, data=f"/data/set{place}.npz")
        add(store, "D2ACE", "d2ace", level + gap, data=f"/data/set{place}.npz")
    whole = {i: {"D2ACE": float(round(gap * 1e4)), "Random": 0.0} for i, gap in enumerate(gaps)}
    exact = evaluation.wilcoxon(whole, reference="D2ACE")["Random"].p_value
    assert judge(comparison(store), "macro_auc").tests["Random"].p_value == exact


def test_files_of_the_same_name_are_not_averaged(store: Store) -> None:
    for folder, score in (("a", 0.6), ("b", 0.8)):
        add(store, "Random", "random", score, data=f"/data/{folder}/mine.npz")
    one = comparison(store)
    assert one.datasets == ["a/mine", "b/mine"]
    assert one.means("macro_auc") == {"a/mine": {"Random": 0.6}, "b/mine": {"Random": 0.8}}


def test_ranks_use_the_folds_that_all_methods_have(store: Store) -> None:
    for fold, score in enumerate((0.5, 0.9, 0.9)):
        add(store, "Random", "random", score, fold)
    add(store, "D2ACE", "d2ace", 0.6, fold=0)
    assert comparison(store).block("macro_auc") == {"yeast": {"D2ACE": 0.6, "Random": 0.5}}


def test_folds_and_seeds_are_counted_where_they_are(store: Store) -> None:
    for fold in range(3):
        for seed in range(2):
            add(store, "Random", "random", 0.7, fold, seed)
    add(store, "Random", "random", 0.7, data="birds")
    one = comparison(store)
    assert one.spread(["yeast"]) == "3 folds and 2 seeds"
    assert one.spread(["birds"]) == "1 fold and 1 seed"
    assert one.spread() == "1 to 3 folds and 1 to 2 seeds"


def test_methods_without_a_common_fold_are_not_ranked(store: Store) -> None:
    add(store, "Random", "random", 0.5, fold=0)
    add(store, "D2ACE", "d2ace", 0.6, fold=1)
    assert comparison(store).block("macro_auc") == {}


def test_a_tie_is_called_one(store: Store) -> None:
    add(store, "Random", "random", 0.7)
    add(store, "D2ACE", "d2ace", 0.7)
    laboratory = collect(store)
    first, words, *_ = headline(laboratory, findings(laboratory.comparisons[0]))
    assert first == "No method is shown to be better than Random."
    assert words.startswith("D2ACE and Random both have the best average rank in 4 of 4")


def test_a_study_on_the_side_does_not_decide_the_headline(store: Store) -> None:
    add(store, "D2ACE", "d2ace", 0.8, study="longer", data="scene")
    add(store, "Random", "random", 0.7, study="longer", data="scene")

    def words() -> str:
        laboratory = collect(store)
        found = [finding for one in laboratory.comparisons for finding in findings(one)]
        return headline(laboratory, found)[1]

    assert words().startswith("D2ACE has the best average rank in 3 of 4 tables")
    add(store, "D2ACE", "d2ace", 0.7)
    add(store, "Random", "random", 0.8)
    assert words().startswith("Random has the best average rank in 3 of 4 tables")


def test_differences_between_seeds_are_taken_within_folds(store: Store) -> None:
    """Folds lie far apart and seeds do not: only the seeds count."""
    for seed, shift in enumerate((0.0, 0.02)):
        for fold, score in enumerate((0.5, 0.9)):
            add(store, "Random", "random", score + shift, fold, seed)
            add(store, "D2ACE", "d2ace", score + 0.01, fold, seed)
    table = seeds("seeds", comparison(store), "macro_auc")
    assert table is not None
    shown = [[cell.text for cell in row] for row in [*table.rows, *table.foot]]
    assert shown == [
        ["yeast", "0", "0.7000", "0.7100"],
        ["yeast", "1", "0.7200", "0.7100"],
        ["yeast", "sd", "0.0141", "0.0000"],
    ]
    assert [row[3].note for row in table.rows] == ["+0.0100", "−0.0100"]
    loss = seeds("seeds", comparison(store), "ranking_loss")
    assert loss is not None
    assert [row[3].note for row in loss.rows] == ["−0.0100", "+0.0100"]


def test_seeds_are_compared_on_the_folds_that_they_share(store: Store) -> None:
    for fold, score in enumerate((0.5, 0.9)):
        add(store, "Random", "random", score, fold, seed=0)
    add(store, "Random", "random", 0.52, fold=0, seed=1)
    table = seeds("seeds", comparison(store), "macro_auc")
    assert table is not None
    assert [row[2].text for row in table.foot] == ["0.0141"]


def test_one_seed_makes_no_table_of_seeds(store: Store) -> None:
    add(store, "Random", "random", 0.5)
    assert seeds("seeds", comparison(store), "macro_auc") is None


def swept(store: Store, size: int, scores: dict[int, float]) -> None:
    for fold, score in scores.items():
        options = {"neighbors": size}
        add(store, f"K={size}", "d2ace", score, fold, study="sweep", selector_options=options)


def shown(table: ReportTable, heading: str) -> list[str]:
    place = table.columns.index(heading)
    return [row[place].text for row in table.rows]


def test_values_of_a_sweep_are_compared_on_the_folds_that_all_have(store: Store) -> None:
    swept(store, 4, {0: 0.5, 1: 0.9})  # the second fold is an easy one
    swept(store, 6, {0: 0.6})
    (one,) = collect(store).sweeps
    table = sweep("sweep", one)
    assert shown(table, "Macro-AUC") == ["0.5000", "0.6000"]
    assert [row[1].place for row in table.rows] == [2, 1]
    assert "Without 1 run on folds that not every value has." in table.caption
    swept(store, 6, {1: 0.92})
    (one,) = collect(store).sweeps
    table = sweep("sweep", one)
    assert shown(table, "Macro-AUC") == ["0.7000", "0.7600"]
    assert "Without" not in table.caption
    assert [text.split()[0] for text in shown(table, "Macro-AUC against 6")] == ["−0.0600", "–"]
    (row,) = [r for r in table.data or [] if (r["neighbors"], r["metric"]) == ("4", "ranking_loss")]
    assert row["difference"] == pytest.approx(0.06)


def test_values_without_a_common_fold_are_not_marked(store: Store) -> None:
    swept(store, 4, {1: 0.9})
    swept(store, 6, {0: 0.6})
    (one,) = collect(store).sweeps
    table = sweep("sweep", one)
    assert [row[1].place for row in table.rows] == [0, 0]
    assert shown(table, "Macro-AUC against 6") == ["–", "–"]
    assert "No fold was run with every value" in table.caption


def test_variants_on_different_folds_are_not_marked(store: Store) -> None:
    for fold, score in enumerate((0.5, 0.9)):
        add(store, "A", "d2ace", score, fold, study="ablation")
    options = {"correlation": "none"}
    add(store, "H", "d2ace", 0.6, study="ablation", selector_options=options)
    (study,) = collect(store).ablations
    table = ablation("ablation", study, "yeast")
    assert shown(table, "Macro-AUC") == ["0.7000", "0.6000"]
    assert [row[2].place for row in table.rows] == [0, 0]
    assert shown(table, "Macro-AUC against A") == ["–", "+0.1000"]
    add(store, "H", "d2ace", 0.7, fold=1, study="ablation", selector_options=options)
    (study,) = collect(store).ablations
    assert [row[2].place for row in ablation("ablation", study, "yeast").rows] == [1, 2]
