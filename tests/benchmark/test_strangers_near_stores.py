"""Files of others in the way of a store, its runs, a report or an export: all are left alone."""

from __future__ import annotations

import json
import os
import sqlite3
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import report_data
from made_runs import result, spec

from d2ace._util.errors import RunError, UserError
from d2ace._util.locks import locked
from d2ace.benchmark.plan.grid import Grid, make_grid
from d2ace.benchmark.plan.specs import RunSpec
from d2ace.benchmark.run.engines import Event, LocalEngine, final_event
from d2ace.benchmark.run.execute import execute
from d2ace.benchmark.run.monitor import Monitor
from d2ace.benchmark.run.runner import Summary, run_grid, runs_folder
from d2ace.benchmark.store.database import Store
from d2ace.cli.main import main
from d2ace.report.page import write_report

NOTES = b"my own notes, which nobody else has\n"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs a command in the test's folder that is to end with exit code 2; returns its sentence."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which a command sets

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert len(said.splitlines()) == 1
        return said

    return run


# Stores -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("there", [False, True])
def test_a_file_that_sqlite_would_overwrite_is_left_alone(
    tmp_path: Path, ending: str, there: bool
) -> None:
    path = tmp_path / "runs.db"
    if there:
        Store(path).close()
    (tmp_path / f"runs.db{ending}").write_bytes(NOTES)
    before = contents(tmp_path)
    with pytest.raises(UserError, match=rf"runs\.db{ending} is in the way: .* move it away"):
        Store(path)
    assert contents(tmp_path) == before


def test_a_file_beside_the_file_that_a_link_leads_to_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "runs.db").symlink_to(tmp_path / "real" / "store.db")
    (tmp_path / "real" / "store.db-journal").write_bytes(NOTES)
    with pytest.raises(UserError, match=r"store\.db-journal is in the way"):
        Store(tmp_path / "runs.db")
    assert contents(tmp_path) == {"real/store.db-journal": NOTES}


def test_processes_that_make_one_store_at_the_same_time_are_no_strangers(tmp_path: Path) -> None:
    for attempt in range(5):
        path = tmp_path / f"{attempt}.db"
        children = []
        for seed in range(4):
            children.append(os.fork())
            if not children[-1]:
                code = 1
                try:
                    with Store(path) as store:
                        store.add(spec(seed=seed), result(spec(seed=seed)))
                    code = 0
                finally:
                    os._exit(code)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
        with Store(path, read_only=True) as store:
            assert len(store.runs()) == 4


@pytest.mark.parametrize("name", [":memory:", "", "folder", "pipe", "x" * 300, "circle", "a\0b"])
def test_places_that_can_hold_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    os.mkfifo("pipe")
    Path("circle").symlink_to("circle")
    before = sorted(Path().iterdir())
    for read_only in (True, False):
        with pytest.raises(UserError, match=r"name (a|another)"):
            Store(name, read_only=read_only)
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize("db", [":memory:", ""])
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_grid_without_a_file_for_its_runs_is_refused(
    tmp_path: Path, refused: Callable[..., str], db: str, more: list[str]
) -> None:
    words = ("bench", "--datasets", "digits", "--models", "mlp", "--db", db, *more)
    assert "name a file" in refused(*words)
    assert list(tmp_path.iterdir()) == []


# Runs ---------------------------------------------------------------------------------------


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    """One run of one epoch, on a data file of its own folder."""
    random = np.random.default_rng(5)
    X = random.random((120, 6))
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "table.npz"
    np.savez(path, X=X, Y=(X[:, :4] > 0.5).astype(np.int8))
    models = [{"name": "mlp", "options": {"h": 8, "L": 1}}]
    return make_grid(
        {
            "datasets": [str(path)],
            "models": models,
            "selectors": ["random"],
            "run_folds": [0],
            "epochs": 1,
        }
    )


class Here:
    """An engine that runs in this very process, which takes less time than starting another."""

    slots = 1

    def __init__(self) -> None:
        self.ended: list[Event] = []

    def start(self, runs: Sequence[tuple[RunSpec, Path]]) -> None:
        ((spec, folder),) = runs
        messages: list[dict[str, Any]] = []
        execute(spec.config, str(folder), 1, messages.append, process=False)
        self.ended.append(final_event(spec, folder, messages[-1]))

    def events(self, seconds: float) -> list[Event]:
        ended, self.ended = self.ended, []
        return ended

    def stop(self) -> None: ...

    def close(self) -> None: ...


def do(store: Store, grid: Grid, *, retry: bool = False) -> Summary:
    return run_grid(store, grid.specs, Here, Monitor(1), retry=retry)


def test_files_beside_those_of_a_run_stay_when_it_is_stored(tmp_path: Path, grid: Grid) -> None:
    key = grid.specs[0].key
    with Store(tmp_path / "runs.db") as store:
        place = runs_folder(store)
        strangers = {
            "notes.txt": place / "notes.txt",
            "mine.txt": place / key / "mine.txt",
            "weights": place / key / "deeper" / "best.pt",
        }
        for path in strangers.values():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(NOTES)
        assert do(store, grid).finished == 1
    for path in strangers.values():
        assert path.read_bytes().startswith(NOTES)
    assert sorted(path.name for path in (place / key).iterdir()) == ["deeper", "mine.txt"]


def test_a_log_that_is_there_is_added_to(tmp_path: Path) -> None:
    (tmp_path / "workers.log").write_bytes(NOTES)
    LocalEngine(1, tmp_path / "workers.log").close()
    assert (tmp_path / "workers.log").read_bytes() == NOTES


def test_a_run_in_other_words_removes_only_what_a_run_wrote(tmp_path: Path, grid: Grid) -> None:
    key = grid.specs[0].key
    with Store(tmp_path / "runs.db") as store:
        folder = runs_folder(store) / key
        folder.mkdir(parents=True)
        (folder / "run.json").write_text('{"format": 1, "config": {}}')
        (folder / "mine.txt").write_bytes(NOTES)
        do(store, grid)
    assert (folder / "mine.txt").read_bytes() == NOTES


def test_leftovers_of_a_stored_run_go_and_other_files_stay(tmp_path: Path, grid: Grid) -> None:
    with Store(tmp_path / "runs.db") as store:
        store.add(grid.specs[0], result(grid.specs[0]))
        folder = runs_folder(store) / grid.specs[0].key
        folder.mkdir(parents=True)
        (folder / "checkpoint.pt").touch()
        (folder / "mine.txt").write_bytes(NOTES)
        assert do(store, grid).stored == 1
    assert contents(folder) == {"mine.txt": NOTES}


def test_a_damaged_result_is_made_anew_and_other_files_stay(tmp_path: Path, grid: Grid) -> None:
    with Store(tmp_path / "runs.db") as store:
        folder = runs_folder(store) / grid.specs[0].key
        folder.mkdir(parents=True)
        (folder / "result.json").touch()
        (folder / "mine.txt").write_bytes(NOTES)
        assert do(store, grid).failed == 1
        assert do(store, grid, retry=True).finished == 1
    assert contents(folder) == {"mine.txt": NOTES}


def test_a_link_in_the_place_of_a_run_is_not_followed(tmp_path: Path, grid: Grid) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "best.pt").write_bytes(NOTES)
    with Store(tmp_path / "runs.db") as store:
        runs_folder(store).mkdir()
        (runs_folder(store) / grid.specs[0].key).symlink_to(elsewhere)
        assert do(store, grid).failed == 1
        (failed,) = store.failed()
        assert failed.error is not None
        assert f"{grid.specs[0].key} is a link" in failed.error
    assert contents(elsewhere) == {"best.pt": NOTES}


@pytest.mark.parametrize("kind", ["file", "database", "folder", "link"])
@pytest.mark.parametrize("whose", ["grid", "run"])
def test_a_strangers_lock_is_left_alone(tmp_path: Path, grid: Grid, kind: str, whose: str) -> None:
    with Store(tmp_path / "runs.db") as store:
        place = runs_folder(store)
        place.mkdir()
        lock = place / ("lock" if whose == "grid" else f"{grid.specs[0].key}.lock")
        other = tmp_path / "other"
        {
            "file": lambda: lock.write_bytes(NOTES),
            "database": lambda: (
                sqlite3.connect(lock).execute("CREATE TABLE t (x)").connection.close()
            ),
            "folder": lock.mkdir,
            "link": lambda: (other.touch(), lock.symlink_to(other)),
        }[kind]()
        before = contents(place)
        if whose == "grid":
            with pytest.raises(RunError, match=r"lock .*in the way"):
                do(store, grid)
        else:
            assert do(store, grid).failed == 1
            assert "in the way" in str(store.failed()[0].error)
        assert lock.is_symlink() == (kind == "link")
        assert before.items() <= contents(place).items()


def test_a_file_in_the_place_of_the_runs_folder_is_a_sentence(tmp_path: Path, grid: Grid) -> None:
    with Store(tmp_path / "runs.db") as store:
        (tmp_path / "runs.db.runs").write_bytes(NOTES)
        with pytest.raises(RunError, match=r"runs\.db\.runs cannot be used"):
            do(store, grid)
    assert (tmp_path / "runs.db.runs").read_bytes() == NOTES


def test_a_link_to_a_store_and_the_store_have_one_lock(tmp_path: Path, grid: Grid) -> None:
    (tmp_path / "here").mkdir()
    real, link = tmp_path / "runs.db", tmp_path / "here" / "link.db"
    Store(real).close()
    link.symlink_to(real)
    with Store(real) as store, Store(link) as linked:
        assert runs_folder(store) == runs_folder(linked)
        runs_folder(store).mkdir()
        refused = pytest.raises(RunError, match="another process is running a grid on")
        with locked(runs_folder(store) / "lock"), refused:
            do(linked, grid)
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["link.db"]


