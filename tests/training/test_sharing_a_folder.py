"""Two processes, or two runs, that want the same folder."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from smallrun import small_run, without_times

from d2ace._util.errors import RunError, UserError
from d2ace.data import MultiLabelData
from d2ace.training import RunInterrupted, RunResult, folder
from d2ace.training.config import RunConfig

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["d2ace.training.loop"])


def held_run(path: Path, out: Path, told: Any) -> None:
    """A run that stands still after its second epoch until it is told to go on."""

    def wait(entry: dict[str, Any]) -> None:
        if entry["epoch"] == 2:
            told.send("standing")
            told.recv()

    small_run(str(path), out=out, watch=wait)


@contextmanager
def another_run(path: Path, out: Path) -> Iterator[None]:
    """While another process trains in the folder, and lets us look at it."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=held_run, args=(path, out, theirs))
    process.start()
    theirs.close()
    assert ours.recv() == "standing"
    try:
        yield
    finally:
        ours.send("go on")
        process.join()
    assert process.exitcode == 0


def content(out: Path) -> dict[str, bytes]:
    files = [path for path in out.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def test_a_run_that_starts_over_does_not_touch_one_that_is_training(
    table_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "PATIENCE", 0.1)
    out = tmp_path / "run"
    with another_run(table_file, out):
        half_written = out / ".d2ace-1-0a1b2c3d.tmp"
        half_written.write_bytes(b"being written")
        before = content(out)
        for settings in ({"seed": 1, "resume": False}, {"resume": True}):
            with pytest.raises(RunError, match="Another process is training in"):
                small_run(str(table_file), out=out, **settings)
            assert content(out) == before
    result = RunResult.read(out / "result.json")
    assert without_times(result) == without_times(small_run(str(table_file)))


def test_a_stored_result_is_given_while_the_folder_is_locked(
    table: MultiLabelData, tmp_path: Path
) -> None:
    first = small_run(table, out=tmp_path)
    description = RunResult.read(tmp_path / "result.json").config
    with folder.RunFolder(tmp_path, RunConfig.from_dict(description)).alone():
        assert small_run(table, out=tmp_path).to_dict() == first.to_dict()


def test_a_refused_run_removes_nothing(table_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    small_run(str(table_file), out=out)
    before = content(out)
    with pytest.raises(UserError, match="too few for 200 folds"):
        small_run(str(table_file), out=out, folds=200, resume=False)
    assert content(out) == before
    with pytest.raises(UserError, match="too few for 200 folds"):
        small_run(str(table_file), out=tmp_path / "new", folds=200)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("typo", "sentence"),
    [({"model_options": {"hh": 16}}, "'hh'"), ({"selector_options": {"neigbors": 4}}, "neigbors")],
)
def test_an_option_that_does_not_exist_costs_nothing(
    table: MultiLabelData, tmp_path: Path, typo: dict[str, Any], sentence: str
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    small_run(table, out=old)
    before = content(old)
    with pytest.raises(UserError, match=sentence):
        small_run(table, out=old, resume=False, **typo)
    assert content(old) == before
    with pytest.raises(UserError, match=sentence):
        small_run(table, out=new, **typo)
    assert without_times(small_run(table, out=new)) == without_times(
        RunResult.read(old / "result.json")
    )


def test_a_run_that_saved_nothing_does_not_stand_in_the_way(
    table: MultiLabelData, tmp_path: Path
) -> None:
    small_run(table, out=tmp_path / "run")
    for path in (tmp_path / "run").iterdir():
        if path.name != "run.json":
            path.unlink()
    assert small_run(table, out=tmp_path / "run", seed=5).config["seed"] == 5
    assert '"seed": 5' in (tmp_path / "run" / "run.json").read_text()


@pytest.mark.parametrize("epoch", [1, 2])
def test_tuning_leaves_an_unfinished_run_alone(
    table: MultiLabelData, tmp_path: Path, epoch: int
) -> None:
    def stop(entry: dict[str, Any]) -> None:
        if entry["epoch"] == epoch:
            raise RunInterrupted(15, "enough")

    with pytest.raises(RunInterrupted):
        small_run(table, out=tmp_path, watch=stop)
    before = content(tmp_path)
    with pytest.raises(UserError, match="holds another run that is not finished; it was left"):
        small_run(table, out=tmp_path, tune=True)
    assert content(tmp_path) == before


def test_a_search_killed_while_it_copied_goes_on(table: MultiLabelData, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"out": tmp_path, "tune": True, "epochs": 1, "warmup": 0}
    first = small_run(table, **settings)
    (tmp_path / "result.json").unlink()
    assert small_run(table, **settings).to_dict() == first.to_dict()
    assert (tmp_path / "result.json").exists()
    (tmp_path / "result.json").unlink()
    with pytest.raises(UserError, match="holds another run that is not finished"):
        small_run(table, **settings, seed=4)


def test_a_search_over_other_options_is_another_search(
    table: MultiLabelData, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"out": tmp_path, "tune": True, "epochs": 1, "warmup": 0}
    settings |= {"model": "clif", "selector": "random"}
    first = small_run(table, model_options={"h": 8, "lam": 0.1}, **settings)
    assert first.tuning is not None
    for options in ({"h": 8, "e": 64}, {"h": 16, "lam": 0.1}, {"h": 8, "lam": 1.0}):
        with pytest.raises(UserError, match="holds the result of another run"):
            small_run(table, model_options=options, **settings)
    again = small_run(table, model_options={"h": 8, "lam": 0.1}, **settings)
    assert again.to_dict() == first.to_dict()
