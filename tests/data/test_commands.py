"""The command line as people use it: its words and its exit codes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from loopback import Server

from d2ace.cli.main import main

LABELLED = "@relation r\n@attribute x numeric\n@attribute l {0,1}\n@data\n1,1\n?,0\n3,1\n"


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in list(os.environ):
        if key.startswith("D2ACE_"):
            monkeypatch.delenv(key)
    monkeypatch.setenv("D2ACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which the command replaces


@dataclass(frozen=True)
class Done:
    """What a command said and ended with."""

    returncode: object
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def d2ace(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command here: a process of its own would import torch for a second or two."""

    def run(*words: object) -> Done:
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        return Done(stop.value.code, *capsys.readouterr())

    return run


def process(*words: str) -> Done:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


def sentence(done: Done, code: int) -> str:
    """The one line of an error."""
    assert done.returncode == code, done
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("d2ace: ")
    return line


def test_list(d2ace: Run) -> None:
    done = process("-m", "d2ace", "data", "list")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        "name",
        "domain",
        "n",
        "d",
        "q",
        "card",
        "here",
        "in",
        "the",
        "paper",
    ]
    assert any(
        line.split()[:6] == ["yeast", "biology", "2417", "103", "14", "4.237"] for line in lines
    )
    rows = json.loads(d2ace("data", "list", "--json").stdout)
    assert len(rows) == 20
    assert sum(row["paper"] is not None for row in rows) == 13
    assert [row["name"] for row in rows if row["here"]] == ["digits"]


def test_info_by_name(d2ace: Run, data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D2ACE_DATA", str(data_root))
    done = d2ace("data", "info", "rcv1subset2")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for words in (
        "known defects",
        "starts 12 columns too early",
        "the paper keeps the 2%",
        "JMLR 5",
    ):
        assert words in done.stdout
    assert "distinct label sets" in done.stdout
    facts = json.loads(d2ace("data", "info", "birds", "--json").stdout)
    assert (facts["n"], facts["d"], facts["q"]) == (645, 260, 19)
    statistics = facts["statistics"]
    assert statistics["cardinality"] == pytest.approx(1.014, abs=1e-3)
    assert statistics["rows_without_labels"] == pytest.approx(294 / 645)
    for key in ("density", "distinct_label_sets", "mean_imbalance_ratio", "scumble"):
        assert statistics[key] > 0
    assert "294 of the 645 rows have no label." in facts["defects"]


def test_info_by_path(d2ace: Run, tmp_path: Path) -> None:
    path = tmp_path / "own.arff"
    path.write_text(LABELLED)
    done = d2ace("data", "info", path, "--labels", 1)
    assert done.returncode == 0, done.stderr
    assert "filled 1 missing values" in done.stdout
    assert done.stderr == ""
    facts = json.loads(d2ace("data", "info", path, "--labels", 1, "--json").stdout)
    assert (facts["name"], facts["n"], facts["d"], facts["q"]) == ("own", 3, 1, 1)
    assert "citation" not in facts


def test_info_of_what_is_not_here(d2ace: Run) -> None:
    done = d2ace("data", "info", "mediamill")
    assert done.returncode == 0, done.stderr
    assert "run: d2ace data fetch mediamill" in done.stdout
    assert json.loads(d2ace("data", "info", "mediamill", "--json").stdout)["statistics"] is None


def test_info_of_the_embedded_dataset(d2ace: Run) -> None:
    facts = json.loads(d2ace("data", "info", "Digits", "--json").stdout)
    assert (facts["name"], facts["q"]) == ("digits", 10)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ("data", "info", "yeest"),
            "no dataset and no file is called 'yeest' (did you mean 'yeast'?)",
        ),
        (("data", "info", "absent.arff"), "absent.arff: no such file; check the path"),
        (("data", "info", "."), "is a directory"),
        (("data", "info"), "Missing argument 'NAME_OR_PATH'"),
        (("data", "infos", "x"), "No such command 'infos'"),
        (("data", "info", "yeast", "--lables", "3"), "No such option"),
        (("data", "info", "yeast", "--labels", "x"), "Invalid value for '--labels'"),
        (("data", "fetch"), "give the names of the datasets to fetch, or --all"),
        (("data", "fetch", "yeest"), "did you mean 'yeast'?"),
        (("data", "fetch", "Digits"), "comes with the package"),
        (("nonsense",), "No such command 'nonsense'"),
    ],
)
def test_mistyped_options_are_refused(d2ace: Run, words: tuple[str, ...], expected: str) -> None:
    assert expected in sentence(d2ace(*words), 2)


