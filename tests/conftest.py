"""Settings all tests share."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import HealthCheck, settings
from realdata import data_root, real

__all__ = ["data_root", "real"]  # the folder with the real datasets, where there is one

if TYPE_CHECKING:  # tests of the selectors run without the extras
    from d2ace.benchmark.store import Store
    from d2ace.data import MultiLabelData

ROOT = Path(__file__).resolve().parent.parent

settings.register_profile(
    "default",
    deadline=None,
    max_examples=int(os.environ.get("D2ACE_EXAMPLES", "200")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
settings.load_profile("default")
# Tests run side by side on few cores; the processes they start should not fight over them either.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Some virtual machines announce matrix units that end a process as soon as bfloat16 uses them.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# What a shell starts in the background ignores SIGINT, and under nohup SIGHUP; so would all
# commands that the tests start and send these signals to.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    from d2ace.benchmark.store import Store

    with Store(tmp_path / "runs.db") as opened:
        yield opened


@pytest.fixture(scope="session")
def table() -> MultiLabelData:
    """A small problem that trains in a second."""
    from d2ace.data import make_multilabel

    return make_multilabel(240, 12, 5, seed=3)


@pytest.fixture(scope="session")
def table_file(table: MultiLabelData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from d2ace.data import save

    path = tmp_path_factory.mktemp("data") / "table.npz"
    save(table, path)
    return path
