"""Grids as they run: process by process, killed, resumed, failing, with methods of one's own."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from command import environment, interrupt, run, scores, start
from smallrun import small_table

from d2ace._util.errors import RunError
from d2ace._util.locks import locked
from d2ace.benchmark.plan.grid import Grid, load_grid, make_grid
from d2ace.benchmark.run.engines import LocalEngine
from d2ace.benchmark.run.monitor import Monitor
from d2ace.benchmark.run.runner import run_grid, runs_folder
from d2ace.benchmark.store.database import Store
from d2ace.cli.bench_view import ProgressLines
from d2ace.report.collect import collect
from d2ace.training import load_run

OWN = """
import os
import d2ace

class {name}(d2ace.D2ACE):
    name = "own"
    merges_updates = False  # so that an update is a batch
    updates = 0

    def update(self, index, probs):
        self.updates += 1
        {does}
        super().update(index, probs)
"""

CHEAP = [{"name": "mlp", "options": {"h": 32, "L": 1}}]
FILE = """
datasets = [{{name = "{data}", epochs = 1}}, {{name = "{data}", epochs = {epochs}}}]
models = [{{name = "mlp", options = {{h = 32, L = 1}}}}]
selectors = [{selectors}]
run_folds = [0]
warmup = 1
batch_size = 16
"""


def do(store: Store, grid: Grid, *, jobs: int = 2, view: Monitor | None = None, **options):
    def engine() -> LocalEngine:
        return LocalEngine(jobs, runs_folder(store) / "workers.log")

    return run_grid(store, grid.specs, engine, view or Monitor(len(grid.specs)), **options)


@pytest.fixture
def table(tmp_path) -> str:
    return small_table(tmp_path)


def small(table: str, **changes) -> Grid:
    usual = {"datasets": [table], "models": CHEAP, "run_folds": [0], "epochs": 1}
    return make_grid({"selectors": ["random"], **usual, **changes})


def own(folder: Path, name: str, does: str) -> str:
    path = folder / f"{name.lower()}.py"
    path.write_text(OWN.format(name=name, does=does))
    return f"{path}:{name}"


@pytest.mark.slow  # a minute; the next one kills a grid in every run of the tests
def test_the_quick_grid_killed_in_the_middle_and_resumed(tmp_path):
    every = len(load_grid("quick").specs)
    words = ("bench", "quick", "--jobs", "2", "--epochs", "2", "--set", "warmup=1")
    with start(*words, cwd=tmp_path) as process:
        lines, _ = interrupt(process, 6, signal.SIGKILL)
    dataset = "emotions" if "D2ACE_DATA" in environment() else "digits"
    said = re.findall(rf"^\[\d+/{every}\] (.*?): test macro_auc", "".join(lines), re.MULTILINE)
    with Store(tmp_path / "runs.db") as store:
        stored = {f"{r.dataset} / {r.model} / {r.method} / fold {r.fold}" for r in store.runs()}
    assert {title.rpartition(",")[0] for title in said} <= stored
    assert len(stored) < every

    out, err = run(*words, "--json", cwd=tmp_path)
    summary = json.loads(out)
    assert (summary["stored"], summary["failed"], summary["left"]) == (every, 0, 0)
    again = re.findall(r"^\[\d+/\d+\] (.*?): test", err, re.MULTILINE)
    assert len(again) == summary["finished_now"] == every - len(stored)
    assert not set(said) & set(again)
    with Store(tmp_path / "runs.db") as store:
        runs = store.runs()
    assert {run.dataset for run in runs} == {dataset}
    assert len({(run.model, run.method, run.fold) for run in runs}) == len(runs) == every
    assert all(0 < run.result["test"]["macro_auc"] <= 1 for run in runs)
    assert all(len(run.result["history"]) == 2 for run in runs)
    assert {path.suffix for path in (tmp_path / "runs.db.runs").iterdir()} <= {"", ".log"}


def test_killed_and_resumed_is_as_if_nothing_had_happened(tmp_path, table):
    """SIGKILL to the command's group in the middle of an epoch; its workers end by themselves."""
    victim = tmp_path / "victim"
    kill = f"""if self.updates == 50 and os.path.exists({str(victim)!r}):
            os.killpg(int(open({str(victim)!r}).read()), 9)"""
    own(tmp_path, "Deadly", kill)
    (tmp_path / "mine.toml").write_text(
        FILE.format(data=table, epochs=6, selectors='"balance", "deadly.py:Deadly", "dihcl"')
    )
    with start("bench", "mine.toml", "--jobs", "2", cwd=tmp_path) as process:
        victim.write_text(str(process.pid))
        process.communicate(timeout=240)
    assert process.returncode == -signal.SIGKILL
    victim.unlink()
    for lock in (tmp_path / "runs.db.runs").glob("*.lock"):
        with locked(lock, patience=60):  # possible once the orphan has ended
            pass
    assert list((tmp_path / "runs.db.runs").glob("*/checkpoint.pt"))
    with Store(tmp_path / "runs.db") as store:
        assert 0 < len(store.runs()) < 6
    for db in ("runs.db", "undisturbed.db"):
        run("bench", "mine.toml", "--jobs", "2", "--db", db, cwd=tmp_path)
    with Store(tmp_path / "runs.db") as one, Store(tmp_path / "undisturbed.db") as other:
        assert len(scores(one)) == 6
        assert scores(one) == scores(other)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_stop_gently(tmp_path, table, signum, code):
    path = tmp_path / "mine.toml"
    path.write_text(FILE.format(data=table, epochs=5000, selectors='"random"'))
    with start("bench", "mine.toml", "--json", cwd=tmp_path) as process:
        lines, out = interrupt(process, 1, signum)
    assert process.returncode == code
    summary = json.loads(out)
    assert (summary["stored"], summary["failed"], summary["left"]) == (1, 0, 1)
    assert "stopped with 1 runs left; run the same command again to resume" in lines[-1]
    with Store(tmp_path / "runs.db") as store:
        assert len(store.runs(status=None)) == 1


