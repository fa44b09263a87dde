"""Packages depend on each other one way, and no two modules import each other."""

from __future__ import annotations

import ast
import re
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
ROOM = re.compile(r"^\| `(\w+)` \| (.*) \| (.*) \|$", re.MULTILINE)
NAMED = re.compile(r"`(\w+(?:\.py)?)`")

ROOMS = {
    name: (holds, NAMED.findall(uses))
    for name, holds, uses in ROOM.findall(PAGE.read_text("utf-8"))
}
"""The page's table: package -> what it holds, and the packages that it may import."""


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in SOURCE.rglob("*.py")}


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def imported(module: str, *, types: bool) -> set[tuple[str, str]]:
    """What a module imports of the library, as (from where, what), in functions too."""
    path = MODULES[module]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(tree):
        if not types and id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            place = [*(above if node.level else []), *([node.module] if node.module else [])]
            found |= {(".".join(place), alias.name) for alias in node.names}
    return {(place, name) for place, name in found if place in MODULES}


def imports_of(module: str) -> set[str]:
    """Modules of the library that a module imports, but not those for types alone."""
    found = {
        inner if (inner := f"{place}.{name}") in MODULES else place
        for place, name in imported(module, types=False)
    }
    return found - {module}


@pytest.mark.parametrize("package", list(ROOMS))
def test_a_package_imports_only_what_the_page_allows(package):
    _, allowed = ROOMS[package]
    others = {
        (module, imported)
        for module in MODULES
        if package_of(module) == package
        for imported in imports_of(module)
        if package_of(imported) not in {package, *allowed}
    }
    assert not others


def test_the_page_has_every_package_and_no_other():
    assert {package_of(module) for module in MODULES} == ROOMS.keys()


def test_on_the_page_a_package_may_import_only_what_stands_above_it():
    above: set[str] = set()
    for package, (_, allowed) in ROOMS.items():
        assert set(allowed) <= above, package
        above.add(package)


@pytest.mark.parametrize("package", list(ROOMS))
def test_files_that_the_page_names_exist(package):
    holds, _ = ROOMS[package]
    assert [
        name for name in NAMED.findall(holds) if not (SOURCE / "d2ace" / package / name).exists()
    ] == []


def test_in_the_picture_every_arrow_points_down():
    """Packages are the words in bold; what a package may import is drawn below it."""
    picture = PAGE.with_suffix(".svg").read_text(encoding="utf-8")
    bold = re.search(r'<g[^>]*font-weight="bold">(.*?)</g>', picture, re.DOTALL)
    assert bold
    height = {name: int(y) for y, name in re.findall(r'y="(\d+)">(\w+)<', bold[1])}
    assert {*height, "__main__"} == ROOMS.keys()
    for package in height:
        for other in ROOMS[package][1]:
            assert height[package] < height[other], f"{package} and {other}"


def test_no_modules_import_each_other():
    try:
        TopologicalSorter({module: imports_of(module) for module in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(f"these import each other: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("package", [name for name in ROOMS if name not in ("d2ace", "__main__")])
def test_another_package_is_entered_by_its_front_door(package):
    """That is what the package itself, or a package in it, exports; _util has a door for each."""
    past = {
        (module, place)
        for module in MODULES
        if package_of(module) == package
        for place, _ in imported(module, types=True)
        if package_of(place) not in {package, "_util"} and MODULES[place].name != "__init__.py"
    }
    assert not past


SAME_JOB = {
    *("base", "finding", "registry"),  # of methods, of models (and tables of a report)
    *("container", "load", "predicting", "problem"),  # of tables, and of images
    *("cases", "scores", "studies"),  # a table of a report, its figure, and what they are made of
    *("drawing", "problem"),  # the conformance kit checks drawing, on a problem
    *("folder", "inputs", "options", "table"),  # what a package writes, checks, takes, shows
}
"""Names of modules that two packages share, because they do the same job in both."""


def test_a_name_means_one_thing():
    modules = Counter(path.stem for path in MODULES.values() if path.stem != "__init__")
    classes = Counter(
        node.name
        for path in MODULES.values()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in modules.items() if count > 1} - SAME_JOB == set()
    assert {name for name, count in classes.items() if count > 1} == set()


@pytest.mark.parametrize("library", ["rich", "typer"])
def test_only_commands_print_with(library):
    users = {
        module
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (
            isinstance(node, ast.Import)
            and any(a.name.split(".")[0] == library for a in node.names)
        )
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == library)
    }
    assert {package_of(module) for module in users} == {"cli"}
