"""Every number on the pages of our studies comes from their results."""

from __future__ import annotations

import csv
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPRODUCTION = ROOT / "reproduction"
WORDS = {
    REPRODUCTION: REPRODUCTION / "README.md",
    ROOT / "docs" / "images": ROOT / "docs" / "explanation" / "images.md",
}
by_study = pytest.mark.parametrize("place", list(WORDS), ids=lambda place: place.name)
NUMBER = re.compile(r"(?<![\w.])\d\.\d{3,}")
COUNT = re.compile(r"\b\d[\d,]* of \d[\d,]*\b")
SIGNED = r"([+−]\d\.\d{4})"
IN_WORDS = re.compile(rf"{SIGNED}(?: \(|, ){SIGNED}\s+to\s+{SIGNED}\)")
BOUNDS = re.compile(r"(?<![\w.])[+−]?\d\.\d{4}\s+to\s+[+−]?\d\.\d{4}\)")
IN_TABLES = re.compile(rf"{SIGNED}(?: |<br>)\[{SIGNED}, {SIGNED}\]")
MADE = re.compile(r"<!-- (\w+): made by build.py -->.*?<!-- end -->", re.S)


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reproduction_build", REPRODUCTION / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@by_study
def test_tables_are_those_of_the_results(build: ModuleType, place: Path) -> None:
    made = build.markdown(build.report(place), place)
    assert (place / "tables.md").read_text(encoding="utf-8") == made


@by_study
def test_figures_are_there(place: Path) -> None:
    pages = (place / "tables.md", *([WORDS[place]] if place == REPRODUCTION else []))
    shown = "".join(page.read_text(encoding="utf-8") for page in pages)
    wanted = set(re.findall(r"\]\(figures/([\w-]+\.svg)\)", shown))
    assert wanted == {path.name for path in (place / "figures").glob("*.svg")}


def words_and_tables(place: Path) -> tuple[str, str]:
    """What a person wrote on a study's page, and all that was made from its results."""
    page = WORDS[place].read_text(encoding="utf-8")
    made = "".join(found[0] for found in MADE.finditer(page))
    return MADE.sub("", page), (place / "tables.md").read_text(encoding="utf-8") + made


@by_study
def test_numbers_in_the_words_stand_in_the_tables(place: Path) -> None:
    """Scores are written with four digits, in words as in tables."""
    words, tables = words_and_tables(place)
    assert set(NUMBER.findall(words)) <= set(NUMBER.findall(tables))


@by_study
def test_counts_in_the_words_stand_in_the_tables(place: Path) -> None:
    words, tables = words_and_tables(place)
    assert set(COUNT.findall(words)) <= set(COUNT.findall(tables))


@by_study
def test_intervals_in_the_words_stand_in_the_tables(place: Path) -> None:
    words, tables = words_and_tables(place)
    assert set(IN_WORDS.findall(words)) <= set(IN_TABLES.findall(tables))
    assert len(IN_WORDS.findall(words)) == len(BOUNDS.findall(words))  # none in another form


def test_steps_and_claims_are_those_of_the_results(build: ModuleType) -> None:
    page = WORDS[REPRODUCTION].read_text(encoding="utf-8")
    assert sorted(MADE.findall(page)) == [
        *("best", "bibtex", "cases", "claims", "clear", "concentration", "equivalence"),
        *("further", "handicaps", "labels", "scores", "static", "steps", "verdicts"),
    ]
    assert page == build.words()


@pytest.mark.parametrize("place", [*WORDS, REPRODUCTION / "second"], ids=lambda place: place.name)
def test_no_run_is_there_twice(place: Path) -> None:
    with (place / "results.csv").open(newline="", encoding="utf-8") as file:
        keys = [row["key"] for row in csv.DictReader(file)]
    assert keys
    assert len(set(keys)) == len(keys)
