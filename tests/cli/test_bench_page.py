"""The guide to comparing methods is true."""

from __future__ import annotations

import re

from d2ace.benchmark.plan.grid import AXES, KEYS, SETTINGS, load_grid, packaged


def page(root) -> str:
    return (root / "docs" / "how-to" / "run-a-grid.md").read_text(encoding="utf-8")


def blocks(root, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page(root), re.MULTILINE | re.DOTALL)


def test_its_code_runs(root, capsys):
    for block in blocks(root, "python"):
        exec(compile(block, "docs/how-to/run-a-grid.md", "exec"), {})  # noqa: S102
    assert "/ CLIF / Random" in capsys.readouterr().out


def test_its_grid_file_is_one(root, tmp_path):
    (tmp_path / "my-data.arff").write_text("")
    (tmp_path / "my_selector.py").write_text(
        "import d2ace\nclass MySelector(d2ace.Random):\n    pass\n"
    )
    (tmp_path / "mine.toml").write_text(blocks(root, "toml")[0])
    specs = load_grid(tmp_path / "mine.toml").specs
    assert len(specs) == 4 * 2 * 4 * 2 * 2
    assert {spec.method for spec in specs} == {
        "Random",
        "D2ACE",
        "D2ACE (reference)",
        "MySelector",
    }


def test_it_lists_the_keys(root):
    rows = re.findall(r"^\| (`.*?) \|", page(root), re.MULTILINE)
    listed = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    assert listed == {*KEYS} - {*SETTINGS} | {*AXES, "folds"}
    assert [name for name in packaged() if f"`{name}`" not in page(root)] == []
