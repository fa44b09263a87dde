"""Signals at every moment: the promised exit code, and no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from time import monotonic

import pytest

from d2ace.training import RunResult

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

PATIENCE = 120.0  # seconds on a busy machine; on a quiet one all of it takes a few
TWO = ("--devices", "2", "--accelerator", "cpu")
ENDLESS = ("--epochs", "100000")


class Command:
    """A command whose processes, however far down, are known by a mark they inherit."""

    def __init__(self, *words: str, cwd: Path, nohup: bool) -> None:
        def heed() -> None:  # also where the tests themselves run in the background
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)

        self.mark = f"D2ACE_TEST={uuid.uuid4()}"
        name, _, value = self.mark.partition("=")
        self.said = cwd / f"{value}.err"
        with self.said.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "d2ace", *words],
                cwd=cwd,
                env=os.environ | {name: value, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                preexec_fn=heed,
            )

    def running(self) -> list[int]:
        """All of its processes that have not ended, itself first."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                marked = self.mark.encode() in (place / "environ").read_bytes().split(b"\0")
                zombie = (place / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:  # it has ended, or is another user's
                continue
            if marked and not zombie:
                found.append(int(place.name))
        return sorted(found, key=lambda pid: (pid != self.process.pid, pid))

    def workers(self, having: str = "") -> list[int]:
        """Its training processes, those that have loaded a library with this name."""
        found = []
        for pid in self.running()[1:]:
            try:
                words = Path(f"/proc/{pid}/cmdline").read_text()
                maps = Path(f"/proc/{pid}/maps").read_text()
            except OSError:
                continue
            if ("spawn_main" in words or "run.worker" in words) and having in maps:
                found.append(pid)
        return found

    def until(self, what: Callable[[], object]) -> None:
        """Wait until something is so; the command must not end before."""
        deadline = monotonic() + PATIENCE
        while not what():
            assert self.process.poll() is None, self.said.read_text()
            assert monotonic() < deadline, self.said.read_text()
            threading.Event().wait(0.02)

    def says(self, words: str) -> Callable[[], bool]:
        return lambda: words in self.said.read_text()

    def send(self, signum: int, to: str) -> None:
        workers = self.workers()
        try:
            if to == "group":
                os.killpg(self.process.pid, signum)
            elif to == "parent":
                os.kill(self.process.pid, signum)
            elif workers:
                os.kill(workers[-1], signum)
        except ProcessLookupError:  # it was quicker
            pass

    def ended(self) -> tuple[int, str]:
        """Its exit code and what it said, once no process of it is left."""
        code = self.process.wait(PATIENCE)
        deadline = monotonic() + PATIENCE
        while left := self.running():
            assert monotonic() < deadline, f"still running: {left}"
            threading.Event().wait(0.05)
        return code, self.said.read_text()


@contextmanager
def command(*words: str, cwd: Path, nohup: bool = False) -> Iterator[Command]:
    one = Command(*words, cwd=cwd, nohup=nohup)
    try:
        yield one
    finally:
        for pid in one.running():
            with suppress(ProcessLookupError):  # it was quicker
                os.kill(pid, signal.SIGKILL)
        one.process.wait()


def train(
    table_file: Path, *words: str, cwd: Path, nohup: bool = False
) -> AbstractContextManager[Command]:
    small = ("--model", "mlp", "--warmup", "1", "--out", "run")
    return command("train", str(table_file), *small, *words, cwd=cwd, nohup=nohup)


def told(code: int, words: str, signum: int) -> None:
    """It ended by this signal, and said so in a sentence."""
    assert code == 128 + signum, words
    assert "Traceback" not in words
    assert signal.Signals(signum).name in words or "interrupted" in words


def test_a_group_that_is_stopped_while_its_processes_start(
    table_file: Path, tmp_path: Path
) -> None:
    with train(table_file, *TWO, *ENDLESS, cwd=tmp_path) as run:
        run.until(lambda: len(run.workers()) == 2)
        run.send(signal.SIGTERM, "group")
        told(*run.ended(), signal.SIGTERM)


def test_a_process_that_is_killed_takes_the_others_along(table_file: Path, tmp_path: Path) -> None:
    with train(table_file, *TWO, *ENDLESS, cwd=tmp_path) as run:
        run.until(run.says("epoch 2/"))
        run.send(signal.SIGKILL, "worker")
        code, words = run.ended()
    assert code == 1
    assert "Process 1 of 2 was killed by SIGKILL; run the same command again to resume" in words
    assert "Traceback" not in words
    assert (tmp_path / "run" / "checkpoint.pt").exists()


@pytest.mark.slow
def test_a_closed_terminal_is_heeded_unless_nohup_is_used(table_file: Path, tmp_path: Path) -> None:
    with train(table_file, *ENDLESS, cwd=tmp_path) as run:
        run.until(run.says("epoch 1/"))
        run.send(signal.SIGHUP, "group")
        told(*run.ended(), signal.SIGHUP)
    with train(table_file, *ENDLESS, cwd=tmp_path, nohup=True) as run:
        run.until(run.says("epoch "))
        said = run.said.stat().st_size
        run.send(signal.SIGHUP, "group")
        run.until(lambda: run.said.stat().st_size > said + 1000)  # it goes on


MOMENTS: dict[str, Callable[[Command], Callable[[], object]]] = {
    "spawned": lambda run: lambda: len(run.workers()) >= 2,
    "importing": lambda run: lambda: len(run.workers("libtorch")) >= 2,
    "first epoch": lambda run: run.says("epoch 1/"),
    "later": lambda run: run.says("epoch 5/"),
}


@pytest.mark.slow
@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("to", ["group", "parent", "worker"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_two_processes_end_at_every_moment(
    table_file: Path, tmp_path: Path, signum: int, to: str, twice: bool
) -> None:
    for moment, reached in MOMENTS.items():
        (tmp_path / moment).mkdir()
        with train(table_file, *TWO, *ENDLESS, cwd=tmp_path / moment) as run:
            run.until(reached(run))
            run.send(signum, to)
            if twice:
                run.send(signum, to)
            told(*run.ended(), signum)


@pytest.mark.slow
@pytest.mark.parametrize("to", ["group", "parent", "worker"])
def test_killed_at_every_moment(table_file: Path, tmp_path: Path, to: str) -> None:
    for moment, reached in MOMENTS.items():
        (tmp_path / moment).mkdir()
        with train(table_file, *TWO, *ENDLESS, cwd=tmp_path / moment) as run:
            run.until(reached(run))
            run.send(signal.SIGKILL, to)
            code, words = run.ended()
        assert code == (1 if to == "worker" else -signal.SIGKILL), words
        assert "Traceback" not in words


@pytest.mark.slow
@pytest.mark.parametrize("devices", [(), TWO], ids=["one", "two"])
def test_a_signal_at_the_end_never_spoils_the_result(
    table_file: Path, tmp_path: Path, devices: tuple[str, ...]
) -> None:
    for number in range(6):
        place = tmp_path / str(number)
        place.mkdir()
        with train(table_file, *devices, "--epochs", "4", cwd=place) as run:
            run.until(run.says(f"epoch {2 + number % 3}/4"))
            run.send(signal.SIGTERM, "group")
            code, words = run.ended()
        # Once all is done, it is the interpreter that a signal ends; a shell says 143 then, too.
        assert code in (0, 128 + signal.SIGTERM, -signal.SIGTERM), words
        with train(table_file, *devices, "--epochs", "4", cwd=place) as run:
            assert run.ended()[0] == 0
        assert len(RunResult.read(place / "run" / "result.json").history) == 4


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("to", ["group", "parent", "worker"])
def test_grids_end_at_every_moment(
    table_file: Path, tmp_path: Path, signum: signal.Signals, to: str
) -> None:
    moments = {name: MOMENTS[name] for name in ("spawned", "importing")}
    moments["running"] = lambda run: (
        lambda: len(list(run.said.parent.glob("g.db.runs/*/checkpoint.pt"))) == 2
    )
    for moment, reached in moments.items():
        place = tmp_path / moment
        place.mkdir()
        grid = ("--datasets", str(table_file), "--models", "mlp", "--selectors", "random,d2ace")
        with command(
            *(
                "bench",
                *grid,
                "--run-folds",
                "0",
                "--epochs",
                "100000",
                "--jobs",
                "2",
                "--db",
                "g.db",
            ),
            cwd=place,
        ) as run:
            run.until(reached(run))
            run.send(signum, to)
            if to == "worker":  # which stops one run at most; the other ends with the parent
                run.send(signal.SIGTERM, "parent")
            code, words = run.ended()
        if to == "worker":
            assert code in (1, 128 + signal.SIGTERM), words
        else:
            assert code == (-signum if signum == signal.SIGKILL else 128 + signum), words
        assert "Traceback" not in words
