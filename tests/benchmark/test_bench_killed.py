"""A grid that is killed over and over ends as if nothing had happened.

Once killed and resumed: see test_bench_running.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
import subprocess
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import numpy as np
import pytest
from command import run, scores, start

from d2ace.benchmark.store.database import Store

RUNS = 8
GRID = """
datasets = ["table.npz"]
models = [{name = "mlp", options = {h = 32, L = 1}}]
selectors = ["balance", "d2ace", "dihcl", "recent"]
run_folds = [0, 1]
epochs = 12
warmup = 1
batch_size = 16
"""


class Whole(NamedTuple):
    """The grid as it is, and how long it takes here until its first run is done, and all are."""

    folder: Path
    first: float
    all: float


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("grid")
    rng = np.random.default_rng(5)
    X = rng.random((300, 12))
    Y = X @ rng.random((12, 4)) + rng.random((300, 4)) > 3.5
    np.savez(folder / "table.npz", X=X, Y=Y.astype(np.int8))
    (folder / "mine.toml").write_text(GRID)
    begun = monotonic()
    with start("bench", "mine.toml", "--db", "whole.db", "--jobs", "2", cwd=folder) as process:
        assert process.stderr is not None
        assert "test macro_auc" in process.stderr.readline()
        first = monotonic() - begun
        process.communicate(timeout=240)
    assert process.returncode == 0
    return Whole(folder, first, monotonic() - begun)


def killed(whole: Whole, db: str, seconds: float) -> bool:
    """Let the grid live for so long; whether it was killed before it ended.

    What it had said was stored must be in the store.
    """
    with start("bench", "mine.toml", "--db", db, "--jobs", "2", cwd=whole.folder) as process:
        try:
            _, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            _, err = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), err
    said = set(re.findall(r"^\[\d+/\d+\] (.*?): test macro_auc .*\n", err, re.MULTILINE))
    if (whole.folder / db).exists():
        with Store(whole.folder / db, read_only=True) as store:
            stored = {
                f"{r.dataset} / {r.model} / {r.method} / fold {r.fold}, seed {r.seed}"
                for r in store.runs()
            }
        assert said <= stored
    else:
        assert not said
    return process.returncode != 0


def same_end(whole: Whole, db: str) -> None:
    run("bench", "mine.toml", "--db", db, "--jobs", "2", cwd=whole.folder)
    with (
        Store(whole.folder / db, read_only=True) as one,
        Store(whole.folder / "whole.db", read_only=True) as other,
    ):
        assert one.failed() == []
        assert len(scores(one)) == RUNS
        assert scores(one) == scores(other)
    connection = sqlite3.connect(whole.folder / db)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()
    left = [path for path in (whole.folder / f"{db}.runs").iterdir() if path.is_dir()]
    assert [path for path in left if not (path / "result.json").exists()] == []


def kill_often(whole: Whole, kills: int, seed: int) -> None:
    """Each time at another moment; when a grid has come to its end, another one begins."""
    luck = random.Random(seed)  # noqa: S311 - moments, not secrets
    number = done = 0
    while done < kills:
        db = f"{seed}-{number}.db"
        if killed(whole, db, luck.uniform(0.5 * whole.first, whole.all)):
            done += 1
        else:
            same_end(whole, db)
            number += 1
    same_end(whole, f"{seed}-{number}.db")


@pytest.mark.slow
def test_a_grid_killed_a_hundred_times(whole: Whole) -> None:
    kill_often(whole, 100, seed=2)
