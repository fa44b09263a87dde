"""The tests themselves: they look at what users can see, and stand where the code stands."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "src" / "d2ace"
FOREIGN = {"os._exit", "trainer._data_connector", "connector._prepare_dataloader"}
"""Private names of others that have no public one."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def touched(tree: ast.AST) -> set[str]:
    """Private names of other objects that a test reads, imports or replaces."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            found.add(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names if is_private(alias.name)}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("setattr", ".object")):
            names = [each.value for each in node.args[1:2] if isinstance(each, ast.Constant)]
            found |= {name for name in names if isinstance(name, str) and is_private(name)}
    return {name for name in found if not name.startswith(("self._", "cls._"))}


def test_tests_touch_nothing_private():
    found = {
        (path.relative_to(TESTS).as_posix(), name)
        for path in TESTS.rglob("*.py")
        for name in touched(ast.parse(path.read_text(encoding="utf-8"))) - FOREIGN
    }
    assert not found


def test_folders_of_tests_are_those_of_the_package():
    own = {path for path in TESTS.rglob("*") if path.is_dir() and path.name != "__pycache__"}
    names = {path.relative_to(TESTS).as_posix() for path in own}
    assert {name for name in names if not (PACKAGE / name).is_dir()} == {
        "docs",
        "helpers",
        "reproduction",
    }
