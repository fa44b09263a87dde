"""Whatever a path names, reading and writing end at once, with a sentence on one line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d2ace.data import DataError, UnknownDataError, folds, load, make_multilabel, read_folds, save
from d2ace.data import load_features as features
from d2ace.data import write_folds as write
from d2ace.data.images import label_vectors, load_images

ARFF = "@relation r\n@attribute x numeric\n@attribute l {0,1}\n@data\n1,1\n2,0\n"
POSIX = pytest.mark.skipif(os.name != "posix", reason="such files exist on POSIX systems only")

READERS: dict[str, Callable[[Any], Any]] = {
    "arff": lambda path: load(path, labels=1, cache=False),
    "npz": load,
    "mat": load,
    "svm": lambda path: load(path, cache=False),
    "features.npz": lambda path: features(path, ("a",)),
    "xml": lambda path: load(beside(path), labels=Path(path), cache=False),
    "json": read_folds,
    "txt": lambda path: label_vectors(["cat"], path),
    "csv": lambda path: label_vectors(["cat"], path),
    "zip": lambda path: load_images("csv", path),
}


def beside(path: Any) -> Path:
    """A good ARFF file in the folder of ``path``, or here."""
    folder = Path(path).parent
    file = (folder if folder.is_dir() else Path.cwd()) / "good.arff"
    file.write_text(ARFF)
    return file


def sentence(read: Callable[[Any], Any], path: Any) -> str:
    with pytest.raises(DataError) as caught:
        read(path)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 600
    return message


@POSIX
@pytest.mark.parametrize("kind", READERS)
def test_pipes_devices_and_sockets_are_refused_at_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pipe, device, bound = (tmp_path / f"{name}.{kind}" for name in ("pipe", "device", "socket"))
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(bound.name)
        for path in (pipe, device, bound):
            said = sentence(READERS[kind], path)
            assert str(path) in said
            assert "is not a regular file" in said or "is neither a folder nor" in said


@pytest.mark.parametrize("kind", READERS)
def test_absent_and_empty_files_are_reported(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"set.{kind}"
    assert "no such" in sentence(READERS[kind], path)
    path.write_bytes(b"")
    said = sentence(READERS[kind], path)
    assert said.startswith(str(path))
    path.unlink()
    path.mkdir()
    assert str(path) in sentence(READERS[kind], path)
    for name in ("a\0b", "x" * 5000, "lone\ud800"):
        assert "\0" not in sentence(READERS[kind], f"{name}.{kind}")


@POSIX
@pytest.mark.parametrize(
    "name", ["two\nlines", "tab\there", os.fsdecode(b"byte\xff"), "\x1b[31mred"]
)
def test_names_that_no_terminal_shows_are_shown_escaped(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.arff"
    path.write_text(ARFF)
    data = load(path, labels=1, cache=False)
    assert data.name.isprintable()
    assert data.n == 2
    path.write_text(ARFF + "3\n")
    said = sentence(READERS["arff"], path)
    assert f"{tmp_path}{os.sep}{name.encode('unicode_escape').decode()}.arff, line 7: " in said
    for kind in ("npz", "mat", "json", "zip"):
        (tmp_path / f"{name}.{kind}").write_bytes(b"nothing")
        assert f".{kind}" in sentence(READERS[kind], tmp_path / f"{name}.{kind}")


@POSIX
def test_the_command_line_describes_a_file_of_any_name(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"two\nlines \xff.npz")
    np.savez(path, X=np.ones((4, 2)), Y=np.eye(4)[:, :2])
    command = [sys.executable, "-m", "d2ace", "data", "info", path]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    assert rb"two\nlines \udcff" in done.stdout


def test_paths_that_cannot_be_written_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = make_multilabel(30, 3, 4)
    pairs = folds(data.Y)

    def write_both(path: Any) -> list[str]:
        return [
            sentence(lambda place: save(data, place), path),
            sentence(lambda place: write(place, data.Y, pairs), path),
        ]

    for path in ("", ".", "a\0b", "x" * 5000, "lone\ud800", "nowhere/set.npz"):
        write_both(path)
    assert list(tmp_path.iterdir()) == []
    if os.name == "posix":
        os.mkfifo(tmp_path / "pipe.npz")
        for said in write_both("pipe.npz"):
            assert "left alone" in said
    write("folds.json", data.Y, pairs, seed=np.int64(3))  # type: ignore[arg-type]
    assert read_folds("folds.json").seed == 3


def test_an_empty_name_is_no_dataset() -> None:
    with pytest.raises(UnknownDataError, match="an empty name was given"):
        load("")


@POSIX
def test_a_pipe_among_the_annotations_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    (tmp_path / "Annotations").mkdir()
    for split in ("trainval", "test"):
        (tmp_path / "ImageSets" / "Main" / f"{split}.txt").write_text("a\n")
    os.mkfifo(tmp_path / "Annotations" / "a.xml")
    said = sentence(lambda root: load_images("voc2007", root), tmp_path)
    assert "a.xml: is not a regular file" in said
