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
torch.set_num_threads(1)  # tests run side by side on few cores


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT
