"""A small problem that trains in a second."""

from __future__ import annotations

from pathlib import Path

import pytest
from realdata import data_root

from d2ace.data import MultiLabelData, make_multilabel, save

__all__ = ["data_root", "table", "table_file"]


@pytest.fixture(scope="session")
def table() -> MultiLabelData:
    return make_multilabel(240, 12, 5, seed=3)


@pytest.fixture(scope="session")
def table_file(table: MultiLabelData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "table.npz"
    save(table, path)
    return path