def test_a_broken_file_ends_the_command_with_code_1(d2ace: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.arff"
    path.write_text(LABELLED + "4\n")
    line = sentence(d2ace("data", "info", path, "--labels", 1), 1)
    assert line == f"d2ace: {path}, line 8: has 1 values for 2 attributes; correct the row."
    traced = process("-m", "d2ace", "data", "info", str(path), "--labels", "1", "--debug")
    assert traced.returncode == 1
    assert "Traceback (most recent call last)" in traced.stderr
    assert "cannot be fetched" in sentence(d2ace("data", "fetch", "rcv1subset1"), 1)


def test_fetch_offline_and_from_a_mirror(
    d2ace: Run, data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        monkeypatch.setenv("D2ACE_MIRROR", f"http://127.0.0.1:{held.getsockname()[1]}")
        line = sentence(d2ace("data", "fetch", "flags", "--retries", 1), 1)
    assert "cannot be reached" in line
    assert "are you online?" in line
    server = Server()
    try:
        for name in ("flags.arff", "flags.xml"):
            server.replies[f"/flags/{name}"] = [(data_root / "flags" / name).read_bytes()]
        monkeypatch.setenv("D2ACE_MIRROR", server.url)
        done = d2ace("data", "fetch", "flags")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"flags: {tmp_path / 'cache' / 'datasets' / 'flags'}\n"
        several = d2ace("data", "fetch", "flags", "emotions", "--retries", 1)
        assert several.returncode == 1
        assert several.stdout.startswith("flags: ")
        assert "answered 404" in several.stderr
        assert "1 of 2 datasets could not be fetched" in several.stderr
    finally:
        server.close()
    facts = json.loads(d2ace("data", "info", "flags", "--json").stdout)
    assert facts["n"] == 194


def test_help_is_shown_without_words(d2ace: Run) -> None:
    done = d2ace()
    assert "Usage: d2ace" in done.stdout
    assert done.stderr == ""
    for words in (("--help",), ("data", "--help"), ("data", "fetch", "--help")):
        assert d2ace(*words).returncode == 0


BLOCKED = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None
from d2ace.cli import main
main({words!r})
"""


@pytest.mark.parametrize(
    ("blocked", "words", "needs"),
    [
        (["typer"], ["data", "list"], "the command line needs typer"),
        (["rich"], ["data", "list"], "the command line needs rich"),
        (["pooch"], ["data", "fetch", "yeast"], "fetching needs pooch"),
    ],
)
def test_missing_packages(blocked: list[str], words: list[str], needs: str) -> None:
    code = BLOCKED.format(blocked=blocked, words=words)
    line = sentence(process("-c", code), 1)
    assert needs in line
    assert 'pip install ".[bench]" in a checkout' in line


def test_reading_a_label_list_without_defusedxml(tmp_path: Path) -> None:
    (tmp_path / "own.arff").write_text(LABELLED)
    (tmp_path / "own.xml").write_text('<labels><label name="l"/></labels>')
    code = BLOCKED.format(
        blocked=["defusedxml"], words=["data", "info", str(tmp_path / "own.arff")]
    )
    assert 'pip install ".[bench]" in a checkout' in sentence(process("-c", code), 1)


def test_importing_the_package_stays_light() -> None:
    code = (
        "import sys, d2ace.data\n"
        "heavy = {'pooch', 'requests', 'typer', 'rich', 'defusedxml', 'sklearn', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert process("-c", code).stdout.strip() == "[]"
