"""What the guide to grids says of the processes of runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from d2ace.benchmark.plan.grid import make_grid
from d2ace.benchmark.run.engines import LocalEngine, cores
from d2ace.benchmark.run.monitor import Monitor
from d2ace.benchmark.run.runner import run_grid, runs_folder
from d2ace.benchmark.store.database import Store
from d2ace.data import make_multilabel, save

NOTING = """
import json, os, torch
import d2ace

class Noting(d2ace.Random):
    name = "noting"

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        about = {{
            "process": os.getpid(),
            "threads": torch.get_num_threads(),
            "kept": os.environ.get("MALLOC_TRIM_THRESHOLD_"),
        }}
        with open({file!r}, "a") as notes:
            notes.write(json.dumps(about) + "\\n")
"""


@pytest.mark.slow  # seconds, for what hardly ever changes
def test_runs_have_processes_of_their_own_that_share_the_cores_and_keep_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    notes = tmp_path / "notes.jsonl"
    (tmp_path / "noting.py").write_text(NOTING.format(file=str(notes)))
    save(make_multilabel(200, 8, 4, seed=1), tmp_path / "table.npz")
    grid = make_grid(
        {
            "datasets": [str(tmp_path / "table.npz")],
            "models": [{"name": "mlp", "options": {"h": 8, "L": 1}}],
            "selectors": [f"{tmp_path / 'noting.py'}:Noting"],
            "run_folds": [0],
            "seeds": [0, 1, 2],
            "epochs": 2,
            "warmup": 1,
        }
    )
    with Store(tmp_path / "runs.db") as store:
        done = run_grid(
            store,
            grid.specs,
            lambda: LocalEngine(2, runs_folder(store) / "workers.log"),
            Monitor(len(grid.specs)),
        )
    assert done.finished == 3
    told = [json.loads(line) for line in notes.read_text().splitlines()]
    per_process = {each["process"] for each in told}
    assert len(per_process) == 3
    assert os.getpid() not in per_process
    assert {each["threads"] for each in told} == {max(1, cores() // 2)}
    assert {each["kept"] for each in told} == {str(2**33)}
