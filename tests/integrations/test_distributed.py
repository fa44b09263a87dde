"""What two processes tell each other about a selector they share, and what they refuse."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed_two import BATCH, SPOILT, labels, make, predictions, train

import d2ace
from d2ace.selectors import DistributedSelector


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both processes of distributed_two.py saw."""
    folder = tmp_path_factory.mktemp("two")
    here = Path(__file__).resolve().parents[1] / "helpers"
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", str(here / "distributed_two.py"), str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]


def assert_same(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], value) for name, value in theirs.items())


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_two_processes_know_what_one_knows(two, name):
    """In the selector's precision, and whatever becomes of the logits after they are observed."""
    dtype = getattr(torch, name)
    alone = train(make(dtype=dtype), dtype=dtype)
    for rank in two:
        assert_same(rank[name], alone)


def test_a_refused_batch_leaves_the_others_alone(two):
    alone = make()
    for number, rows in enumerate(alone):
        if number != SPOILT:
            alone.observe(rows, logits=predictions(rows, 0))
    P, memory = alone.probabilities, train(alone, 1)
    for rank in (each["spoilt"] for each in two):
        assert len(rank["told"]) == 1
        assert "label 0 is nan" in rank["told"][0]
        assert rank["rate"] == 0.125
        assert torch.equal(rank["P"], P)
        assert_same(rank["memory"], memory)
    assert two[0]["spoilt"]["told"] == two[1]["spoilt"]["told"]


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("seed", "were not made alike (seed)"),
        ("order", "were not made alike (labels)"),
        ("rows", "were not made alike (shape, labels)"),
        ("dtype", "were not made alike (dtype)"),
        ("state", "did not draw the same batches"),
        ("pressure", "were not made alike (options)"),
    ],
)
def test_selectors_that_differ_are_reported_in_all_processes(two, what, sentence):
    for rank in two:
        told = rank["different"][what]
        assert f"The selectors of the 2 processes {sentence}" in told
        assert "the same labels (in the same order), options, seed and loaded state" in told


def test_processes_agree_on_the_mean_validation_loss(two):
    for rank in two:
        assert rank["validated"]["started"] == [None, None, None, 5]
    assert_same(two[0]["validated"]["memory"], two[1]["validated"]["memory"])
    assert two[0]["validated"]["memory"]["pairs.marked"].any()
    assert "validation loss is nan" in two[0]["validated"]["told"]
    assert "loss must be at least 0" in two[1]["validated"]["told"]


def test_a_validation_counts_what_was_observed_just_before_it(two):
    """Although the processes exchange it only when the next epoch starts, else."""
    assert [rank["overfitted"] for rank in two] == [3, 3]


def test_weights_are_where_the_rows_are():
    """On "meta", which stands for an accelerator here, as a selector's own are."""
    balance = d2ace.Balance(labels(), batch_size=BATCH, warmup=0)
    batches = DistributedSelector(balance)
    rows = next(iter(batches))
    assert batches.loss_weight(torch.tensor(rows)).device.type == "cpu"
    far = torch.tensor(rows, device="meta")
    weight = batches.loss_weight(far)
    assert weight.device == far.device == balance.loss_weight(far).device
    assert weight.shape == balance.loss_weight(far).shape
