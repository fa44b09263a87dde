"""A store that is only read: nothing is written, and nothing that was stored is missed."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from made_runs import result, spec

from d2ace._util.errors import UserError
from d2ace.benchmark.store.database import Store


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_reading_leaves_no_trace(tmp_path):
    with Store(tmp_path / "runs.db") as store:
        store.add(spec(), result(spec()))
    before = contents(tmp_path)
    assert list(before) == ["runs.db"]
    with Store(tmp_path / "runs.db", read_only=True) as store:
        assert store.has(spec())
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            store.add(spec(seed=1), result(spec(seed=1)))
    assert contents(tmp_path) == before


def test_reading_beside_a_writer_sees_all_that_was_stored(tmp_path):
    path = tmp_path / "runs.db"
    with Store(path) as writer:
        for seed in range(30):
            writer.add(spec(seed=seed), result(spec(seed=seed)), b"x" * 30000)
            names = {file.name for file in tmp_path.iterdir()}
            with Store(path, read_only=True) as reader:
                assert len(reader.runs()) == seed + 1
            assert {file.name for file in tmp_path.iterdir()} == names


@pytest.mark.parametrize("left", [("-wal", "-shm"), ("-wal",)])
def test_reading_what_a_killed_writer_left(tmp_path, left):
    """Its last runs are in the -wal file alone."""
    path, copy = tmp_path / "runs.db", tmp_path / "copy"
    copy.mkdir()
    with Store(path) as writer:
        writer.add(spec(), result(spec()))
        for ending in ("", *left):
            (copy / f"runs.db{ending}").write_bytes(Path(f"{path}{ending}").read_bytes())
    names = set(contents(copy))
    with Store(copy / "runs.db", read_only=True) as store:
        assert store.has(spec())
    assert set(contents(copy)) == names
    assert contents(copy)["runs.db-wal"] == (copy / "runs.db-wal").read_bytes()


@pytest.mark.parametrize("left", [(), ("-wal", "-shm"), ("-wal",)])
def test_reading_where_one_may_not_write(left):
    with tempfile.TemporaryDirectory() as name:
        place, path = Path(name), Path(name) / "read" / "runs.db"
        path.parent.mkdir()
        with Store(place / "runs.db") as writer:
            writer.add(spec(), result(spec()))
            if left:
                for ending in ("", *left):
                    source = place / f"runs.db{ending}"
                    path.with_name(source.name).write_bytes(source.read_bytes())
        if not left:
            path.write_bytes((place / "runs.db").read_bytes())
        for file in path.parent.iterdir():
            file.chmod(0o444)
        path.parent.chmod(0o555)
        place.chmod(0o755)
        try:
            assert as_nobody(lambda: len(Store(path, read_only=True).runs()) == 1)
        finally:
            path.parent.chmod(0o755)


def as_nobody(check: Callable[[], bool]) -> bool:
    """Whether it holds in a process that may not write where only its owner may."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            code = 0 if check() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_reading_what_is_no_store(tmp_path):
    with pytest.raises(UserError, match="there is no store"):
        Store(tmp_path / "absent.db", read_only=True)
    (tmp_path / "empty.db").touch()  # of a writer that was killed at once
    with Store(tmp_path / "empty.db", read_only=True) as store:
        assert store.runs() == []
    path = tmp_path / "torn.db"
    with Store(path) as store:
        for seed in range(20):
            store.add(spec(seed=seed), result(spec(seed=seed)))
    path.write_bytes(path.read_bytes()[:50000])
    with pytest.raises(UserError, match=r"torn\.db cannot be (read|opened)"):
        Store(path, read_only=True)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_store_damaged_in_the_middle_is_a_sentence_with_a_way_out(tmp_path, read_only):
    path = tmp_path / "runs.db"
    with Store(path) as store:
        for seed in range(40):
            store.add(spec(seed=seed), result(spec(seed=seed)))
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 8192] = b"\xff" * 8192
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"runs\.db cannot be .*--db other\.db --from") as error:
        Store(path, read_only=read_only)
    assert "\n" not in str(error.value)
