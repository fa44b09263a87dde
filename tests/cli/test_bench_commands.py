"""The commands as typed: what they plan, what they say, what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from made_runs import result, spec
from typer.testing import CliRunner

import d2ace
from d2ace._util.errors import UserError
from d2ace.benchmark.plan.specs import RunSpec
from d2ace.benchmark.store.database import Store
from d2ace.cli import bench as commands
from d2ace.data import make_multilabel, save

SMALL = ("--datasets", "digits", "--models", "mlp", "--run-folds", "0")


def typed(*words: str) -> str:
    """What a command prints; an error is raised as it is."""
    app = typer.Typer()
    for name in commands.__all__:
        app.command()(getattr(commands, name))
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def plan(*words: str) -> list[dict]:
    return json.loads(typed(*words, "--dry-run", "--json"))["runs"]


def test_a_dry_run_shows_the_plan_and_touches_nothing(tmp_path):
    shown = typed("bench", *SMALL, "--selectors", "random,d2ace", "--epochs", "3", "--dry-run")
    assert "2 runs to do; 0 finished, 0 failed before" in shown
    assert shown.count("digits") == 2
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_knows_what_is_done(tmp_path):
    words = ("bench", *SMALL, "--selectors", "random,recent,d2ace")
    settings = {"data": "digits", "model": "mlp"}
    done = RunSpec("main", "Random", {**settings, "selector": "random"})
    failed = RunSpec("main", "Recent", {**settings, "selector": "recent"})
    with Store(tmp_path / "runs.db") as store:
        store.add(done, result(done))
        store.fail(failed, "no")
        store.export(tmp_path / "out" / "results.csv")
    assert [row["status"] for row in plan(*words)] == ["finished", "failed", "pending"]
    assert [row["status"] for row in plan(*words, "--retry")] == ["finished", "pending", "pending"]
    taken = ("--db", "other.db", "--from", "out/results.csv")
    assert [row["status"] for row in plan(*words, *taken)] == ["finished", "failed", "pending"]
    assert not (tmp_path / "other.db").exists()
    assert "1 runs to do, about 1.75 s" in typed(*words, "--dry-run")


def test_runs_of_a_file_count_as_finished(tmp_path):
    run = RunSpec("main", "Random", {"data": "digits", "model": "mlp", "selector": "random"})
    with Store(tmp_path / "old.db") as store:
        store.add(run, result(run))
        store.export(tmp_path / "results.csv")
    shown = typed("bench", *SMALL, "--selectors", "random", "--from", "results.csv", "--json")
    assert json.loads(shown)["stored"] == 1
    with Store(tmp_path / "runs.db") as store:
        assert store.has(run)


def test_settings_and_filters():
    words = ("bench", "--datasets", "digits", "--models", "mlp,clif", "--seeds", "0,3")
    rows = plan(*words, "--only", "method=D2ACE,random", "--only", "model=CLIF", "--only", "fold=1")
    assert {(r["model"], r["method"], r["fold"], r["seed"]) for r in rows} == {
        ("CLIF", method, 1, seed) for method in ("Random", "D2ACE") for seed in (0, 3)
    }
    named = "D2ACE (window=3, pressure=8)"
    grid = Path("mine.toml")
    grid.write_text(
        'datasets = ["digits"]\nmodels = ["mlp"]\n'
        'selectors = ["random", {name = "d2ace", options = {window = 3, pressure = 8}}]'
    )
    rows = plan("bench", str(grid), "--only", f"method={named}")
    assert {row["method"] for row in rows} == {named}
    usual, changed = (
        plan("bench", *SMALL, *more) for more in ((), ("--set", "learning_rate=0.01"))
    )
    assert not {r["key"] for r in usual} & {r["key"] for r in changed}


def test_only_knows_datasets_as_a_dry_run_shows_them(tmp_path):
    for place, folder in enumerate(("one", "two")):
        (tmp_path / folder).mkdir()
        save(make_multilabel(60, 4, 3, seed=place), tmp_path / folder / "tiny.npz")
    words = ("bench", "--datasets", "one/tiny.npz,two/tiny.npz", *SMALL[2:])
    assert {row["dataset"] for row in plan(*words)} == {"one/tiny", "two/tiny"}
    everyone = plan(*words, "--only", "dataset=tiny")
    assert len(everyone) == 2 * len(d2ace.SELECTORS)
    kept = {row["key"] for row in everyone if row["dataset"] == "two/tiny"}
    assert {row["key"] for row in plan(*words, "--only", "dataset=two/tiny")} == kept
    with pytest.raises(UserError, match="dataset is one of one/tiny, two/tiny"):
        plan(*words, "--only", "dataset=three/tiny")


def test_only_tells_labels_of_one_run_apart():
    Path("mine.toml").write_text(
        'datasets = ["digits"]\nmodels = ["mlp"]\nrun_folds = [0]\n'
        '[[study]]\nkind = "ablation"\nvariants = ["A"]\n'
        '[[study]]\nkind = "sweep"\nvary = {K = [6]}\n'
    )
    assert len({row["key"] for row in plan("bench", "mine.toml")}) == 1
    (row,) = plan("bench", "mine.toml", "--only", "study=sweep")
    assert (row["study"], row["method"]) == ("sweep", "K=6")


def test_ablate_and_sweep_plan_their_studies():
    rows = plan("ablate", *SMALL, "--variants", "A,H")
    assert [(r["study"], r["method"]) for r in rows] == [("ablation", "A"), ("ablation", "H")]
    assert len(plan("ablate", "--datasets", "digits")) == 11 * 5
    rows = plan("sweep", "K=0,n", "lambda2=0.5", *SMALL)
    assert [r["method"] for r in rows] == ["K=0", "K=n", "lambda2=0.5"]
    assert {r["study"] for r in rows} == {"sweep"}
    assert len(plan("sweep", "mix", *SMALL)) == 25
    rows = plan("sweep", "window=3,5", "--selector", "recent", *SMALL)
    assert [r["method"] for r in rows] == ["n_t=3", "n_t=5"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("bench",), r"name a grid \(quick, or a \.toml file\), or give"),
        (("bench", "quik"), "did you mean 'quick'"),
        (("bench", *SMALL, "--set", "epoch=3"), "the options: unknown key 'epoch'"),
        (("bench", *SMALL, "--set", "learning_rate=nan"), "setting learning_rate is nan; write a"),
        (("bench", *SMALL, "--set", "epochs"), "--set takes key=value, got 'epochs'"),
        (("bench", *SMALL, "--engine", "slurm"), "--engine is 'slurm'; choose from local, ray"),
        (("bench", *SMALL, "--address", "auto"), "--address works only with --engine ray"),
        (("bench", *SMALL, "--only", "speed=3"), "--only takes one of dataset, model"),
        (("bench", *SMALL, "--only", "method=X"), "fits no run; method is one of Active"),
        (("bench", *SMALL, "--seeds", str(2**63)), "whole numbers up to 9223372036854775807"),
        (("ablate",), "the options: datasets must be a list"),
        (("sweep", "K=1,two", *SMALL), "the options: neighbors must be"),
        (("sweep", "warp=1", *SMALL), "d2ace has no option 'warp'"),
        (("compare", "a.db", "b.db"), r"there is no store a\.db"),
        (("bench", *SMALL, "--from", "absent.csv"), r"no file absent\.csv"),
    ],
)
def test_mistyped_commands_are_refused(words, said):
    with pytest.raises(UserError, match=said) as error:
        typed(*words)
    assert "\n" not in str(error.value)


# compare ------------------------------------------------------------------------------------


@pytest.fixture
def two_stores(tmp_path):
    with Store(tmp_path / "a.db") as a, Store(tmp_path / "b.db") as b:
        for fold in range(4):
            old, new = spec(fold=fold), spec(fold=fold, epochs=50)
            a.add(old, result(old, 0.70))
            if fold < 3:
                b.add(new, result(new, 0.72 + fold / 100) | {"seconds": {"total": 3.0}})
        gone, came = spec("Random", selector="random"), spec("DIHCL", selector="dihcl")
        a.add(gone, result(gone))
        b.add(came, result(came) | {"environment": {"d2ace": "0.2.0"}})
    return "a.db", "b.db"


def test_compare_says_what_changed(two_stores):
    found = json.loads(typed("compare", *two_stores, "--json"))
    (row,) = found["common"]
    assert (row["dataset"], row["model"], row["method"]) == ("emotions", "CLIF", "D2ACE")
    assert (row["pairs"], row["only_first"], row["only_second"]) == (3, [[3, 0]], [])
    auc = row["metrics"]["macro_auc"]
    assert auc["first"] == pytest.approx(0.70)
    assert auc["second"] == pytest.approx(0.73)
    assert auc["difference"] == pytest.approx(0.03)
    # Student's t with two degrees of freedom; the folds share training rows.
    half = 4.302653 * 0.01 * (1 / 3 + 119 / 427) ** 0.5
    assert (auc["low"], auc["high"]) == pytest.approx((0.03 - half, 0.03 + half), abs=1e-6)
    assert row["seconds"]["difference"] == pytest.approx(1.25)
    assert row["settings"] == {"epochs": [100, 50]}
    assert [other["method"] for other in found["only_first"]] == ["Random"]
    assert [other["method"] for other in found["only_second"]] == ["DIHCL"]
    assert found["versions"] == {"first": ["0.1.0"], "second": ["0.1.0", "0.2.0"]}


def test_compare_on_a_screen(two_stores):
    shown = typed("compare", *two_stores)
    assert "0.7000 -> 0.7300 (+0.0300, -0.0037 to +0.0637)" in shown
    assert "only in first: main / emotions / CLIF / Random (1 runs)" in shown
    assert "only in first: main / emotions / CLIF / D2ACE, fold 3 of seed 0" in shown.splitlines()
    assert "setting epochs: 100 -> 50" in shown
    assert "d2ace: 0.1.0 -> 0.1.0, 0.2.0" in shown


def test_compare_prints_the_mean_of_its_interval(tmp_path):
    """A fold with five seeds counts once, in the means as in the interval."""
    with Store(tmp_path / "a.db") as a, Store(tmp_path / "b.db") as b:
        for fold, seed in [*((0, seed) for seed in range(5)), (1, 0), (2, 0)]:
            run = spec(fold=fold, seed=seed)
            a.add(run, result(run, 0.5))
            b.add(run, result(run, 0.47 if fold == 0 else 0.53))
    (row,) = json.loads(typed("compare", "a.db", "b.db", "--json"))["common"]
    auc = row["metrics"]["macro_auc"]
    assert (auc["first"], auc["second"]) == pytest.approx((0.5, 0.51))
    assert auc["difference"] == pytest.approx((auc["low"] + auc["high"]) / 2)


def test_runs_of_different_settings_are_different_lines(tmp_path):
    with Store(tmp_path / "a.db") as a, Store(tmp_path / "b.db") as b:
        for store, scores in ((a, {20: 0.6, 100: 0.8}), (b, {20: 0.65, 100: 0.7, 50: 0.5})):
            for epochs, score in scores.items():
                run = spec(epochs=epochs, epoch_loss=store is b)
                store.add(run, result(run, score))
        for store, rate in ((a, 0.01), (b, 0.02)):
            run = spec("Random", selector="random", learning_rate=rate)
            store.add(run, result(run))
    found = json.loads(typed("compare", "a.db", "b.db", "--json"))
    lines = {
        (row["method"], row["with"].get("epochs")): (
            row["metrics"]["macro_auc"]["difference"],
            row["settings"],
        )
        for row in found["common"]
    }
    extra = {"epoch_loss": [False, True]}
    assert lines == {
        ("D2ACE", 20): (pytest.approx(0.05), extra),
        ("D2ACE", 100): (pytest.approx(-0.1), extra),
        ("Random", None): (0.0, {"learning_rate": [0.01, 0.02]}),
    }
    assert [(row["method"], row["with"]) for row in found["only_second"]] == [
        ("D2ACE", {"epochs": 50})
    ]
    shown = typed("compare", "a.db", "b.db")
    assert "emotions [epochs=20]" in shown
    assert "only in second: main / emotions [epochs=50] / CLIF / D2ACE (1 runs)" in shown
    rate = "setting learning_rate: 0.01 -> 0.02 in main / emotions / CLIF / Random"
    assert rate in shown.splitlines()


def test_moved_files_are_the_same_and_changed_ones_are_named(tmp_path):
    with Store(tmp_path / "a.db") as a, Store(tmp_path / "b.db") as b:
        for store, place, name, source in (
            (a, "/a", "same", "1"),
            (b, "/b", "same", "1"),
            (a, "/a", "other", "2"),
            (b, "/a", "other", "3"),
        ):
            run = spec(data=f"{place}/{name}.npz", data_source=source * 64)
            store.add(run, result(run))
    rows = json.loads(typed("compare", "a.db", "b.db", "--json"))["common"]
    assert {row["dataset"]: row["settings"] for row in rows} == {
        "same": {},
        "other": {"data_source": ["2" * 64, "3" * 64]},
    }


def test_compare_says_where_the_data_was_another(tmp_path):
    run = spec()
    for name, digest in (("a.db", "1" * 64), ("b.db", "2" * 64)):
        with Store(tmp_path / name) as store:
            found = result(run)
            store.add(run, found | {"dataset": found["dataset"] | {"digest": digest}})
    assert 'setting rows: "11111111" -> "22222222"' in typed("compare", "a.db", "b.db")


def test_a_store_compared_with_itself(two_stores):
    shown = typed("compare", two_stores[0], two_stores[0])
    assert "only in" not in shown
    assert "setting" not in shown
    assert shown.count("(+0.0000") == 2 * 3
