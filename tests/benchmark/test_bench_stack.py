"""Grids whose runs train side by side: the numbers, the store and the errors of separate runs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from command import run, scores, start
from smallrun import small_table

from d2ace._util.locks import locked
from d2ace.benchmark.plan.grid import Grid, make_grid
from d2ace.benchmark.run.engines import LocalEngine
from d2ace.benchmark.run.monitor import Monitor
from d2ace.benchmark.run.runner import Summary, run_grid, runs_folder
from d2ace.benchmark.run.stacks import stacks
from d2ace.benchmark.store.database import Store
from d2ace.cli.main import main

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
selectors = ["random", "aiming.py:Aiming", "d2ace", "recent"]
run_folds = [0]
epochs = 12
warmup = 1
batch_size = 16
"""


def do(store: Store, grid: Grid, *, stack: bool, **options) -> Summary:
    def engine() -> LocalEngine:
        return LocalEngine(2, runs_folder(store) / "workers.log")

    return run_grid(store, grid.specs, engine, Monitor(len(grid.specs)), stack=stack, **options)


@pytest.fixture
def table(tmp_path) -> str:
    return small_table(tmp_path)


def own(folder: Path, name: str, does: str) -> str:
    path = folder / f"{name.lower()}.py"
    path.write_text(OWN.format(name=name, does=does))
    return f"{path}:{name}"


def test_a_stack_stores_what_separate_runs_store(tmp_path, table):
    """Also beside a run that fails, and one that kills the process; both fail alone."""
    broken = own(tmp_path, "Broken", "if self.epoch > 2: raise KeyError('mine')")
    deadly = own(tmp_path, "Deadly", "os.kill(os.getpid(), 9) if self.epoch > 3 else None")
    selectors = ["random", broken, "d2ace", deadly]
    grid = make_grid({"datasets": [table], "selectors": selectors, **SMALL})
    with Store(tmp_path / "one.db") as one, Store(tmp_path / "each.db") as each:
        for store, stack in ((one, True), (each, False)):
            summary = do(store, grid, stack=stack, keep=True)
            assert (summary.finished, summary.failed) == (2, 2)
        assert scores(one) == scores(each)
        errors = [sorted(run.error for run in store.failed()) for store in (one, each)]
        assert errors[0] == errors[1]
        assert "the process of the run was killed by signal 9" in errors[0]
        for done in one.runs():
            ours, theirs = (runs_folder(store) / done.key for store in (one, each))
            assert {p.name for p in ours.iterdir()} == {p.name for p in theirs.iterdir()}
        assert do(one, grid, stack=True).failed_before == 2  # nothing is left to do


@pytest.mark.slow
def test_killed_in_the_middle_and_started_again(tmp_path, table):
    victim = tmp_path / "victim"
    own(
        tmp_path,
        "Aiming",
        f"""if self.epoch == 3 and os.path.exists({str(victim)!r}):
            process = int(open({str(victim)!r}).read())
            os.unlink({str(victim)!r})
            os.killpg(process, 9)""",
    )
    (tmp_path / "mine.toml").write_text(FILE.format(data=table))
    words = ("bench", "mine.toml", "--jobs", "2", "--db")
    with start(*words, "one.db", "--stack", cwd=tmp_path) as process:
        victim.write_text(str(process.pid))
        process.communicate(timeout=240)
    assert process.returncode == -signal.SIGKILL
    for lock in (tmp_path / "one.db.runs").glob("*.lock"):
        with locked(lock, patience=60):  # possible once the orphan has ended, and saved
            pass
    assert list((tmp_path / "one.db.runs").glob("*/checkpoint.pt"))
    run(*words, "one.db", "--stack", cwd=tmp_path)
    run(*words, "other.db", "--no-stack", cwd=tmp_path)
    with Store(tmp_path / "one.db") as one, Store(tmp_path / "other.db") as other:
        assert scores(one) == scores(other)


def test_which_runs_train_side_by_side(table):
    models = ["mlp", "clif", {"name": "mlp", "options": {"h": 8, "L": 1}}]
    grid = make_grid(
        {"datasets": [table], "models": models, "selectors": ["random", "d2ace"], "seeds": [0, 1]}
        | {"run_folds": [0, 1], "epochs": 2}
    )
    keys = sorted(spec.key for spec in grid.specs)
    for wanted, stacked in ((True, ["MLP", "MLP (L=1, h=8)"]), (None, ["MLP (L=1, h=8)"])):
        found = stacks(grid.specs, slots=1, wanted=wanted)
        assert sorted(spec.key for specs in found for spec in specs) == keys
        for specs in found:
            assert len(specs) == (4 if specs[0].model in stacked else 1)
            assert len({(spec.model, spec.config["fold"]) for spec in specs}) == 1
            seeds = [spec.config["seed"] for spec in specs]
            assert seeds == sorted(seeds)
    assert [len(specs) for specs in stacks(grid.specs, slots=1, wanted=False)] == [1] * len(keys)
    four = max(found, key=len)
    assert [len(specs) for specs in stacks(four, slots=2, wanted=True)] == [2, 2]  # no idle slot


def test_runs_of_another_precision_or_of_your_own_code_train_alone(tmp_path, table):
    mine = own(tmp_path, "Mine", "pass")
    alike = {"datasets": [table], **SMALL, "seeds": [0, 1, 2]}
    ours = make_grid({**alike, "selectors": [mine]}).specs
    double = make_grid({**alike, "selectors": ["random"], "precision": "64-true"}).specs
    assert [len(each) for each in stacks([*ours, *double], 1, wanted=None)] == [1] * 6
    assert [len(each) for each in stacks([*ours, *double], 1, wanted=True)] == [3, 1, 1, 1]


def test_stacks_are_for_processes_of_this_machine(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", "quick", "--stack", "--engine", "ray"])
    assert ended.value.code == 2
    assert "--stack works only with --engine local" in capsys.readouterr().err
