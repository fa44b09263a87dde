"""The files around the code: what forges, package indexes and reference managers read is right.

Schemas come from the validators' own packages, so that nothing is fetched.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from readme_renderer import markdown

import d2ace

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = ROOT / ".github" / "workflows"
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"
PINNED = re.compile(r"uses: [\w.-]+/[\w.-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+")


def schemas() -> dict[Path, list[str]]:
    """The schemas that each file has to meet."""
    workflow = ["vendor.github-workflows", "custom.github-workflows-require-timeout"]
    found = dict.fromkeys(sorted(WORKFLOWS.iterdir()), workflow)
    found |= {path: ["vendor.github-issue-forms"] for path in sorted(FORMS.iterdir())}
    found[FORMS / "config.yml"] = ["vendor.github-issue-config"]
    found[ROOT / "CITATION.cff"] = ["vendor.citation-file-format"]
    return found


CHECKED = [(path, schema) for path, names in schemas().items() for schema in names]


def run(*words: str) -> None:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def read_yaml(name: str) -> Any:
    return yaml.safe_load(read(name))


def project() -> dict[str, Any]:
    return tomllib.loads(read("pyproject.toml"))["project"]


def exact_versions() -> dict[str, str]:
    lines = (line for line in read("constraints.txt").splitlines() if not line.startswith("#"))
    return dict(line.split("==") for line in lines)


def combinations(job: str) -> list[tuple[str, str]]:
    """The pairs of a Python and the versions asked for that a job of tests.yml runs with."""
    matrix = read_yaml(".github/workflows/tests.yml")["jobs"][job]["strategy"]["matrix"]
    pairs = [(python, versions) for python in matrix["python"] for versions in matrix["versions"]]
    return pairs + [(each["python"], each["versions"]) for each in matrix["include"]]


@pytest.mark.parametrize(
    ("path", "schema"), CHECKED, ids=[f"{path.name}-{schema}" for path, schema in CHECKED]
)
def test_files_of_the_forge_meet_their_schema(path, schema):
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path))


def test_pre_commit_takes_its_configuration():
    run(sys.executable, "-m", "pre_commit", "validate-config", ".pre-commit-config.yaml")


def test_commits_are_checked_with_the_tools_of_make_lint():
    repos = read_yaml(".pre-commit-config.yaml")["repos"]
    assert [repo["repo"] for repo in repos] == ["local"]  # no second list of versions
    assert [hook["entry"] for hook in repos[0]["hooks"]] == ["make lint"]
    assert {"ruff", "mypy"} <= set(exact_versions())


@pytest.mark.parametrize("path", sorted(WORKFLOWS.iterdir()), ids=lambda path: path.name)
def test_workflows_pin_actions_and_may_do_little(path):
    lines = [line.strip("- ") for line in path.read_text(encoding="utf-8").splitlines()]
    unpinned = [line for line in lines if line.startswith("uses:") and not PINNED.fullmatch(line)]
    assert not unpinned
    assert read_yaml(str(path))["permissions"] == {"contents": "read"}


def test_one_version_of_an_action_is_used_everywhere():
    text = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS.iterdir())
    used = set(re.findall(r"uses: (\S+)@(\S+)", text))
    assert len({name for name, _ in used}) == len(used)


def test_tests_run_on_the_pythons_that_the_package_announces():
    announced = [
        name.removeprefix("Programming Language :: Python :: ") for name in project()["classifiers"]
    ]
    announced = [version for version in announced if re.fullmatch(r"3\.\d+", version)]
    newest = [python for python, versions in combinations("full") if not versions]
    assert newest == announced
    assert project()["requires-python"] == f">={announced[0]}"
    assert {announced[0], announced[-1]} == {python for python, _ in combinations("core")}


@pytest.mark.parametrize("job", ["full", "core"])
def test_tests_run_on_the_oldest_versions_that_the_package_takes(job):
    bounds = [*project()["dependencies"], *project()["optional-dependencies"]["image"]]
    lowest = {each.name: next(iter(each.specifier), None) for each in map(Requirement, bounds)}
    (asked,) = [versions for _, versions in combinations(job) if versions.startswith("torch==")]
    for word in asked.split():
        name, _, version = word.partition("==")
        assert f">={version}" == f"{lowest[name]}.0", f"{name}: {lowest[name]} in pyproject.toml"
    assert {"torch", "numpy", "scipy"} <= {word.partition("==")[0] for word in asked.split()}


def test_the_version_is_the_same_in_every_file():
    newest = re.search(r"^## \[(.+)\] - (unreleased|\d{4}-\d\d-\d\d)$", read("CHANGELOG.md"), re.M)
    assert newest, "CHANGELOG.md has no heading of a version with its date"
    assert newest[1] == d2ace.__version__ == read_yaml("CITATION.cff")["version"]
    assert "version" in project()["dynamic"]  # read from the package


def test_the_paper_to_cite_is_the_one_the_readme_names():
    paper = read_yaml("CITATION.cff")["preferred-citation"]
    source = " ".join(read("README.md").partition("## Source")[2].split())
    people = ", ".join(f"{one['given-names']} {one['family-names']}" for one in paper["authors"])
    assert f"{people}: *{paper['title']}* ({paper['conference']['name']})" in source


def test_the_readme_renders_on_a_package_index():
    assert project()["readme"] == "README.md"
    page = markdown.render(read("README.md"))
    assert page is not None, "it does not render at all"
    assert page.count("<pre") == read("README.md").count("```") / 2  # each block of code
    assert "<ul>" in page  # lists are lists
    assert "## " not in page  # no heading is left as it was typed
