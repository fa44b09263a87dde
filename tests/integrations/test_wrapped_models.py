"""DistributedDataParallel, FSDP and fully_shard train as one process does, and resume as others."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
import torch
from distributed_wrapped import CASES, LEGS, Training, leg

pytest.importorskip("torch.distributed.fsdp", reason="needs torch 2.6")
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is .*uninitialized")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes, and then four, wrote."""
    folder = tmp_path_factory.mktemp("wrapped")
    here = Path(__file__).resolve().parents[1] / "helpers"
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", str(here / "distributed_wrapped.py"), str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return folder


@pytest.mark.parametrize(("wrapper", "method"), CASES)
def test_processes_train_as_one_and_others_resume(folder, tmp_path, wrapper, method):
    """Two processes, then four, then one, of one training: to the last batch and loss."""
    for number, (world, _, _) in enumerate(LEGS):
        alone = leg(number, wrapper, method, tmp_path)
        if world == 1:
            ranks = [leg(number, wrapper, method, folder)]
        else:
            written = [
                folder / f"seen-{wrapper}-{method}-{world}-{rank}.pt" for rank in range(world)
            ]
            ranks = [torch.load(path, weights_only=True) for path in written]
        for step, batch in enumerate(alone["parts"]):
            parts = [rank["parts"][step] for rank in ranks]
            assert sorted(chain.from_iterable(parts)) == sorted(batch)
            loss = sum(rank["losses"][step] for rank in ranks) / world
            assert loss == pytest.approx(alone["losses"][step], rel=1e-9)
        for rank in ranks:
            assert len(rank["parts"]) == len(alone["parts"])
            torch.testing.assert_close(rank["P"], alone["P"], rtol=1e-9, atol=0.0)
    ends = [Training(wrapper, method) for _ in range(2)]
    for end, place in zip(ends, (folder, tmp_path), strict=True):
        end.load(place / f"{wrapper}-{method}-1")
    for one, other in zip(*(end.model.parameters() for end in ends), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
