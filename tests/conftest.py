"""Settings all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

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


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT
