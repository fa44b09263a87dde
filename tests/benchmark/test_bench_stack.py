"""Grids whose runs train as one: the numbers, the store and the errors of separate runs."""

from __future__ import annotations

import signal

import numpy as np
import pytest
from command import run, start

from d2ace._util.locks import locked
from d2ace.benchmark.plan.grid import make_grid
from d2ace.benchmark.run.engines import LocalEngine
from d2ace.benchmark.run.monitor import Monitor
from d2ace.benchmark.run.runner import run_grid, runs_folder
from d2ace.benchmark.run.stacks import stacks
from d2ace.benchmark.store.database import Store
from d2ace.training import load_run

OWN = """
import os
import d2ace

class {name}(d2ace.Recent):
    def update(self, index, probs):
        {does}
        super().update(index, probs)
"""

SMALL = {"models": [{"name": "mlp", "options": {"h": 16, "L": 2}}], "run_folds": [0], "epochs": 4}
SMALL |= {"warmup": 1, "batch_size": 32}
FILE = """
datasets = ["{data}"]
models = [{{name = "mlp", options = {{h = 16, L = 1}}}}]
selectors = ["random", "aiming.py:Aiming", "d2ace"]
run_folds = [0]
epochs = 12
warmup = 1
batch_size = 16
"""
EVERY = ["random", "d2ace", "dihcl", "balance", "hard_imb", "ml_unc", "info_batch", "trim"]


def do(store: Store, grid, *, stack: bool, jobs: int = 1, **options):
    def engine() -> LocalEngine:
        return LocalEngine(jobs, runs_folder(store) / "workers.log")

    return run_grid(store, grid.specs, engine, Monitor(len(grid.specs)), stack=stack, **options)


@pytest.fixture
def table(tmp_path) -> str:
    random = np.random.default_rng(5)
    X = random.random((300, 12))
    Y = X @ random.random((12, 4)) + random.random((300, 4)) > 3.5
    path = tmp_path / "table.npz"
    np.savez(path, X=X, Y=Y.astype(np.int8))
    return str(path)


def own(folder, name: str, does: str) -> str:
    path = folder / f"{name.lower()}.py"
    path.write_text(OWN.format(name=name, does=does))
    return f"{path}:{name}"


def results(store: Store) -> dict[str, dict]:
    return {run.key: run.result for run in store.runs()}


def same(one: dict[str, dict], other: dict[str, dict]) -> None:
    """Equal but for rounding: the same batches, scores and best epochs."""
    assert one.keys() == other.keys()
    for key, result in one.items():
        twin = other[key]
        assert result["config"] == twin["config"]
        assert result["best_epoch"] == twin["best_epoch"]
        assert result["test"] == pytest.approx(twin["test"], abs=1e-4)
        for entry, again in zip(result["history"], twin["history"], strict=True):
            assert entry["distinct_rows"] == again["distinct_rows"]
            assert entry["train_loss"] == pytest.approx(again["train_loss"], abs=1e-4)
            assert entry["validation"] == pytest.approx(again["validation"], abs=1e-4)


def test_a_stack_stores_what_separate_runs_store(tmp_path, table):
    grid = make_grid({"datasets": [table], "selectors": EVERY, "seeds": [0, 1], **SMALL})
    grid_of_shorter_epochs = make_grid(
        {
            "datasets": [table],
            "selectors": [{"name": "d2ace", "options": {"rows_per_epoch": 0.5}}, "random"],
            **SMALL,
        }
    )
    with Store(tmp_path / "one.db") as one, Store(tmp_path / "each.db") as each:
        for wanted in (grid, grid_of_shorter_epochs):
            assert do(one, wanted, stack=True).failed == 0
            assert do(each, wanted, stack=False, jobs=2).failed == 0
        same(results(one), results(each))
        assert do(one, grid, stack=True).stored == len(grid.specs)  # nothing is left to do
    assert not list((tmp_path / "one.db.runs").glob("*/*"))


def test_recordings_and_folders_are_those_of_separate_runs(tmp_path, table):
    grid = make_grid(
        {"datasets": [table], "selectors": ["random", "d2ace"], **SMALL, "record": True}
    )
    with Store(tmp_path / "one.db") as one, Store(tmp_path / "each.db") as each:
        do(one, grid, stack=True, keep=True)
        do(each, grid, stack=False, keep=True)
        for spec in grid.specs:
            ours, theirs = (load_run(runs_folder(db) / spec.key) for db in (one, each))
            X = np.random.default_rng(0).random((5, 12))
            np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-4)
            np.testing.assert_allclose(ours.thresholds, theirs.thresholds, atol=1e-4)
            ours, theirs = (
                np.load(runs_folder(db) / spec.key / "record.npz") for db in (one, each)
            )
            assert ours.files == theirs.files
            np.testing.assert_array_equal(ours["draw_counts"], theirs["draw_counts"])


def test_a_run_that_fails_leaves_the_stack(tmp_path, table):
    broken = own(tmp_path, "Broken", "if self.epoch > 2: raise KeyError('mine')")
    grid = make_grid({"datasets": [table], "selectors": ["random", broken, "recent"], **SMALL})
    with Store(tmp_path / "one.db") as one, Store(tmp_path / "each.db") as each:
        for store, stack in ((one, True), (each, False)):
            summary = do(store, grid, stack=stack)
            assert (summary.finished, summary.failed) == (2, 1)
        same(results(one), results(each))
        assert [run.error for run in one.failed()] == [run.error for run in each.failed()]


def test_a_run_that_kills_its_process_takes_no_other_with_it(tmp_path, table):
    deadly = own(tmp_path, "Deadly", "os.kill(os.getpid(), 9) if self.epoch > 2 else None")
    grid = make_grid({"datasets": [table], "selectors": ["random", deadly, "recent"], **SMALL})
    with Store(tmp_path / "one.db") as store:
        summary = do(store, grid, stack=True)
        assert (summary.finished, summary.failed) == (2, 1)
        (error,) = [run.error for run in store.failed()]
        assert error == "the process of the run was killed by signal 9"


def test_a_loss_that_becomes_nan_fails_as_it_does_alone(tmp_path, table):
    grid = make_grid(
        {"datasets": [table], "selectors": ["random"], "seeds": [0, 1], **SMALL}
        | {"learning_rate": 1e30}
    )
    with Store(tmp_path / "one.db") as one, Store(tmp_path / "each.db") as each:
        do(one, grid, stack=True)
        do(each, grid, stack=False)
        errors = [sorted(run.error for run in store.failed()) for store in (one, each)]
    assert errors[0] == errors[1]
    assert len(errors[0]) == 2


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_stopped_in_the_middle_and_resumed(tmp_path, table, signum):
    """A signal saves the runs; after SIGKILL they start again."""
    victim = tmp_path / "victim"
    aims = f"""if self.epoch == 3 and os.path.exists({str(victim)!r}):
            process = int(open({str(victim)!r}).read())
            os.unlink({str(victim)!r})
            os.{"kill" if signum == signal.SIGINT else "killpg"}(process, {int(signum)})"""
    own(tmp_path, "Aiming", aims)
    (tmp_path / "mine.toml").write_text(FILE.format(data=table))
    words = ("bench", "mine.toml", "--stack")
    with start(*words, "--db", "one.db", cwd=tmp_path) as process:
        victim.write_text(str(process.pid))
        process.communicate(timeout=240)
    assert process.returncode == (130 if signum == signal.SIGINT else -signal.SIGKILL)
    for lock in (tmp_path / "one.db.runs").glob("*.lock"):
        with locked(lock, patience=60):  # possible once the orphan has ended
            pass
    saved = list((tmp_path / "one.db.runs").glob("*/checkpoint.pt"))
    assert len(saved) == (3 if signum == signal.SIGINT else 0)
    run(*words, "--db", "one.db", cwd=tmp_path)
    run(*words, "--db", "undisturbed.db", cwd=tmp_path)
    with Store(tmp_path / "one.db") as one, Store(tmp_path / "undisturbed.db") as other:
        same(results(one), results(other))


def test_which_runs_train_as_one(table):
    models = ["mlp", "clif", {"name": "mlp", "options": {"h": 8}}]
    grid = make_grid(
        {"datasets": [table], "models": models, "selectors": ["random", "d2ace"], "seeds": [0, 1]}
        | {"run_folds": [0, 1], "epochs": 2}
    )
    found = stacks(grid.specs, slots=1)
    assert sorted(spec.key for specs in found for spec in specs) == sorted(
        spec.key for spec in grid.specs
    )
    for specs in found:
        assert len(specs) == (1 if specs[0].config["model"] == "clif" else 4)
        assert len({(spec.model, spec.config["fold"]) for spec in specs}) == 1
        seeds = [spec.config["seed"] for spec in specs]
        assert seeds == sorted(seeds)
    assert [len(specs) for specs in stacks(found[0], slots=2)] == [2, 2]  # no slot is idle


def test_stacks_are_for_processes_of_this_machine(tmp_path):
    _, err = run("bench", "quick", "--stack", "--engine", "ray", cwd=tmp_path, code=2)
    assert "--stack belongs to --engine local" in err
