"""Every number of the reproduction's pages comes from its results."""

from __future__ import annotations

import csv
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

PLACE = Path(__file__).resolve().parents[2] / "docs" / "reproduction"
NUMBER = re.compile(r"(?<![\w.])\d\.\d{3,}")


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reproduction_build", PLACE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_those_of_the_results(build: ModuleType) -> None:
    made = build.markdown(build.report())
    assert (PLACE / "tables.md").read_text(encoding="utf-8") == made


def test_figures_are_there(build: ModuleType) -> None:
    wanted = set(re.findall(r"\]\(figures/([\w-]+\.svg)\)", (PLACE / "tables.md").read_text()))
    assert wanted == {path.name for path in (PLACE / "figures").glob("*.svg")}


def test_numbers_in_the_words_stand_in_the_tables() -> None:
    """Scores are written with four digits, in words as in tables."""
    tables = set(NUMBER.findall((PLACE / "tables.md").read_text(encoding="utf-8")))
    words = (PLACE / "README.md").read_text(encoding="utf-8")
    assert set(NUMBER.findall(words)) <= tables


def test_no_run_is_there_twice() -> None:
    with (PLACE / "results.csv").open(newline="", encoding="utf-8") as file:
        keys = [row["key"] for row in csv.DictReader(file)]
    assert keys
    assert len(set(keys)) == len(keys)
