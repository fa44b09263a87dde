"""The command line in a process of its own, to be run, killed and interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = [sys.executable, "-m", "d2ace"]
PROJECT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """The real datasets where they are, and the library under test."""
    data = Path(os.environ.get("D2ACE_DATA") or PROJECT.parent / "shared" / "data")
    here = {"D2ACE_DATA": str(data)} if data.is_dir() else {}
    return {**os.environ, **here, "PYTHONPATH": os.pathsep.join([str(PROJECT / "src")])}


def start(*words: str, cwd: Path) -> subprocess.Popen[str]:
    """Begin a command in a process group of its own."""
    return subprocess.Popen(
        [*PROGRAM, *words],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(*words: str, cwd: Path, code: int = 0) -> tuple[str, str]:
    """What a command printed, on standard output and standard error."""
    with start(*words, cwd=cwd) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == code, f"{process.returncode}: {out}{err}"
    return out, err


def interrupt(process: subprocess.Popen[str], line: int, signum: int) -> tuple[list[str], str]:
    """Send a signal to the command's group at its n-th line; all lines, and the last output."""
    assert process.stderr is not None
    lines = [process.stderr.readline() for _ in range(line)]
    assert all(lines), lines
    os.killpg(process.pid, signum)
    out, err = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL if signum == signal.SIGKILL else True
    return [*lines, *err.splitlines(keepends=True)], out


def scores(store: Any) -> dict[str, Any]:
    """Everything of the stored results that must not depend on how they came about."""
    return {
        run.key: (
            run.result["test"],
            run.result["validation"],
            run.result["best_epoch"],
            [(epoch["train_loss"], epoch["validation"]) for epoch in run.result["history"]],
        )
        for run in store.runs()
    }
