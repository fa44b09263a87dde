"""A grid on a Ray cluster whose processes and machines die.

Each machine is what ``ray start`` starts, here on one machine.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
from command import environment, run, scores, start

from d2ace.benchmark.store.database import Store

pytestmark = [
    pytest.mark.slow,  # to start Ray takes longer than what is tested
    pytest.mark.skipif(sys.platform == "win32", reason="processes meet at a named pipe"),
]

GRID_ON = ("bench", "mine.toml", "--engine", "ray", "--db", "ray.db", "--json", "--address")

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


class Machines:
    """A Ray cluster whose head runs nothing; a node is a group of processes, as on a machine."""

    def __init__(self, folder: Path) -> None:
        self._nodes: list[subprocess.Popen[str]] = []
        port, client = _free_ports()
        self.address, self.client = f"127.0.0.1:{port}", f"ray://127.0.0.1:{client}"
        self._start(
            *("--head", "--port", str(port), "--ray-client-server-port", str(client)),
            *("--num-cpus", "0", "--include-dashboard", "false", "--temp-dir", str(folder)),
        )

    def add(self) -> subprocess.Popen[str]:
        """A machine that runs one run at a time."""
        return self._start("--address", self.address, "--num-cpus", "1")

    def _start(self, *words: str) -> subprocess.Popen[str]:
        ray = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start"]
        more = ("--block", "--disable-usage-stats", "--object-store-memory", "100000000")
        own = {
            "RAY_worker_niceness": "0",  # else they starve beside other tests
            "GRPC_ENABLE_FORK_SUPPORT": "0",  # else Ray's server for clients crashes at times
        }
        node = subprocess.Popen(
            [*ray, *words, *more],
            env={**environment(), **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._nodes.append(node)
        assert node.stdout is not None
        said = list(takewhile(lambda line: "--block" not in line, node.stdout))
        assert node.poll() is None, "".join(said)
        return node

    def kill(self, node: subprocess.Popen[str]) -> None:
        """All processes of a machine at once."""
        self._nodes.remove(node)
        os.killpg(node.pid, signal.SIGKILL)
        node.communicate()

    def close(self) -> None:
        for node in reversed(list(self._nodes)):
            self.kill(node)


def _free_ports() -> list[int]:
    with ExitStack() as stack:
        each = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        return [server.getsockname()[1] for server in each]


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # whatever tokens another cluster has left
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        machines = Machines(Path(folder))
        try:
            yield machines
        finally:
            machines.close()


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


@pytest.mark.parametrize("dies", ["process", "machine"])
def test_a_run_whose_process_or_machine_died_is_done_elsewhere(tmp_path, machines, dies):
    """On a machine that joined while the grid ran."""
    first = machines.add()
    meeting = prepare(tmp_path)
    with start(*GRID_ON, machines.address, cwd=tmp_path) as process:
        culprit = met(meeting)
        if dies == "process":
            os.kill(culprit, signal.SIGKILL)
        else:
            machines.kill(first)
            machines.add()
        out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    summary = json.loads(out)
    assert (summary["finished_now"], summary["failed"], summary["left"]) == (2, 0, 0)
    assert_as_without_ray(tmp_path)


def test_an_address_at_which_nobody_answers_is_refused(tmp_path):
    pytest.importorskip("ray")
    prepare(tmp_path)
    for address in ("127.0.0.1:9", "ray://127.0.0.1:9"):
        _, err = run(*GRID_ON, address, cwd=tmp_path, code=1)
        assert f"no Ray cluster answers at {address} (Connection refused)" in err


def assert_as_without_ray(folder: Path) -> None:
    run("bench", "mine.toml", "--db", "local.db", cwd=folder)
    with Store(folder / "ray.db") as ray, Store(folder / "local.db") as local:
        assert len(scores(ray)) == 2
        assert scores(ray) == scores(local)
    left = {path.name for path in (folder / "ray.db.runs").iterdir()}
    assert left == {"lock"}
