"""The tutorials: each page and its notebook say the same, and the notebook runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import notebooks
import pytest

RUNNER = Path(__file__).parents[1] / "helpers" / "run_notebook.py"
PAGES = notebooks.pages()
NUMBER = re.compile(r"[+-]?\d[\d,.]*")
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def test_there_are_three_tutorials() -> None:
    assert len(PAGES) == 3


@by_page
def test_a_notebook_is_made_from_its_page(page: Path) -> None:
    """`python docs/notebooks.py` makes them; text, code and order are those of the page."""
    assert page.with_suffix(".ipynb").read_text(encoding="utf-8") == notebooks.notebook(page)


@by_page
def test_a_notebook_has_no_outputs(page: Path) -> None:
    made = json.loads(page.with_suffix(".ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@by_page
def test_a_notebook_runs_and_prints_what_its_page_shows(page: Path, tmp_path: Path) -> None:
    """From its first cell to its last, in one fresh interpreter; numbers may differ by machine."""
    notebook = page.with_suffix(".ipynb")
    done = subprocess.run(
        [sys.executable, str(RUNNER), str(notebook)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    output = done.stdout.replace("\u00a0", " ")  # a page shows a plain blank
    printed = [part.strip("\n") for part in output.split("\0")[:-1]]
    shown = [text.strip("\n") for kind, _, text in notebooks.cells(page) if kind == "code"]
    assert [NUMBER.sub("N", each) for each in printed] == [NUMBER.sub("N", each) for each in shown]
