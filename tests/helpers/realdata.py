"""Fixtures for tests on real data: the folder with the datasets, where there is one."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from d2ace.data import MultiLabelData

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real datasets (``D2ACE_DATA``); tests that need it are skipped without it."""
    root = Path(os.environ.get("D2ACE_DATA") or PROJECT.parent / "shared" / "data")
    if not root.is_dir():
        pytest.skip(f"no real datasets: {root} is absent and D2ACE_DATA does not name a folder")
    return root


@pytest.fixture(scope="session")
def real(data_root: Path) -> Callable[[str], MultiLabelData]:
    """`load` by name from ``data_root``, each dataset once per session."""
    from d2ace.data import DataError, DataWarning, catalogue, load

    @cache
    def dataset(name: str) -> MultiLabelData:
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            patch.setenv("D2ACE_DATA", str(data_root))
            warnings.simplefilter("ignore", DataWarning)
            try:
                catalogue.locate(catalogue.get(name))
            except DataError as absent:
                pytest.skip(str(absent))
            return load(name, cache=False)

    return dataset
