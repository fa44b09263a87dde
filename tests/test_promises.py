"""Every promise of the guides names its test, and the test exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import d2ace
import d2ace.testing

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGE = DOCS / "promises.md"
CHECK = re.compile(r"d2ace\.testing: (\w+)")
TEST = re.compile(r"(tests/[\w/]+\.py)::([\w:]+)")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
MEASURED = ROOT / "benchmarks" / "README.md"


def rows() -> list[tuple[str, str]]:
    """Promise and tests of each row of the page's tables."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    found = [cell for cell in cells if cell[0] != "promise" and not cell[0].startswith("---")]
    assert all(len(cell) == 2 for cell in found), [cell for cell in found if len(cell) != 2]
    return [(cell[0], cell[1]) for cell in found]


@cache
def named_in(file: Path) -> set[str]:
    """The names of a file's tests, as pytest spells them."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{d.name}" for d in node.body if isinstance(d, ast.FunctionDef)}
    return {name for name in names if name.split("::")[-1].startswith("test_")}


def problem_of(name: str) -> str:
    """Why ``name`` is no test and no check of the kit; empty if it is one."""
    if check := CHECK.fullmatch(name):
        known = {each.__name__ for each in d2ace.testing.CHECKS}
        return "" if check[1] in known else f"d2ace.testing has no {check[1]}"
    test = TEST.fullmatch(name)
    if not test:
        return f"{name} is neither a test nor a check"
    file = ROOT / test[1]
    if not file.is_file():
        return f"{test[1]} does not exist"
    return "" if test[2] in named_in(file) else f"{test[1]} has no {test[2]}"


def test_every_promise_names_tests_that_exist() -> None:
    assert len(rows()) > 100
    problems = set()
    for promise, tests in rows():
        named = re.findall(r"`([^`]+)`", tests)
        problems |= {problem_of(name) for name in named} if named else {f"no test: {promise}"}
    problems.discard("")
    assert not problems, "\n".join(sorted(problems))


def test_a_promise_says_where_it_stands() -> None:
    for promise, _ in rows():
        pages = LINK.findall(promise)
        assert pages, f"no page: {promise}"
        for page in pages:
            assert (DOCS / page).is_file(), f"{page} does not exist: {promise}"


def test_no_promise_stands_twice() -> None:
    promises = [promise for promise, _ in rows()]
    assert len(promises) == len(set(promises))


def test_every_promise_in_short_has_a_row() -> None:
    page = PAGE.read_text(encoding="utf-8")
    (section,) = re.findall(r"^## In short\n(.*?)^## ", page, flags=re.M | re.S)
    bullets = re.findall(r"^- \*\*(.+?)\.?\*\*", section, flags=re.M)
    assert len(bullets) == len(re.findall(r"^- ", section, flags=re.M)) > 0
    kept = [promise for promise, _ in rows() if "(promises.md#in-short)" in promise]
    for bullet in bullets:
        assert any(promise.startswith(f"**{bullet}**") for promise in kept), bullet


def test_every_guide_has_its_promises_listed() -> None:
    linked = {target for promise, _ in rows() for target in LINK.findall(promise)}
    guides = {*(DOCS / "how-to").glob("*.md"), *(DOCS / "reference" / "methods").glob("*.md")}
    leading = {DOCS / "how-to" / name for name in ("README.md", "choose-a-method.md")}
    assert {page.relative_to(DOCS).as_posix() for page in guides - leading} <= linked


@pytest.mark.parametrize("name", list(d2ace.SELECTORS))
def test_the_cost_of_every_method_is_measured(name: str) -> None:
    assert f"\n| {name} |" in MEASURED.read_text(encoding="utf-8")
