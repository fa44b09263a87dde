"""The guide to evaluation keeps up with it: its tables are complete, its code runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from d2ace import evaluation
from d2ace.evaluation import METRICS


@pytest.fixture
def page(root: Path) -> str:
    return (root / "docs" / "evaluation.md").read_text(encoding="utf-8")


def test_every_metric_is_listed(page: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\w -]+) \| (higher|lower) \|", page, flags=re.MULTILINE)
    assert rows == [
        (metric.name, metric.title, "higher" if metric.higher_is_better else "lower")
        for metric in METRICS.values()
    ]


def test_every_function_is_mentioned(page: str) -> None:
    functions = [name for name in evaluation.__all__ if name.islower()]
    assert [name for name in functions if f"`{name}" not in page] == []


def test_code_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/evaluation.md", "exec"), namespace)  # noqa: S102
    printed = capsys.readouterr().out
    assert "0 labels have one class only" in printed
    assert "nan nan" in printed
    assert "Random win" in printed
