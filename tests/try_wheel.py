"""What `make wheel` built, tried as by a user who has the core dependencies and nothing else.

    python tests/try_wheel.py dist

A fresh environment outside the repository gets links to torch, numpy, scipy and what they need in
turn, in the versions of the running environment (to install torch anew would take a minute and
a gigabyte), and then the wheel, by pip, which may fetch nothing. There the README's first example
runs from another folder.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
CORE = ("torch", "numpy", "scipy")
LEFT_OUT = ("typer", "pandas", "lightning_fabric", "matplotlib", "sklearn", "pooch")
LOOK = f"""
import importlib.util, sys, d2ace
assert d2ace.__file__.startswith(sys.prefix), f"not the installed package: {{d2ace.__file__}}"
extras = [name for name in {LEFT_OUT} if importlib.util.find_spec(name)]
assert not extras, f"more than the core is installed: {{extras}}"
"""


def source_files() -> set[str]:
    """Every file of the package, data files too."""
    files = (ROOT / "src" / "d2ace").rglob("*")
    kept = (file for file in files if file.is_file() and "__pycache__" not in file.parts)
    return {file.relative_to(ROOT / "src").as_posix() for file in kept}


def check_contents(wheel: Path, sdist: Path) -> None:
    """All of the package is in both, and nothing else is in the wheel."""
    expected = source_files()
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert inside == expected, f"{wheel.name} and src/ differ in {sorted(inside ^ expected)}"
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/src/")[2] for name in archive.getnames()}
    assert expected <= inside, f"{sdist.name} lacks {sorted(expected - inside)}"


def needed(names: tuple[str, ...]) -> Iterator[Distribution]:
    """The named distributions and all they need, each once."""
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in seen:
            continue
        seen.add(name)
        found = distribution(name)
        yield found
        for line in found.requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)


def empty_environment(folder: Path) -> Path:
    """A new virtual environment with pip alone; its Python."""
    venv.create(folder, with_pip=True, symlinks=os.name != "nt")
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    return scripts / ("python.exe" if os.name == "nt" else "python")


def core_environment(folder: Path) -> Path:
    """A new virtual environment with links to the core dependencies; its Python."""
    python = empty_environment(folder)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    for each in needed(CORE):
        for top in {file.parts[0] for file in each.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(each.locate_file(top))))
    return python


def run(python: Path, *words: str, cwd: Path | None = None) -> str:
    """What the command prints; nothing of this environment or repository is on its path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(python), *words]
    done = subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stderr}"
    return done.stdout


def first_example() -> str:
    """The code that the README begins with."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert example, "README.md has no example"
    return example[1]


def main(dist: Path) -> None:
    """Check the one wheel and the one sdist of a folder."""
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    check_contents(wheel, sdist)
    with tempfile.TemporaryDirectory() as scratch:
        python = core_environment(Path(scratch) / "venv")
        elsewhere = Path(scratch) / "elsewhere"
        elsewhere.mkdir()
        run(python, "-m", "pip", "install", "--quiet", "--no-index", str(wheel.resolve()))
        run(python, "-m", "pip", "check")
        run(python, "-c", LOOK, cwd=elsewhere)
        run(python, "-W", "error", "-c", first_example(), cwd=elsewhere)
    print(f"{wheel.name}: all files are there, and the README's example runs with the core alone")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