def test_failures_are_recorded_and_the_grid_goes_on(tmp_path, table):
    selectors = [
        own(tmp_path, "Raises", 'raise ValueError("no such luck")'),
        own(tmp_path, "Dies", "os.kill(os.getpid(), 9)"),
        own(tmp_path, "Leaves", "os._exit(3)"),
        "random",
    ]
    with Store(tmp_path / "runs.db") as store:
        grid = small(table, selectors=selectors)
        summary = do(store, grid, jobs=1)
        assert (summary.finished, summary.failed, summary.left) == (1, 3, 0)
        errors = {run.method: run.error for run in store.failed()}
        assert "no such luck" in errors.pop("Raises")
        assert errors == {
            "Dies": "the process of the run was killed by signal 9",
            "Leaves": "the process of the run ended with exit code 3",
        }
        assert [run.method for run in store.runs()] == ["Random"]
        again = do(store, grid, jobs=1)
        assert (again.stored, again.failed_before, again.finished, again.failed) == (1, 3, 0, 0)


def test_failed_runs_are_tried_again_when_asked_and_own_methods_just_work(tmp_path, table):
    flag = tmp_path / "no-network"
    flag.touch()
    selector = own(tmp_path, "Mine", f"assert not os.path.exists({str(flag)!r}), 'no network'")
    with Store(tmp_path / "runs.db") as store:
        grid = small(table, selectors=[selector, "random"])
        assert do(store, grid).failed == 1
        flag.unlink()
        assert do(store, grid).finished == 0
        assert do(store, grid, retry=True).finished == 1
        assert store.failed() == []
        mine = next(run for run in store.runs() if run.method == "Mine")
        assert mine.result["config"]["selector_source"] == mine.config["selector_source"]


def test_runs_that_finished_unseen_are_stored_not_repeated(tmp_path, table):
    grid = small(table)
    with Store(tmp_path / "one.db") as one:
        do(one, grid, keep=True)
        (folder,) = (tmp_path / "one.db.runs").glob("*/")
        kept = tmp_path / "two.db.runs" / folder.name
        kept.parent.mkdir()
        folder.rename(kept)
        with Store(tmp_path / "two.db") as two:
            engine = pytest.fail
            run_grid(two, grid.specs, engine, Monitor(1))
            assert scores(one) == scores(two)
    assert not kept.exists()


def test_a_damaged_result_is_made_anew_when_asked(tmp_path, table):
    grid = small(table)
    with Store(tmp_path / "runs.db") as store:
        folder = runs_folder(store) / grid.specs[0].key
        folder.mkdir(parents=True)
        (folder / "result.json").touch()
        assert do(store, grid).failed == 1
        assert do(store, grid, retry=True).finished == 1


def test_files_of_a_late_worker_are_removed_after_its_run_finished(tmp_path, table):
    with Store(tmp_path / "runs.db") as store:
        grid = small(table)
        do(store, grid)
        folder = runs_folder(store) / grid.specs[0].key
        folder.mkdir()
        (folder / "checkpoint.pt").touch()
        with locked(folder.with_name(f"{folder.name}.lock")):
            assert do(store, grid).stored == 1
            assert folder.exists()  # somebody works in it
        assert do(store, grid).stored == 1
        assert not folder.exists()
        folder.mkdir()
        (folder / "result.json").touch()
        do(store, grid)
        assert folder.exists()  # kept on purpose


def test_a_changed_data_file_is_new_work(tmp_path, table):
    with Store(tmp_path / "runs.db") as store:
        before = small(table)
        assert do(store, before).finished == 1
        assert do(store, small(table)).stored == 1
        with np.load(table) as content:
            X, Y = content["X"], content["Y"]
        np.savez(table, X=X[::-1], Y=Y)
        assert do(store, small(table)).finished == 1
        assert do(store, before).stored == 1
        keys = {run.key for run in store.runs()}
        assert len(keys) == 2
        assert {run.config["data"] for run in store.runs()} == {table}
        assert {one.dataset for one in collect(store).finished} == {
            f"table [{run.config['data_source'][:8]}]" for run in store.runs()
        }


