"""Reports on little: what is missing is named, nothing is claimed; and the parts of a report."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import report_data
from typer.testing import CliRunner

from d2ace._util.errors import UserError
from d2ace.benchmark.store.database import Store
from d2ace.report import compare, published, sections, summary
from d2ace.report.collect import collect
from d2ace.report.figures import style
from d2ace.report.figures.cases import chosen_labels, shares
from d2ace.report.judgement import judge
from d2ace.report.method_names import METHODS, order
from d2ace.report.page import write_report
from d2ace.report.tables import cases as case_tables
from d2ace.report.tables import convergence as convergence_tables
from d2ace.report.tables import cost as cost_tables
from d2ace.report.tables.equivalence import equivalence as equivalence_table


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
def test_same_store_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    with report_data.small(tmp_path / "runs.db") as store:
        write_report(store, tmp_path / "one")
    script = (
        "import sys; from d2ace.report.page import write_report; "
        "from d2ace.benchmark.store.database import Store; "
        "write_report(Store(sys.argv[1]), sys.argv[2])"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "runs.db"), str(tmp_path / "two")]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "7"})
    one, two = files(tmp_path / "one"), files(tmp_path / "two")
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []
    page = one["index.html"].decode()
    # What was not run is named, with the command that runs it.
    for sentence in (
        "No ablation was run; run: d2ace ablate --datasets birds",
        "No sweep over the neighbourhood size K was run; run: d2ace sweep K --datasets birds",
        "No sweep over the mixing schedule (p start, p end) was run; run: d2ace sweep mix",
        "No sweep over λ2 (flip_smoothing) was run; run: d2ace sweep lambda2",
        "No run was recorded",
    ):
        assert sentence in page
    assert "With 1 dataset the signed-rank test has no power" in page
    assert not [name for name in one if "ablation" in name or "sweep" in name]


def test_one_run_and_no_run(tmp_path: Path) -> None:
    with Store(tmp_path / "empty.db") as store:
        written = write_report(store, tmp_path / "empty")
        assert (
            written.headline == "The store holds no finished run: there is nothing to report yet."
        )
        assert "The store is empty; run: d2ace bench quick" in written.page.read_text("utf-8")
    with Store(tmp_path / "one.db") as store:
        report_data.add(store, "main", "D2ACE", data="emotions", epochs=2, history=False)
        written = write_report(store, tmp_path / "one")
        page = written.page.read_text(encoding="utf-8")
    assert "there is nothing to compare yet" in written.headline
    assert "Only D2ACE has runs" in page
    assert "Random was not run" in page


def test_command_writes_the_report_and_says_what_it_found(tmp_path: Path) -> None:
    import typer

    from d2ace.cli.report import report

    app = typer.Typer()
    app.command()(report)
    with Store(tmp_path / "runs.db") as store:
        report_data.add(store, "main", "D2ACE", data="emotions", epochs=2, history=False)
    db, out = str(tmp_path / "runs.db"), str(tmp_path / "out")
    done = CliRunner().invoke(app, [db, "-o", out])
    assert done.exit_code == 0, done.output
    assert "nothing to compare yet" in done.output
    assert (tmp_path / "out" / "index.html").is_file()
    missing = CliRunner().invoke(app, [str(tmp_path / "none.db"), "-o", out])
    assert isinstance(missing.exception, UserError)
    taken = CliRunner().invoke(app, [db, "-o", db])
    assert isinstance(taken.exception, UserError)


# Findings -----------------------------------------------------------------------------------


def stored(
    path: Path, score: Callable[[int, str, int], float], datasets: int, methods: list[str]
) -> Store:
    """Three folds on each of some datasets, with Macro-AUC by a rule."""
    store = Store(path)
    for place, method, fold in itertools.product(range(datasets), methods, range(3)):
        spec = report_data.RunSpec(
            "main", method, {"data": f"set{place}", "selector": method.lower(), "fold": fold}
        )
        result = report_data.result(spec)
        result["history"] = []
        result["test"]["macro_auc"] = score(place, method, fold)
        store.add(spec, result)
    return store


def said(store: Store) -> str:
    (comparison,) = collect(store).comparisons
    found = report_data.findings(comparison)
    return " ".join(summary.sentences(found[0])).replace("\u00a0", " ")


def test_a_clear_win_is_called_significant(tmp_path: Path) -> None:
    def score(place: int, method: str, fold: int) -> float:
        return 0.7 + 0.01 * fold + 0.001 * place + (0.02 + 0.001 * place) * (method == "D2ACE")

    with stored(tmp_path / "runs.db", score, 8, ["Random", "D2ACE"]) as store:
        text = said(store)
    assert "D2ACE has the best average rank, 1.00 of 2 methods" in text
    assert "better than Random by 0.0235 on average" in text
    assert "significant at 5 %." in text
    assert "not significant" not in text


def test_a_difference_within_noise_is_called_so(tmp_path: Path) -> None:
    def score(place: int, method: str, fold: int) -> float:
        wobble = 0.01 * (-1) ** (place + fold) * (method == "D2ACE")
        return 0.7 + wobble + (0.0001 if method == "D2ACE" else 0.0)

    with stored(tmp_path / "runs.db", score, 6, ["Random", "D2ACE"]) as store:
        text = said(store)
    assert ": within noise." in text
    assert "not significant at 5 %" in text


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ((0.0010, 0.0012, 0.0014, 0.0010), "equivalent"),
        ((0.0200, 0.0210, 0.0190, 0.0220), "better"),
        ((-0.0200, -0.0210, -0.0190, -0.0220), "worse"),
        ((0.0200, -0.0200, 0.0010, 0.0), "undecided"),
    ],
)
def test_equivalence_to_random_over_datasets(
    tmp_path: Path, gains: tuple[float, ...], verdict: str
) -> None:
    def score(place: int, method: str, fold: int) -> float:
        return 0.7 + 0.01 * fold + gains[place] * (method == "D2ACE")

    with stored(tmp_path / "runs.db", score, 4, ["Random", "D2ACE"]) as store:
        report_data.add(store, "main", "Recent", data="set0", selector="recent", history=False)
        (comparison,) = collect(store).comparisons
    table = equivalence_table("equivalence", comparison)
    assert table is not None
    (row,) = table.data or []  # Recent has one dataset: no verdict
    assert (row["method"], row["datasets"], row["verdict"]) == ("D2ACE", 4, verdict)
    assert row["difference"] == pytest.approx(sum(gains) / 4)
    assert [cell.text for cell in table.rows[0]][-1] == verdict


@pytest.mark.parametrize(
    ("datasets", "methods"), [(1, ["Random", "D2ACE"]), (3, ["Active", "D2ACE"])]
)
def test_without_random_or_datasets_there_is_no_equivalence(
    tmp_path: Path, datasets: int, methods: list[str]
) -> None:
    with stored(tmp_path / "runs.db", lambda *_: 0.7, datasets, methods) as store:
        page = sections.build(collect(store), published.load(None))
    tables = [
        table.name for part in page.sections for group in part.groups for table in group.tables
    ]
    assert any(name.startswith("ranks") for name in tables)
    assert not any(name.startswith("equivalence") for name in tables)


def test_each_method_on_its_way_to_the_best_of_the_other(tmp_path: Path) -> None:
    """Roles swapped, so that neither has to beat the maximum of a rival that has not to."""
    curves = {  # of three folds: D2ACE gets there in two, once at the same height as Random
        ("Random", 0): [0.5, 0.6, 0.7],
        ("D2ACE", 0): [0.7, 0.8, 0.7],
        ("Random", 1): [0.5, 0.7, 0.6],
        ("D2ACE", 1): [0.5, 0.6, 0.7],
        ("Random", 2): [0.6, 0.9, 0.8],
        ("D2ACE", 2): [0.5, 0.6, 0.6],
    }
    with Store(tmp_path / "runs.db") as store:
        for (method, fold), scores in curves.items():
            config = {"data": "emotions", "selector": method.lower(), "fold": fold, "epochs": 3}
            spec = report_data.RunSpec("main", method, config)
            result = report_data.result(spec)
            for entry, score in zip(result["history"], scores, strict=True):
                entry["validation"]["macro_auc"] = score
            store.add(spec, result)
        (comparison,) = collect(store).comparisons
    table = convergence_tables.targets("targets", comparison)
    assert table is not None
    own, other = (
        {row["method"]: row for row in table.data or []}[name] for name in ("D2ACE", "Random")
    )
    assert (own["reached"], own["runs"], own["epochs"]) == (2, 3, 3)  # 1, 3, never
    assert (own["baseline_reached"], own["baseline_epochs"]) == (2, 2)  # never, 2, 1
    assert (other["reached"], other["epochs"]) == (3, 2)
    assert table.rows[0][-1].note == "2 of 3\nRandom 2 of 3, 2"


def test_random_as_winner_is_reported_as_such(tmp_path: Path) -> None:
    def score(place: int, method: str, fold: int) -> float:
        return 0.7 + 0.001 * place + 0.0005 * fold - (0.02 + 0.001 * fold) * (method == "D2ACE")

    with stored(tmp_path / "runs.db", score, 3, ["Random", "D2ACE"]) as store:
        text = said(store)
    assert text.startswith("Random has the best average rank")
    assert "No method has a better average rank than Random." in text
    assert "D2ACE itself is worse than Random by 0.0210" in text


def test_gaps_do_not_spoil_the_ranks(tmp_path: Path) -> None:
    """A method with one dataset, and a dataset with one method, are left out and named."""
    with stored(tmp_path / "runs.db", lambda place, *_: 0.7, 4, ["Random", "D2ACE"]) as store:
        report_data.add(store, "main", "Recent", data="set0", selector="recent", history=False)
        report_data.add(store, "main", "D2ACE", data="alone", history=False)
        (comparison,) = collect(store).comparisons
        verdicts = judge(comparison, "macro_auc")
    assert set(verdicts.table) == {"set0", "set1", "set2", "set3"}
    assert verdicts.left_out == ["alone", "Recent"]
    assert verdicts.average_ranks == {"Random": 1.0, "D2ACE": 1.0}


def test_runs_of_other_settings_are_not_averaged_together(tmp_path: Path) -> None:
    with report_data.small(tmp_path / "runs.db") as store:
        report_data.add(store, "main", "Random", data="emotions", selector="random", epochs=2)
        (comparison,) = collect(store).comparisons
    assert comparison.datasets == ["emotions", "emotions [epochs=2]"]
    assert len(comparison.runs("emotions", "Random")) == 2


def test_runs_that_did_not_count_saving_have_zero_there(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        for selector, saved in (("random", None), ("d2ace", 0.5)):
            config = {"data": "emotions", "selector": selector, "epochs": 2}
            spec = report_data.RunSpec("main", report_data.METHODS[selector], config)
            result = report_data.result(spec)
            if saved is not None:
                result["seconds"]["save"] = 2 * saved
                for entry in result["history"]:
                    entry["seconds"]["save"] = saved
            store.add(spec, result)
        (comparison,) = collect(store).comparisons
    times = cost_tables.times("times", comparison)
    assert "Saving was not counted in 1 of 2 runs: it is 0 there." in times.caption
    place = times.columns.index("Saving")
    assert {row[1].text: row[place].text for row in times.rows} == {
        "Random": "0.00",
        "D2ACE": "1.00",
    }
    total = times.columns.index("Total")
    for row in times.rows:
        assert row[total].value == pytest.approx(sum(cell.value for cell in row[2:total]))
    own, other = (row[total].value for row in reversed(times.rows))
    assert isinstance(own, float)
    assert isinstance(other, float)
    assert times.rows[-1][-1].value == pytest.approx((own - 1.0) / other)  # what both counted
    targets = convergence_tables.targets("targets", comparison)
    assert targets is not None
    assert all(row["seconds"] is None or row["seconds"] > 0 for row in targets.data or [])
    assert any(row["method"] == "Random" and row["seconds"] for row in targets.data or [])


def test_a_study_of_cases_is_not_a_comparison(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        report_data.add(store, "case", "D2ACE", data="cal500", record=True, epochs=20)
        laboratory = collect(store)
    assert laboratory.comparisons == []
    assert len(laboratory.cases) == 1


# Case studies -------------------------------------------------------------------------------


def test_deciles_count_tiers_from_the_most_probable_down() -> None:
    rows = 90
    value = np.arange(rows, dtype=float)
    recording = {
        "epochs": np.array([20]),
        "P": (value / value.sum())[None],
        "outlier": value,
        "loss": value[::-1][None],
    }
    outlier = shares(recording, 20, "outlier")
    assert outlier.shape == (10, 3)
    np.testing.assert_allclose(outlier.sum(axis=1), 1)
    np.testing.assert_array_equal(outlier[0], [0, 0, 1])  # drawn most: highest tier
    np.testing.assert_array_equal(outlier[-1], [1, 0, 0])
    np.testing.assert_array_equal(shares(recording, 20, "loss")[0], [1, 0, 0])


def test_tied_probabilities_show_no_order_of_the_rows() -> None:
    rows = 900
    recording = {
        "epochs": np.array([20]),
        "P": np.full((1, rows), 1 / rows),
        "outlier": np.arange(rows, dtype=float),
    }
    found = shares(recording, 20, "outlier")
    assert np.abs(found - 1 / 3).max() < 0.2


def test_tied_properties_fill_all_tiers() -> None:
    rows = 900
    recording = {
        "epochs": np.array([20]),
        "P": np.arange(rows, dtype=float)[None],
        "outlier": np.repeat([0.0, 1.0], [300, 600]),  # two thirds have the highest score
    }
    found = shares(recording, 20, "outlier")
    np.testing.assert_allclose(found.mean(axis=0), 1 / 3)
    assert found[0, 0] == 0  # the rows drawn most have that score, half of them by chance high
    assert 0.3 < found[0, 2] < 0.7


def test_labels_of_the_weight_figure() -> None:
    auc = np.array([[0.5, 0.5, np.nan, 0.6], [0.9, 0.4, 0.9, 0.7]])
    assert chosen_labels(["a", "turn", "b", "sun"], auc) == [3, 1]  # as in the paper
    assert chosen_labels(["a", "b", "c", "d"], auc) == [0, 1]  # rose most, rose least
    assert chosen_labels(["a"], np.full((2, 1), np.nan)) == []


def test_tables_of_a_case_study_say_who_is_drawn_most_and_which_labels_count() -> None:
    rows = 90
    value = np.arange(rows, dtype=float)
    auc = np.column_stack([np.linspace(0.5, end, 30) for end in (0.6, 0.9, 0.8)])
    common = {"epochs": np.array([20]), "outlier": value, "loss": value[::-1][None]}
    labels = {"label_names": np.array(["sea", "sun", "turn"]), "label_auc": auc}
    recordings = {
        "Hard-Imb": [{**common, **labels, "P": value[None], "label_weight_rarity": 0 * auc + 1}],
        "D2ACE": [{**common, **labels, "P": value[::-1][None], "label_weight_hardness": 2 - auc}],
    }
    drawn = case_tables.drawn_most("name", "CLIF on corel5k", [20], recordings)
    assert [[cell.text for cell in row] for row in drawn.rows] == [
        ["high outlier score", "20", "100%", "0%"],
        ["high loss", "20", "0%", "100%"],
    ]
    weights = case_tables.label_weights("name", "CLIF on corel5k", recordings)
    assert weights is not None
    assert weights.columns[2:6] == [
        *("sun, epoch 20", "sun, epoch 30"),
        *("turn, epoch 20", "turn, epoch 30"),
    ]
    found = {(row[0].text, row[1].text): [cell.text for cell in row[2:]] for row in weights.rows}
    assert found["D2ACE", "validation AUC"][1::2] == ["0.9000", "0.8000", "–"]
    assert found["D2ACE", "weight by hardness"][1:] == [
        "1.1000",
        "1.3034",
        "1.2000",
        "−1.0000",
        "< 0.0001",
    ]
    assert found["Hard-Imb", "weight by rarity"] == [*["1.0000"] * 4, "–", "–"]  # all labels alike
    bare = {"ML-Unc": [{**common, **labels, "P": value[None]}]}
    assert case_tables.label_weights("name", "CLIF on corel5k", bare) is None


# Look ---------------------------------------------------------------------------------------


def test_a_method_looks_the_same_in_every_company() -> None:
    alone, among = style.looks(["D2ACE"]), style.looks([*METHODS, "Mine", "Yours"])
    assert alone["D2ACE"] == among["D2ACE"]
    assert len({look.colour for look in among.values()}) == len(among)
    assert len({look.marker for look in among.values()}) == len(among)
    assert len({str(look.dashes) for look in among.values()}) >= len(METHODS)
    variant = style.looks(["D2ACE", "D2ACE (reference)"])["D2ACE (reference)"]
    assert variant.colour == alone["D2ACE"].colour
    assert variant.hollow
    assert variant.dashes != alone["D2ACE"].dashes
    assert order(["Zed", "D2ACE (reference)", "Random", "D2ACE"]) == [
        "Random",
        "D2ACE",
        "D2ACE (reference)",
        "Zed",
    ]


def test_methods_of_the_library_have_the_palette_in_their_order() -> None:
    found = style.looks(METHODS)
    assert [look.colour for look in found.values()] == [
        colour for colour, _, _ in style.PALETTE[: len(METHODS)]
    ]
    assert [found[method].colour for method in ("Random", "ML-Unc", "D2ACE")] == [
        *("#8a8a8a", "#1062ad", "#dd4b10"),
    ]
    (mine,) = style.looks(["Mine"]).values()
    assert mine.colour not in {look.colour for look in found.values()}


def test_methods_differ_without_colour() -> None:
    assert len({marker for _, marker, _ in style.PALETTE}) == len(style.PALETTE)
    assert len({dashes for _, _, dashes in style.PALETTE}) == len(style.PALETTE)


VISION = {  # Machado, Oliveira and Fernandes 2009, complete absence of a cone
    "all cones": np.eye(3),
    "no red": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    matrix = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(matrix) @ np.clip(light, 0, 1) / np.array([0.9505, 1, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
def test_colours_stay_apart_for_every_eye(vision: str) -> None:
    """Of eight, that is: more cannot all be told apart without some cone, but for their markers."""
    colours = [colour for colour, _, _ in style.PALETTE[:8]]
    seen = [lab(np.array(VISION[vision]) @ linear(colour)) for colour in colours]
    apart = min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))
    assert apart > 20  # 2 can just be told apart side by side


@pytest.mark.parametrize("ground", ["#ffffff", "#15181c"])
def test_colours_are_visible_on_both_grounds(ground: str) -> None:
    def luminance(colour: str) -> float:
        return float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour))

    for colour, _, _ in style.PALETTE:
        low, high = sorted([luminance(colour), luminance(ground)])
        assert (high + 0.05) / (low + 0.05) > 1.9


def test_a_map_of_a_metric_that_no_run_has_is_left_out(tmp_path: Path) -> None:
    undefined: Any = None
    with Store(tmp_path / "runs.db") as store:
        for mix in itertools.product((0.3, 0.7), repeat=2):
            options = {"selector_options": {"mix": mix}}
            report_data.scored(store, str(mix), "d2ace", undefined, study="sweep", **options)
        written = write_report(store, tmp_path / "report")
    assert written.figures == 0


def test_the_path_of_a_store_is_refused_with_the_remedy(tmp_path):
    remedy = r"An opened store is needed, got 'runs\.db'; open it with d2ace\.benchmark\.Store"
    with pytest.raises(UserError, match=remedy):
        write_report("runs.db", tmp_path / "report")
    with Store(tmp_path / "runs.db") as store, pytest.raises(UserError, match=remedy):
        compare(store, "runs.db")
