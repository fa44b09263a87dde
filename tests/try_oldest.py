"""The oldest torch, numpy and scipy that pyproject.toml allows, tried with the core alone.

    python tests/try_oldest.py

A fresh environment in a temporary folder (2 GB while it is there) gets these versions, the package
without extras, and what its tests need. There the tests of the selectors run, and the README's
first example.

On Linux, package indexes have torch built for CUDA, which does not load without 3 GB of libraries
that nothing here calls. Empty ones, made by gcc, stand in for them; a build for the CPU needs none.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement
from try_wheel import CORE, ROOT, empty_environment, first_example, run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOOLS = ("hypothesis", "pandas", "pytest")  # pandas: frames as labels
ELSEWHERE = "libcuda.so.1"  # comes with a driver, and torch looks for it only when it uses one


def oldest() -> dict[str, str]:
    """The core dependencies with the lowest versions that the package takes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = {each.name: each.specifier for each in map(Requirement, project["dependencies"])}
    return {name: str(bounds[name]).removeprefix(">=") for name in CORE}


def install(python: Path) -> None:
    """Everything but the libraries of CUDA."""
    pip = ("-m", "pip", "install", "--quiet")
    pins = [f"{name}=={version}" for name, version in oldest().items()]
    run(python, *pip, "--no-deps", pins[0])
    listed = run(
        python, "-c", "from importlib.metadata import *; print('\\n'.join(requires('torch')))"
    )
    needs = [
        f"{each.name}{each.specifier}"
        for each in map(Requirement, listed.splitlines())
        if not each.name.startswith(("nvidia-", "triton"))
        and (each.marker is None or each.marker.evaluate({"extra": ""}))
    ]
    run(python, *pip, *pins[1:], *needs, *TOOLS)
    run(python, *pip, "--no-deps", str(ROOT))


def tell(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def stand_in_for_cuda(folder: Path) -> None:
    """Make the libraries that those in the folder want: each function says "no device"."""
    present = {path.name for path in folder.iterdir()}
    wanted: set[str] = set()
    functions: set[tuple[str, str]] = set()  # with the library whose version they ask for, if any
    for path in folder.glob("*.so*"):
        read = tell("readelf", "--wide", "--dynamic", "--dyn-syms", path)
        wanted |= set(re.findall(r"NEEDED.*\[(lib(?:cu|nv|nccl).*)\]", read))
        functions |= set(re.findall(r" UND (\w+)(?:@(\S+))?", read))
    for library in wanted - present - {ELSEWHERE}:
        stem = library.removeprefix("lib").partition(".")[0]
        names = {name for name, of in functions if of == library}
        names |= {name for name, of in functions if not of and name.startswith(stem)}
        source, versions = folder / "stand_in.c", folder / "stand_in.map"
        source.write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in names))
        versions.write_text(f"{library} {{ global: *; }};\n")
        made = ("-shared", "-fPIC", "-w", "-fno-builtin", source, "-o", folder / library)
        tell("gcc", *made, f"-Wl,-soname,{library}", f"-Wl,--version-script={versions}")


def main() -> None:
    """Install, and run the tests and the example."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "venv"
        python = empty_environment(folder)
        install(python)
        if sys.platform == "linux":
            (libraries,) = folder.glob("lib/python*/site-packages/torch/lib")
            stand_in_for_cuda(libraries)
        versions = "; ".join(f"import {name}; print('{name}', {name}.__version__)" for name in CORE)
        print(run(python, "-c", versions, cwd=Path(scratch)), end="", flush=True)
        run(python, "-W", "error", "-c", first_example(), cwd=Path(scratch))
        words = (
            "-m",
            "pytest",
            "-q",
            "-m",
            "not slow",
            "-p",
            "no:cacheprovider",
            "tests/selectors",
        )
        print(run(python, *words, cwd=ROOT).splitlines()[-1])


if __name__ == "__main__":
    main()