def test_a_data_file_that_changes_under_a_grid_fails_its_runs(tmp_path, table):
    with Store(tmp_path / "runs.db") as store:
        grid = small(table)
        with np.load(table) as content:
            X, Y = content["X"], content["Y"]
        np.savez(table, X=X[::-1], Y=Y)
        assert do(store, grid).failed == 1
        (failed,) = store.failed()
        assert "table.npz has changed since this run was described" in failed.error


def test_one_run_for_several_labels(tmp_path, table, capsys):
    study = [{"kind": "ablation", "variants": ["A"]}, {"kind": "sweep", "vary": {"K": [6]}}]
    settings = {"datasets": [table], "models": CHEAP, "run_folds": [0], "epochs": 1}
    grid = make_grid({**settings, "study": study})
    with Store(tmp_path / "runs.db") as store:
        summary = do(store, grid, view=ProgressLines(1))
        assert summary.finished == 1
        assert {(run.study, run.method) for run in store.runs()} == {
            ("ablation", "A"),
            ("sweep", "K=6"),
        }
        do(store, make_grid({**settings, "selectors": ["d2ace"]}))
        assert [run.study for run in store.runs()] == ["ablation", "sweep", "main"]
    assert (
        "[1/1] table / MLP (L=1, h=32) / A / fold 0, seed 0: test macro_auc 0."
        in capsys.readouterr().err
    )


def test_two_grids_on_one_store(tmp_path, table):
    with Store(tmp_path / "runs.db") as store:
        folder = runs_folder(store)
        folder.mkdir()
        refused = pytest.raises(RunError, match=r"another process is running a grid on .*--db")
        with locked(folder / "lock"), refused:
            do(store, small(table))
        assert store.runs(status=None) == []


@pytest.mark.slow
def test_a_ray_cluster_gives_the_same_numbers(tmp_path, table):
    pytest.importorskip("ray")
    own(tmp_path, "Broken", "raise ValueError('out of order')")
    selectors = '"d2ace", "broken.py:Broken"'
    (tmp_path / "mine.toml").write_text(FILE.format(data=table, epochs=3, selectors=selectors))
    for engine in ("ray", "local"):
        words = ("--engine", engine, "--db", f"{engine}.db", "--jobs", "2")
        _, err = run("bench", "mine.toml", *words, cwd=tmp_path, code=1)
        assert re.search("2 runs failed, the first because: .*out of order; the same", err)
    with Store(tmp_path / "ray.db") as ray, Store(tmp_path / "local.db") as local:
        assert len(scores(ray)) == 2
        assert scores(ray) == scores(local)


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_worker_that_dies_between_runs_fails_one_run_alone(table, tmp_path) -> None:
    first, second = small(table, selectors=["random", "d2ace"]).specs
    before = children()
    engine = LocalEngine(1, tmp_path / "workers.log")

    def ended(spec) -> str:
        engine.start([(spec, tmp_path / "runs" / spec.key)])
        while True:
            for event in engine.events(1.0):
                if event.kind != "epoch":
                    return f"{event.kind} {event.error}"

    try:
        assert ended(first) == "finished "
        (worker,) = children() - before
        os.kill(int(worker), signal.SIGKILL)
        os.waitid(os.P_PID, int(worker), os.WEXITED | os.WNOWAIT)
        assert ended(second) == "failed the process of the run was killed by signal 9"
        assert ended(second) == "finished "
    finally:
        engine.close()


class TestInsights:
    def test_a_run_with_insights_keeps_its_folder(self, store, table):
        grid = small(table, insights=True)
        do(store, grid)
        (spec,) = grid.specs
        (run,) = store.runs()
        insights = load_run(runs_folder(store) / spec.key).insights
        assert insights is not None
        assert insights.n == 300
        without = small(table)
        do(store, without)
        assert not (runs_folder(store) / without.specs[0].key).exists()
        assert [each.result["test"] for each in store.runs()] == [run.result["test"]] * 2
        (comparison,) = collect(store).comparisons
        assert comparison.datasets == ["table"]  # and not one with a note in brackets

    def test_corrections_count_by_content(self, table, tmp_path):
        lines = "row,label,given,suggested\n"
        for name in ("one.csv", "two.csv", "other.csv"):
            (tmp_path / name).write_text(lines + "\n" * (name == "other.csv"))
        keys = [
            small(table, labels_from=str(tmp_path / name)).specs[0].key
            for name in ("one.csv", "two.csv", "other.csv")
        ]
        assert keys[0] == keys[1]
        assert len({*keys, small(table).specs[0].key}) == 3

    def test_corrections_that_are_not_there_are_told_before_anything_runs(self, table):
        with pytest.raises(ValueError, match=r"no file none\.csv for labels_from"):
            small(table, labels_from="none.csv")

    def test_they_are_a_setting_and_no_option(self, table):
        with pytest.raises(ValueError, match="insights is a setting of the run"):
            small(table, selectors=[{"name": "d2ace", "options": {"insights": True}}])
