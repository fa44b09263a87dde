"""The tables of benchmarks/insights.md and of docs/explanation/insights.md are in the results."""

from __future__ import annotations

import importlib.util
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def test_the_tables_come_from_the_results():
    spec = importlib.util.spec_from_file_location("tables", FOLDER / "insights_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    results = FOLDER / "insights.csv"
    assert module.tables(results) in (FOLDER / "insights.md").read_text(encoding="utf-8")
    page = FOLDER.parent / "docs" / "explanation" / "insights.md"
    assert module.summary(results) in page.read_text(encoding="utf-8")
