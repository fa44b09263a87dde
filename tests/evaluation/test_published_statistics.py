"""Our statistics on the paper's printed scores give the paper's printed ranks and p-values."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import pytest

from d2ace.evaluation import average_ranks, ranks, wilcoxon

PAPER = Path(__file__).resolve().parents[3] / "shared" / "paper"

Table = dict[str, dict[str, float]]


def lines(name: str) -> list[dict[str, str]]:
    if not (PAPER / name).is_file():
        pytest.skip(f"no published figures: {PAPER / name} is absent")
    with (PAPER / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def tables() -> dict[tuple[str, str], Table]:
    """Of every metric and model: dataset, method, score."""
    found: dict[tuple[str, str], Table] = defaultdict(lambda: defaultdict(dict))
    for line in lines("tabular_scores.csv"):
        table = found[line["metric"], line["model"]]
        table[line["dataset"]][line["method"]] = float(line["score"])
    return found


def higher(metric: str) -> bool:
    return metric != "ranking_loss"


def test_size(tables: dict[tuple[str, str], Table]) -> None:
    assert len(tables) == 9
    assert all(len(table) == 13 for table in tables.values())
    assert all(len(row) == 8 for table in tables.values() for row in table.values())


def test_ranks(tables: dict[tuple[str, str], Table]) -> None:
    found = {key: ranks(table, higher(key[0])) for key, table in tables.items()}
    printed = lines("tabular_scores.csv")
    assert len(printed) == 936
    for line in printed:
        rank = found[line["metric"], line["model"]][line["dataset"]][line["method"]]
        assert rank == int(line["rank"]), line


def test_average_ranks(tables: dict[tuple[str, str], Table]) -> None:
    found = {key: average_ranks(table, higher(key[0])) for key, table in tables.items()}
    printed = lines("tabular_average_ranks.csv")
    assert len(printed) == 72
    for line in printed:
        rank = found[line["metric"], line["model"]][line["method"]]
        assert rank == pytest.approx(float(line["average_rank"]), abs=0.006), line


def test_p_values(tables: dict[tuple[str, str], Table]) -> None:
    """61 of 63; what the other two come to is fixed here too."""
    printed = lines("tabular_wilcoxon.csv")
    assert len(printed) == 63
    differing = {}
    for line in printed:
        metric, model, method = line["metric"], line["model"], line["method"]
        found = wilcoxon(tables[metric, model], "D2ACE", higher(metric))[method]
        assert found.verdict == line["verdict"], line
        if abs(found.p_value - float(line["p_value"])) > 0.0002:
            differing[metric, model, method] = (float(line["p_value"]), round(found.p_value, 4))
    assert differing == {
        ("macro_auc", "CLIF", "DIHCL"): (0.0092, 0.0060),
        ("macro_auc", "CLIF", "Hard-Imb"): (0.0020, 0.0017),
    }


def test_image_ranks() -> None:
    tables: dict[str, Table] = defaultdict(lambda: defaultdict(dict))
    printed = lines("image_map.csv")
    for line in printed:
        tables[line["model"]][line["dataset"]][line["method"]] = float(line["map"])
    for line in printed:
        rank = ranks(tables[line["model"]])[line["dataset"]][line["method"]]
        assert rank == int(line["rank"]), line
