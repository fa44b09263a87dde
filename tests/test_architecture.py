"""Packages depend on each other one way, and no two modules import each other."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
BASE = {"_util"}
RUN = {*BASE, "data", "evaluation", "models", "selectors"}
MAY_IMPORT = {
    "_util": set(),
    "selectors": BASE,
    "models": BASE,
    "data": BASE,
    "evaluation": BASE,
    "testing": {*BASE, "selectors"},
    "training": RUN,
    "integrations": {*RUN, "training"},
    "benchmark": {*RUN, "training"},
    "report": {*RUN, "training", "benchmark"},
    "cli": {*RUN, "training", "benchmark", "report"},
    "d2ace": {"_util", "selectors", "training"},  # the package itself
    "__main__": {"cli"},
}
"""Package -> packages that it may import; docs/explanation/architecture.md draws it."""


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in SOURCE.rglob("*.py")}


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def imports_of(module: str) -> set[str]:
    """Modules of the library that a module imports, in functions too, but not for types alone."""
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
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            place = [*(above if node.level else []), *([node.module] if node.module else [])]
            start = ".".join(place)
            for alias in node.names:
                inner = f"{start}.{alias.name}"
                found.add(inner if inner in MODULES else start)
    return {name for name in found if name in MODULES} - {module}


@pytest.mark.parametrize("package", list(MAY_IMPORT))
def test_packages_depend_one_way(package):
    others = {
        (module, imported)
        for module in MODULES
        if package_of(module) == package
        for imported in imports_of(module)
        if package_of(imported) not in {package, *MAY_IMPORT[package]}
    }
    assert not others


def test_every_package_has_its_place():
    assert {package_of(module) for module in MODULES} == MAY_IMPORT.keys()


def test_no_modules_import_each_other():
    try:
        TopologicalSorter({module: imports_of(module) for module in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(f"these import each other: {' -> '.join(error.args[1])}")


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
