"""A grid on a Ray cluster of two machines, whose processes and machines die and come back.

The machines are two nodes of Ray on this one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import environment, run, scores, start

from d2ace.benchmark.store.database import Store

pytestmark = pytest.mark.slow  # to start Ray takes longer than what is tested

WAITS = """
import os, signal
from pathlib import Path
import d2ace

class Waits(d2ace.D2ACE):
    name = "own"
    merges_updates = False
    batches = 0

    def update(self, index, probs):
        super().update(index, probs)
        self.batches += 1
        meeting = Path({meeting!r})
        if self.batches == 30 and meeting.exists():
            with meeting.open("w") as other:
                other.write(str(os.getpid()))
            signal.pause()
"""
GRID = """
datasets = [{data!r}]
models = [{{name = "mlp", options = {{h = 32, L = 1}}}}]
selectors = ["random", {selector!r}]
run_folds = [0]
epochs = 3
warmup = 1
batch_size = 16
"""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster whose head runs nothing, and one node that does."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_worker_niceness", "0")  # else they starve beside other tests
    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield cluster
    finally:
        cluster.shutdown()


def prepare(folder: Path) -> Path:
    """A grid of two runs, one of which waits in its second epoch to be met."""
    random = np.random.default_rng(5)
    X = random.random((300, 12))
    Y = X @ random.random((12, 4)) + random.random((300, 4)) > 3.5
    np.savez(folder / "table.npz", X=X, Y=Y.astype(np.int8))
    meeting = folder / "meeting"
    os.mkfifo(meeting)
    (folder / "waits.py").write_text(WAITS.format(meeting=str(meeting)))
    grid = GRID.format(data=str(folder / "table.npz"), selector=f"{folder / 'waits.py'}:Waits")
    (folder / "mine.toml").write_text(grid)
    return meeting


def met(meeting: Path) -> int:
    """The process that waits, once it does; the next one will not."""
    with meeting.open() as other:
        process = int(other.read())
    meeting.unlink()
    return process


@pytest.mark.skipif(sys.platform == "win32", reason="processes meet at a named pipe")
@pytest.mark.parametrize("dies", ["process", "machine"])
def test_a_run_whose_process_or_machine_died_is_done_elsewhere(tmp_path, cluster, dies):
    first = cluster.add_node(num_cpus=1)
    meeting = prepare(tmp_path)
    words = ("bench", "mine.toml", "--engine", "ray", "--address", cluster.address)
    with start(*words, "--db", "ray.db", "--json", cwd=tmp_path) as process:
        culprit = met(meeting)
        if dies == "process":
            os.kill(culprit, 9)
        else:
            cluster.remove_node(first, allow_graceful=False)
            cluster.add_node(num_cpus=1)
        out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    summary = json.loads(out)
    assert (summary["finished_now"], summary["failed"], summary["left"]) == (2, 0, 0)
    run("bench", "mine.toml", "--db", "local.db", cwd=tmp_path)
    with Store(tmp_path / "ray.db") as ray, Store(tmp_path / "local.db") as local:
        assert len(scores(ray)) == 2
        assert scores(ray) == scores(local)
    left = {path.name for path in (tmp_path / "ray.db.runs").iterdir()}
    assert left == {"lock"}
