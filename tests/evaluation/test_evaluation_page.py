"""The guide to evaluation keeps up with it: its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import site_hooks

from d2ace import evaluation
from d2ace.evaluation import METRICS


@pytest.fixture
def page(root: Path) -> str:
    return (root / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")


def test_every_metric_is_listed(page: str) -> None:
    assert "<!-- table of metrics -->" in page
    table = site_hooks.table_of_metrics()
    rows = re.findall(
        r"^\| `(\w+)` \| ([\w -]+) \| (higher|lower) \| \w", table, flags=re.MULTILINE
    )
    assert rows == [
        (metric.name, metric.title, "higher" if metric.higher_is_better else "lower")
        for metric in METRICS.values()
    ]


def test_every_function_is_mentioned(page: str) -> None:
    functions = [name for name in evaluation.__all__ if name.islower() and name not in METRICS]
    assert [name for name in functions if f"`{name}" not in page] == []
