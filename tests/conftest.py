"""Settings all tests share."""

from __future__ import annotations

import os
import signal
import threading
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
# What a shell starts in the background ignores SIGINT, and under nohup SIGHUP; so would all
# commands that the tests start and send these signals to.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT
