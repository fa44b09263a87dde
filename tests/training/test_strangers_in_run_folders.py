"""A run, a prediction and the demo remove and replace only what they wrote themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from smallrun import small_run, without_times

import d2ace
from d2ace._util.errors import RunError, UserError
from d2ace.cli.main import main
from d2ace.data import MultiLabelData
from d2ace.training import RunInterrupted, load_run
from d2ace.training.verified import save_json

MINE = b"years of work"
NAMES = (
    *("run.json", "checkpoint.pt", "best.pt", "result.json", "record.npz", "insights.pt"),
    *(".lock", "unfinished"),
)


def everything(folder: Path) -> dict[str, Any]:
    """All that is below a folder: bytes of files, targets of links, names of folders."""
    return {
        str(path.relative_to(folder)): (
            os.readlink(path)
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else "folder"
        )
        for path in folder.rglob("*")
    }


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main(words)
    return int(stop.value.code or 0), capsys.readouterr().err


def as_a_file(path: Path, outside: Path) -> None:
    path.write_bytes(MINE)


def as_a_folder(path: Path, outside: Path) -> None:
    path.mkdir()
    (path / "best-1.pt").write_bytes(MINE)


def as_a_link_to_a_file(path: Path, outside: Path) -> None:
    (outside / "precious").write_bytes(MINE)
    path.symlink_to(outside / "precious")


def as_a_link_to_a_folder(path: Path, outside: Path) -> None:
    (outside / "best-1.pt").write_bytes(MINE)
    path.symlink_to(outside)


def as_a_link_to_nothing(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "nothing")


def as_a_pipe(path: Path, outside: Path) -> None:
    os.mkfifo(path)


SHAPES = [
    as_a_file,
    as_a_folder,
    as_a_link_to_a_file,
    as_a_link_to_a_folder,
    as_a_link_to_nothing,
    as_a_pipe,
]


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A folder for a run, and one outside of it."""
    for name in ("out", "outside"):
        (tmp_path / name).mkdir()
    return tmp_path / "out", tmp_path / "outside"


@pytest.mark.parametrize("resume", [True, False])
def test_files_that_only_look_like_those_of_a_run_stay(
    table: MultiLabelData, tmp_path: Path, resume: bool
) -> None:
    names = ("best-12.pt", ".model.pt.old.tmp", ".best.pt.7.tmp", ".d2ace-mine.tmp", "best-1.pt")
    for name in names:
        (tmp_path / name).write_bytes(MINE)
    for _ in range(2):
        small_run(table, out=tmp_path, epochs=2, warmup=1, resume=resume)
        assert [(tmp_path / name).read_bytes() for name in names] == [MINE] * len(names)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_a_strangers_file_in_the_way_is_refused_and_left_alone(
    table: MultiLabelData,
    places: tuple[Path, Path],
    name: str,
    shape: Callable[[Path, Path], None],
) -> None:
    out, outside = places
    shape(out / name, outside)
    before = everything(out.parent)
    for resume in (True, False):
        with pytest.raises(RunError, match=rf"{name.replace('.', '[.]')}.* left alone") as error:
            small_run(table, out=out, record=True, insights=True, resume=resume)
        assert str(error.value).count(". ") == 0
    now = everything(out.parent)
    assert {path: now[path] for path in before} == before
    assert now.keys() - before.keys() <= {"out/.lock"}


@pytest.mark.parametrize("name", ["best.pt", "run.json", "record.npz"])
def test_a_search_asks_before_it_begins(table: MultiLabelData, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(MINE)
    with pytest.raises(RunError, match=f"{name}.* left alone"):
        small_run(table, out=tmp_path, tune=True, record=True)
    assert everything(tmp_path) == {name: MINE}


def stopped(table: MultiLabelData, out: Path, **settings: Any) -> None:
    """A run that stands after two epochs."""

    def stop(entry: dict[str, Any]) -> None:
        if entry["epoch"] == 2:
            raise RunInterrupted(15, "enough")

    with pytest.raises(RunInterrupted):
        small_run(table, out=out, watch=stop, **settings)


@pytest.mark.parametrize("resume", [True, False])
def test_files_of_others_beside_a_run_stay(
    table: MultiLabelData, tmp_path: Path, resume: bool
) -> None:
    stopped(table, tmp_path)
    strange = [
        tmp_path / name
        for name in ("best-12.pt", "record.npz", ".x.pt.1.tmp", "unfinished/best-7.pt/notes.txt")
    ]
    (tmp_path / "unfinished" / "best-7.pt").mkdir()
    for path in strange:
        path.write_bytes(MINE)
    result = small_run(table, out=tmp_path, resume=resume)
    assert [path.read_bytes() for path in strange] == [MINE] * len(strange)
    assert without_times(result) == without_times(small_run(table))
    with pytest.raises(RunError, match=r"holds record\.npz, which .* did not write; .* left alone"):
        small_run(table, out=tmp_path, resume=False, record=True)
    assert [path.read_bytes() for path in strange] == [MINE] * len(strange)


def test_weights_behind_a_link_are_not_removed(
    table: MultiLabelData, places: tuple[Path, Path]
) -> None:
    out, outside = places
    stopped(table, out)
    (out / "unfinished").rename(outside / "unfinished")
    (outside / "unfinished" / "best-99.pt").write_bytes(MINE)
    (out / "unfinished").symlink_to(outside / "unfinished")
    before = everything(out.parent)
    for resume in (True, False):
        with pytest.raises(RunError, match=r"unfinished was not .* left alone"):
            small_run(table, out=out, resume=resume)
    assert everything(out.parent) == before


@pytest.mark.parametrize(
    "content",
    [
        '{"config": {"lr": 0.1}}',
        '{"format": 1, "config": {"lr": 0.1}}',
        '{"format": 1, "config": {"data": "mine"}, "framework": "another"}',
        '{"format": 1, "config": ["a", "b"]}',
        '{"format": "1.2", "config": {}}',
        '{"format": true, "config": {}}',
        "[1, 2]",
    ],
)
def test_another_programs_run_json_is_no_run(
    table: MultiLabelData, tmp_path: Path, content: str
) -> None:
    (tmp_path / "run.json").write_text(content)
    (tmp_path / "checkpoint.pt").write_bytes(MINE)
    before = everything(tmp_path)
    for resume in (True, False):
        with pytest.raises(RunError, match=r"run\.json .*left alone"):
            small_run(table, out=tmp_path, resume=resume)
    assert everything(tmp_path) == before


def test_files_that_a_run_names_cannot_lead_out_of_its_folder(
    table: MultiLabelData, places: tuple[Path, Path]
) -> None:
    out, outside = places
    (outside / "precious").write_bytes(MINE)
    small_run(table, out=out, epochs=1, warmup=0)
    description = json.loads((out / "run.json").read_text())
    description["files"] = ["../outside/precious", str(outside / "precious"), "mine.txt"]
    del description["checksum"]
    save_json(out / "run.json", description)
    (out / "mine.txt").write_bytes(MINE)
    for path in (out / "checkpoint.pt", out / "result.json", out / "best.pt"):
        path.unlink()
    small_run(table, out=out, epochs=1, warmup=0, resume=False)
    assert (outside / "precious").read_bytes() == (out / "mine.txt").read_bytes() == MINE


def test_files_left_by_a_killed_run_are_removed(table: MultiLabelData, tmp_path: Path) -> None:
    stopped(table, tmp_path)
    left = [tmp_path / ".d2ace-71-0a1b2c3d.tmp", tmp_path / "unfinished/.d2ace-71-0a1b2c3d.tmp"]
    for path in left:
        path.write_bytes(b"half a checkpoint")
    small_run(table, out=tmp_path)
    assert not any(path.exists() for path in left)
    assert not (tmp_path / "unfinished").exists()


def test_a_runs_folder_that_vanishes_is_reported(table: MultiLabelData, tmp_path: Path) -> None:
    out, away = tmp_path / "out", tmp_path / "away"

    def vanish(entry: dict[str, Any]) -> None:
        out.rename(away)

    with pytest.raises(RunError, match=r"out/.* could not be written \(No such file"):
        small_run(table, out=out, watch=vanish)
    assert (away / "checkpoint.pt").exists()


def test_a_file_where_event_files_go_is_reported_before_training(
    table: MultiLabelData, tmp_path: Path
) -> None:
    (tmp_path / "tensorboard").write_bytes(MINE)
    with pytest.raises(RunError, match="tensorboard cannot be used as the folder"):
        small_run(table, out=tmp_path, tensorboard=True)
    assert (tmp_path / "tensorboard").read_bytes() == MINE
    assert not (tmp_path / "checkpoint.pt").exists()


@pytest.mark.parametrize(
    ("out", "sentence"),
    [
        ("", "out is empty; name a folder"),
        ("a" * 300, r"out is aaa.*, which is longer than a name may be here; choose a shorter one"),
        ("/" + "/".join(["a" * 200] * 20) + "/" + "a" * 60, "longer than a name may be here"),
        ("nul\0byte", r"out is 'nul\\x00byte'.* cannot be a path"),
        (7, "out is 7; name a folder"),
        (b"bytes", "out is b'bytes'; name a folder"),
    ],
)
def test_an_out_that_cannot_be_is_reported(
    table: MultiLabelData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    out: Any,
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for settings in ({}, {"tune": True}):
        with pytest.raises(UserError, match=sentence):
            small_run(table, out=out, **settings)
    with pytest.raises(UserError, match="the folder of a run is"):
        load_run(out)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("out", ["", "a" * 300])
@pytest.mark.parametrize("command", ["train", "demo"])
def test_an_out_that_cannot_be_typed(
    capsys: pytest.CaptureFixture[str],
    table_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    out: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [command, *([str(table_file)] if command == "train" else []), "--out", out]
    code, err = run(capsys, *words)
    assert code == 2
    assert ("out is empty" if not out else "longer than a name may be") in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("data", [None, 5, b"yeast", object(), {"X": 1}, [[1, 0]]])
@pytest.mark.parametrize("model", ["mlp", "ml_gcn"])
def test_data_that_are_none_are_reported_as_such(data: Any, model: str) -> None:
    with pytest.raises(
        UserError, match=r"^The data is .*; give a name, a path or a d2ace"
    ) as error:
        d2ace.train(data, model)
    assert "did you mean" not in str(error.value)
    assert type(data).__name__ in str(error.value) or data is None


# Predictions ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(table_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished")
    small_run(str(table_file), out=out, epochs=1, warmup=0)
    return out


@pytest.mark.parametrize("shape", [as_a_file, as_a_folder, as_a_link_to_a_file])
def test_predictions_do_not_replace_a_strangers_file(
    capsys: pytest.CaptureFixture[str],
    finished: Path,
    table_file: Path,
    places: tuple[Path, Path],
    shape: Callable[[Path, Path], None],
) -> None:
    out, outside = places
    shape(out / "p.csv", outside)
    before = everything(out.parent)
    code, err = run(capsys, "predict", str(finished), str(table_file), "-o", str(out / "p.csv"))
    assert code == 2
    assert "p.csv" in err
    assert "left alone" in err
    assert everything(out.parent) == before


def test_predictions_replace_those_of_before(
    capsys: pytest.CaptureFixture[str], finished: Path, table_file: Path, tmp_path: Path
) -> None:
    words = ("predict", str(finished), str(table_file), "-o", str(tmp_path / "p.csv"))
    assert run(capsys, *words) == (0, "")
    whole = (tmp_path / "p.csv").read_bytes()
    (tmp_path / "p.csv").write_bytes(whole[:1000])
    (tmp_path / "p.csv").chmod(0o600)
    assert run(capsys, *words) == (0, "")
    assert (tmp_path / "p.csv").read_bytes() == whole
    assert (tmp_path / "p.csv").stat().st_mode & 0o777 == 0o600
    (tmp_path / "p.csv").write_bytes(b"")  # as mktemp makes
    assert run(capsys, *words) == (0, "")
    assert everything(tmp_path) == {"p.csv": whole}


def test_predictions_go_through_links_pipes_and_devices(
    capsys: pytest.CaptureFixture[str], finished: Path, table_file: Path, tmp_path: Path
) -> None:
    words = ("predict", str(finished), str(table_file), "-o")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    assert run(capsys, *words, str(tmp_path / "link.csv")) == (0, "")
    assert (tmp_path / "link.csv").is_symlink()
    expected = (tmp_path / "real.csv").read_bytes()
    assert expected.startswith(b"row,")
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-m", "d2ace", *words, str(tmp_path / "pipe")]
    with subprocess.Popen(command) as process:
        assert (tmp_path / "pipe").read_bytes() == expected
    assert process.returncode == 0
    assert run(capsys, *words, os.devnull) == (0, "")
    assert not Path(os.devnull).is_file()


def test_a_full_disk_leaves_the_predictions_of_before(
    capsys: pytest.CaptureFixture[str], finished: Path, table_file: Path, tmp_path: Path
) -> None:
    words = ("predict", str(finished), str(table_file), "-o", str(tmp_path / "p.csv"))
    assert run(capsys, *words) == (0, "")
    before = everything(tmp_path)
    limited = """
import resource, signal, sys
from d2ace.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
main(sys.argv[1:])
"""
    full = subprocess.run(
        [sys.executable, "-c", limited, *words],
        check=False,
        capture_output=True,
        text=True,
    )
    assert full.returncode == 1
    assert "p.csv could not be written (File too large)" in full.stderr
    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "output is empty; name a file"),
        ("a" * 300, "longer than a name may be here"),
        ("no/such/folder/p.csv", "could not be written (No such file or directory)"),
    ],
)
def test_an_output_that_cannot_be_is_reported_in_one_sentence(
    capsys: pytest.CaptureFixture[str],
    finished: Path,
    table_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, err = run(capsys, "predict", str(finished), str(table_file), "-o", name)
    assert code in (1, 2)
    assert sentence in err
    assert not list(tmp_path.iterdir())


# The demo ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [as_a_file, as_a_folder, as_a_link_to_a_file])
@pytest.mark.parametrize("name", ["report/index.html", "true_labels_seed_0.csv"])
def test_the_demo_does_not_replace_a_strangers_file(
    capsys: pytest.CaptureFixture[str],
    places: tuple[Path, Path],
    name: str,
    shape: Callable[[Path, Path], None],
) -> None:
    out, outside = places
    (out / name).parent.mkdir(exist_ok=True)
    shape(out / name, outside)
    before = everything(out.parent)
    code, err = run(capsys, "demo", "--out", str(out), "--seeds", "1", "--epochs", "1")
    assert code == 2
    assert name in err
    assert "left alone" in err
    assert everything(out.parent) == before  # and nothing was trained


@pytest.mark.slow
def test_the_demo_replaces_its_own_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for epochs in ("1", "2"):
        words = ("demo", "--out", str(tmp_path), "--seeds", "1", "--epochs", epochs, "--json")
        code, err = run(capsys, *words)
        assert code == 0, err
        page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
        assert f"{epochs} epoch" in page