def test_a_store_with_two_names_is_read_and_not_written(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        store.add(spec(), result(spec()))
    (tmp_path / "other.db").hardlink_to(tmp_path / "runs.db")
    for name in ("runs.db", "other.db"):
        with pytest.raises(UserError, match=r"has another name .*copy it to another file"):
            Store(tmp_path / name)
        with Store(tmp_path / name, read_only=True) as store:
            assert store.has(spec())


# Reports ------------------------------------------------------------------------------------


@pytest.fixture
def empty(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.db")


def stranger_file(path: Path) -> None:
    path.write_bytes(NOTES)


def stranger_keys(path: Path) -> None:
    path.write_bytes(b"key,value\nmine,1\n")


def stranger_folder(path: Path) -> None:
    path.mkdir()


def stranger_link(path: Path) -> None:
    (path.parents[1] / "mine.txt").write_bytes(NOTES)
    path.symlink_to(path.parents[1] / "mine.txt")


def dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("name", ["index.html", "tables", "tables/all-runs.tex"])
@pytest.mark.parametrize("make", [stranger_file, stranger_folder, stranger_link, dangling_link])
def test_a_report_replaces_no_file_of_others(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    report = tmp_path / "report"
    (report / name).parent.mkdir(parents=True)
    make(report / name)
    if name == "tables" and make is stranger_folder:  # which is where they go
        (report / name / "all-runs.csv").write_bytes(NOTES)
    before = contents(tmp_path)
    with Store(tmp_path / "runs.db") as store:
        report_data.add(store, "main", "Random", data="yeast", epochs=2, history=False)
        with pytest.raises(UserError, match="left alone: choose another folder"):
            write_report(store, report)
    (tmp_path / "runs.db").unlink()
    assert contents(tmp_path) == before


def test_a_report_is_written_again_over_itself_and_leaves_other_files(tmp_path: Path) -> None:
    report = tmp_path / "report"
    with Store(tmp_path / "one.db") as store:
        store.fail(spec(), "no reason")
        write_report(store, report)
        first = contents(report)
        write_report(store, report)
        assert contents(report) == first
    (report / "tables" / "mine.csv").write_bytes(NOTES)
    with Store(tmp_path / "two.db") as store:
        write_report(store, report)
        changed = contents(report)
        assert changed["index.html"] != first["index.html"]
        assert changed["tables/mine.csv"] == NOTES
        edited = report / "index.html"
        edited.write_bytes(edited.read_bytes() + b"<!-- my words -->")
        with pytest.raises(UserError, match=r"index\.html .*changed since .*left alone"):
            write_report(store, report)
        assert edited.read_bytes().endswith(b"<!-- my words -->")


@pytest.mark.parametrize("content", [NOTES, b"", b"[]", b'{"files": 3}', b'{"files": {"a": 1}}'])
def test_a_list_of_files_that_is_no_such_list_is_left_alone(
    tmp_path: Path, empty: Store, content: bytes
) -> None:
    write_report(empty, tmp_path / "report")
    (path,) = (tmp_path / "report").glob("*.json")
    path.write_bytes(content)
    before = contents(tmp_path)
    with pytest.raises(UserError, match=rf"{path.name} .*left alone"):
        write_report(empty, tmp_path / "report")
    assert contents(tmp_path) == before


def test_a_list_of_files_reaches_nothing_outside_its_folder(tmp_path: Path, empty: Store) -> None:
    write_report(empty, tmp_path / "report")
    (tmp_path / "mine.txt").write_bytes(NOTES)
    (path,) = (tmp_path / "report").glob("*.json")
    listed = json.loads(path.read_text())
    listed["files"]["../mine.txt"] = ["0" * 64]
    path.write_text(json.dumps(listed))
    write_report(empty, tmp_path / "report")
    assert (tmp_path / "mine.txt").read_bytes() == NOTES


@pytest.mark.parametrize("words", [("report", "runs.db", "-o"), ("demo", "--out")])
def test_no_name_for_a_folder_is_not_the_current_folder(
    tmp_path: Path, empty: Store, refused: Callable[..., str], words: tuple[str, ...]
) -> None:
    empty.close()
    assert "name a folder" in refused(*words, "")
    assert [path.name for path in tmp_path.iterdir()] == ["runs.db"]


def test_a_page_in_the_way_of_the_demo_is_left_alone(
    tmp_path: Path, refused: Callable[..., str]
) -> None:
    page = tmp_path / "out" / "report" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_bytes(NOTES)
    said = refused("demo", "--out", "out", "--epochs", "1", "--seeds", "1")
    assert "index.html was not written by d2ace" in said
    assert contents(tmp_path) == {"out/report/index.html": NOTES}


# Exports ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["results.csv", "curves.csv.gz", "labels.csv.gz", "recordings.zip"]
)
@pytest.mark.parametrize(
    "make", [stranger_file, stranger_keys, stranger_folder, stranger_link, dangling_link]
)
def test_an_export_replaces_no_file_of_others(
    tmp_path: Path, empty: Store, name: str, make: Callable[[Path], None]
) -> None:
    (tmp_path / "out").mkdir()
    make(tmp_path / "out" / name)
    before = contents(tmp_path)
    with pytest.raises(UserError, match=r"was not written by an export .*left alone"):
        empty.export(tmp_path / "out" / "results.csv")
    assert contents(tmp_path) == before


def test_an_export_leaves_the_curves_of_another(tmp_path: Path, empty: Store) -> None:
    empty.export(tmp_path / "out" / "first.csv")
    before = contents(tmp_path)
    with pytest.raises(UserError, match=r"first\.csv is an export, too, .*another folder"):
        empty.export(tmp_path / "out" / "second.csv")
    assert contents(tmp_path) == before
    empty.export(tmp_path / "out" / "first.csv")


def test_an_export_replaces_neither_a_store_nor_its_own_parts(tmp_path: Path, empty: Store) -> None:
    before = (tmp_path / "runs.db").read_bytes()
    with pytest.raises(UserError, match="was not written by an export"):
        empty.export(tmp_path / "runs.db")
    with pytest.raises(UserError, match=r"name a \.csv file"):
        empty.export(tmp_path / "recordings.zip")
    assert (tmp_path / "runs.db").read_bytes() == before
