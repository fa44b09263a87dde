"""The guide to the models keeps up with them: its tables are true."""

from __future__ import annotations

import re

import pytest

from d2ace.models import MODELS

ROW = re.compile(r"^\| `(\w+)` \|[^|]*\| `([^|]*)` \| `([^|]*)` \|[^|]*\|[^|\n]*\|$", re.MULTILINE)


@pytest.fixture
def page(root) -> str:
    return (root / "docs" / "reference" / "models.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", list(MODELS))
def test_tables_list_the_hyperparameters_of_both_presets(page, name):
    model = MODELS[name]
    section = re.split(r"^## ", page, flags=re.MULTILINE)
    (own,) = [part for part in section if part.startswith(f"{model.__name__}\n")]
    rows = {option: cells for option, *cells in ROW.findall(own)}
    assert set(rows) == set(model.presets["paper"])
    for option, cells in rows.items():
        for cell, preset in zip(cells, ("paper", "reference"), strict=True):
            value = model.presets[preset][option]
            if isinstance(value, str):
                assert cell.strip('"') == value, option
            else:
                assert eval(cell, {}) == value, option  # noqa: S307


def test_names_are_listed_in_order(page):
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", page, flags=re.MULTILINE)
    assert rows[: len(MODELS)] == [(name, model.__name__) for name, model in MODELS.items()]
