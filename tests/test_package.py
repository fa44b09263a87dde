"""The package as a user meets it: light to import, examples that run, a README that is true."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

import d2ace


def run(*command: str, **options) -> str:
    finished = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_import_pulls_in_nothing_beyond_torch_numpy_and_scipy():
    script = (
        "import sys, json, torch, numpy, scipy.sparse; before = set(sys.modules); import d2ace;"
        "print(json.dumps(sorted({m.split('.')[0] for m in set(sys.modules) - before})))"
    )
    new = set(json.loads(run(sys.executable, "-c", script)))
    assert new <= {"d2ace", "torch", "numpy", "scipy", *sys.stdlib_module_names}


def test_core_dependencies_are_three():
    package = metadata("d2ace")
    needs = [line.partition(";") for line in package.get_all("Requires-Dist")]
    core = {re.split(r"[<>=!~ ]", name)[0] for name, _, marker in needs if not marker}
    assert core == {"torch", "numpy", "scipy"}
    others = [name for name, _, marker in needs if marker and "extra" not in marker]
    assert [re.split(r"[<>=!~ ]", name)[0] for name in others] == ["tomli"]  # in Python since 3.11
    assert package["Version"] == d2ace.__version__
    extras = set(package.get_all("Provides-Extra"))
    assert {"bench", "image", "lightning", "transformers", "ray", "all", "dev"} <= extras


def test_the_readme_runs(root):
    blocks = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    assert blocks
    namespace: dict = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)  # noqa: S102


ALONE = [
    "own_loop.py",
    "own_selector.py",
    "sklearn_classifier.py",
    "lightning_trainer.py",
    "hugging_face.py",
    "images.py",
]


@pytest.mark.parametrize("name", ALONE)
def test_examples_run(root, name):
    printed = run(sys.executable, str(root / "examples" / name), "--quick")
    assert printed.strip()


def test_the_example_for_two_processes_runs(root):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    printed = run(*launch, str(root / "examples" / "two_processes.py"))
    assert sorted(line[:9] for line in printed.splitlines()) == ["process 0", "process 1"]
    assert printed.count("P agree: True") == 2


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are named in /proc")
def test_the_example_for_two_processes_leaves_no_thread_that_talks(root, tmp_path):
    """One that is late with its last message would end Python with an abort."""
    script = tmp_path / "look.py"
    script.write_text(f"""
import pathlib, runpy, sys
runpy.run_path({str(root / "examples" / "two_processes.py")!r}, run_name="__main__")
names = [each.read_text().strip() for each in pathlib.Path("/proc/self/task").glob("*/comm")]
sys.stdout.write(f"gloo: {{[name for name in names if 'gloo' in name]}}\\n")
""")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    assert run(*launch, str(script)).count("gloo: []") == 2


def test_no_example_is_forgotten(root):
    names = {path.name for path in (root / "examples").glob("*.py")}
    assert names == {*ALONE, "two_processes.py"}


def test_the_changelog_knows_this_version(root):
    assert f"## [{d2ace.__version__}]" in (root / "CHANGELOG.md").read_text()


def test_what_is_loaded_when_first_used_is_listed_too() -> None:
    import d2ace
    import d2ace.report

    for package in (d2ace, d2ace.report):
        assert set(package.__all__) <= set(dir(package))
    assert {"benchmark", "report", "training"} <= set(dir(d2ace))
