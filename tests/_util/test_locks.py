"""One lock: one process at a time, gone with the process that held it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from d2ace._util.locks import Busy, locked

HOLDS = """
import os, sys, time
from pathlib import Path
from d2ace._util.locks import locked
with locked(Path(sys.argv[1]), 0.0):
    if "fork" in sys.argv and os.fork() == 0:
        os.close(1)
        time.sleep(600)
    print("holds", flush=True)
    time.sleep(600)
"""


def holder(path: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDS, str(path), *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout
    assert process.stdout.readline() == "holds\n"
    return process


def test_a_second_holder_waits_or_is_refused(tmp_path):
    path = tmp_path / "x.lock"
    with locked(path), pytest.raises(Busy), locked(path, 0.0):
        pass
    with locked(path, 0.0):
        assert path.read_bytes() == b""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.parametrize("words", [(), ("fork",)])
def test_a_killed_process_holds_nothing_even_if_it_has_forked(tmp_path, words):
    path = tmp_path / "x.lock"
    process = holder(path, *words)
    try:
        with pytest.raises(Busy), locked(path, 0.0):
            pass
        process.kill()
        process.wait()
        with locked(path, 0.0):
            pass
    finally:
        process.stdout.close()
        if words:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("content", [b"mine", None])
def test_a_file_that_is_no_lock_is_left_alone(tmp_path, content):
    path = tmp_path / "x.lock"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(FileExistsError), locked(path, 0.0):
        pass
    assert path.is_dir() if content is None else path.read_bytes() == content
