"""Commands on terminals that lack characters, are closed, full, or have gone away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from d2ace.data import MultiLabelData, make_multilabel, save
from d2ace.training import RunResult

pytestmark = pytest.mark.skipif(not Path("/bin/bash").exists(), reason="uses bash and /dev/full")

LOCALES: dict[str, dict[str, str]] = {
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "strict": {"PYTHONIOENCODING": "ascii:strict"},
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}
OTHERS = ("PYTHONIOENCODING", "LC_ALL", "LANG", "LC_CTYPE", "PYTHONUTF8", "PYTHONCOERCECLOCALE")
TRAIN = "train é.npz --model mlp --epochs 2 --warmup 1 --batch-size 64"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset whose file and labels have names beyond ASCII."""
    folder = tmp_path_factory.mktemp("terminals")
    made = make_multilabel(120, 6, 3, seed=1)
    names = ("naïve", "λ → ∞", "標籤")
    save(MultiLabelData("é", made.X, made.Y, made.feature_names, names), folder / "é.npz")
    return folder


def shell(line: str, place: Path, **changes: str) -> tuple[int, bytes, str]:
    """Exit code, output and errors of a line in which ``d2ace`` is our command."""
    kept = {name: value for name, value in os.environ.items() if name not in OTHERS}
    program = f'd2ace() {{ "{sys.executable}" -m d2ace "$@"; }}\n{line}'
    done = subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", program],
        cwd=place,
        env=kept | changes,
        capture_output=True,
        timeout=240,
        check=False,
    )
    errors = done.stderr.decode("utf-8", "replace")
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors
    return done.returncode, done.stdout, errors


def result(place: Path) -> RunResult:
    return RunResult.read(place / "result.json")


def test_a_terminal_without_our_characters_is_shown_others(place: Path) -> None:
    code, out, errors = shell(f"d2ace {TRAIN} --out plain", place, PYTHONIOENCODING="ascii:strict")
    assert (code, len(result(place / "plain").history)) == (0, 2), errors
    words = out.decode("ascii")
    assert "Macro-AUC ^" in words
    assert r"\xe9.npz" in words.splitlines()[0]  # a name is escaped, so that none is another
    code, out, errors = shell("d2ace predict plain é.npz", place, PYTHONIOENCODING="ascii:strict")
    assert code == 0, errors
    assert out.decode("ascii").splitlines()[0] == r"row,na\xefve,lambda -> \u221e,\u6a19\u7c64"


def seldom(*words: str, **options: str) -> Any:
    return pytest.param(*words, marks=pytest.mark.slow, **options)


@pytest.mark.parametrize(
    "where", ["> /dev/full", seldom(">&-"), seldom("2>&-"), ">&- 2>&-", seldom("2> /dev/full")]
)
def test_a_result_is_kept_whatever_becomes_of_the_terminal(
    place: Path, where: str, tmp_path: Path
) -> None:
    code, _, errors = shell(f"d2ace {TRAIN} --out {tmp_path} {where}", place)
    assert len(result(tmp_path).history) == 2
    if where == "> /dev/full":
        assert code == 1
        assert "standard output could not be written (No space left on device)" in errors
    else:
        assert code == 0


@pytest.mark.parametrize(
    "devices",
    [pytest.param("", id="one"), seldom("--devices 2 --accelerator cpu", id="two")],
)
def test_a_run_outlives_the_reader_of_its_lines(place: Path, tmp_path: Path, devices: str) -> None:
    line = f"d2ace {TRAIN} --epochs 30 --out {tmp_path} {devices} 2> >(head -n 1 >&2) | true"
    code, _, _ = shell(line, place)
    assert code == 1  # whoever was to read the table has gone
    assert len(result(tmp_path).history) == 30


@pytest.fixture(scope="module")
def made(place: Path) -> Path:
    """A finished run, a store and a demo for the commands that read them."""
    grid = "--datasets é.npz --models mlp --selectors random,d2ace --folds 3 --epochs 2"
    for line in (
        f"d2ace {TRAIN} --out run",
        f"d2ace bench {grid} --set warmup=1 --db store.db",
        "d2ace demo --seeds 1 --epochs 2 --out demo",
    ):
        code, _, errors = shell(line, place)
        assert code == 0, errors
    return place


GRID = "--datasets é.npz --models mlp --folds 3 --epochs 2 --set warmup=1 --dry-run --db none.db"
COMMANDS = {
    "--help": "",
    "train --help": "",
    "methods": "--json",
    "data list": "--json",
    "data info é.npz": "--json",
    "data fetch nothing-of-this-name": "",
    f"{TRAIN} --out run": "--json",
    "predict run é.npz": "",
    f"bench {GRID}": "--json",
    f"ablate {GRID}": "--json",
    f"sweep lambda2 K {GRID}": "--json",
    "compare store.db store.db": "--json",
    "report store.db -o page": "",
    "demo --seeds 1 --epochs 2 --out demo": "--json",
    "train ∞": "",
}


@pytest.mark.slow
@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_on_every_terminal(made: Path, command: str, locale: str) -> None:
    usual, _, _ = shell(f"d2ace {command}", made, PYTHONIOENCODING="utf-8")
    code, out, errors = shell(f"d2ace {command}", made, **LOCALES[locale])
    assert code == usual, errors
    assert "unexpected" not in errors
    out.decode("cp1252" if locale == "cp1252" else "utf-8")
    if COMMANDS[command]:
        as_json: list[Any] = []
        for changes in ({"PYTHONIOENCODING": "utf-8"}, LOCALES[locale]):
            code, out, errors = shell(f"d2ace {command} --json", made, **changes)
            assert code == 0, errors
            as_json.append(json.loads(out.decode("ascii")))
        assert as_json[0] == as_json[1] or locale == "C"  # where é.npz has another name


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_without_a_reader(made: Path, command: str) -> None:
    usual, _, _ = shell(f"d2ace {command}", made)
    for where in ("> /dev/full", "| true", "> /dev/full 2>&1"):
        code, _, errors = shell(f"d2ace {command} {where}", made)
        assert code in (usual or 1, usual), errors  # 0 where there was nothing to print
        assert "unexpected" not in errors
    code, _, errors = shell(f"d2ace {command} >&-", made)
    assert code == usual, errors
