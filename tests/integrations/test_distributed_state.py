"""Four processes share a selector's state: they draw what one draws, and each keeps its rows."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from distributed_four import (
    COUNTS,
    EPOCHS,
    METHODS,
    REFUSED,
    SENT,
    WORLD,
    Drive,
    cases,
    make,
    predictions,
)

import d2ace
from d2ace._util.errors import UserError
from d2ace.selectors import DistributedSelector

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is .*uninitialized"),
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),  # older torch of itself
    pytest.mark.filterwarnings("ignore:You are using .torch.load.:FutureWarning"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the processes of distributed_four.py wrote."""
    folder = tmp_path_factory.mktemp("four")
    here = Path(__file__).resolve().parents[1] / "helpers"
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", str(here / "distributed_four.py"), str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return folder


def written(folder: Path, name: str) -> Any:
    return torch.load(folder / f"{name}.pt", weights_only=True)


@pytest.fixture(scope="module")
def four(folder: Path) -> list[dict[str, Any]]:
    return [written(folder, str(rank)) for rank in range(WORLD)]


def resumed(drive: Drive) -> Drive:
    """In a new process, as it were."""
    other = Drive(make("d2ace"), shard=False)
    other.batches.load_state_dict(drive.batches.state_dict())
    return other


def assert_together(alone: Drive, ranks: list[dict[str, Any]]) -> None:
    """The processes trained the batches of one, each row in one of them, and drew from its P."""
    for epoch, batches in enumerate(alone.parts):
        for number, batch in enumerate(batches):
            parts = [rank["parts"][epoch][number] for rank in ranks]
            assert sorted(chain.from_iterable(parts)) == sorted(batch)
            sizes = [len(part) for part in parts]
            assert max(sizes) - min(sizes) <= 1
    for rank in ranks:
        assert len(rank["P"]) == len(alone.P)
        for theirs, P in zip(rank["P"], alone.P, strict=True):
            torch.testing.assert_close(theirs, P, rtol=1e-9, atol=0.0)
        for theirs, P in zip(rank["P"], ranks[0]["P"], strict=True):
            assert torch.equal(theirs, P)  # to the last bit in all processes


@pytest.mark.parametrize("name", [name for name in cases() if name != "float32"])
def test_four_processes_draw_what_one_draws(four, name):
    assert_together(Drive(cases()[name](), shard=False).train(EPOCHS), [r[name] for r in four])


def test_in_single_precision_all_processes_draw_alike(four):
    """Its weights may differ from those of one process in the last digit, and so a step of P."""
    ranks = [rank["float32"] for rank in four]
    for rank in ranks:
        assert all(torch.equal(*both) for both in zip(rank["P"], ranks[0]["P"], strict=True))
    sizes = [len(batch) for batch in make("d2ace").peek()]
    for epoch in zip(*(rank["parts"] for rank in ranks), strict=True):
        assert [sum(map(len, parts)) for parts in zip(*epoch, strict=True)] == sizes


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("random", "balance")])
def test_each_process_keeps_a_share_of_the_state(four, name):
    alone = Drive(make(name), shard=False).seen()["kept"]
    kept = [rank[name]["kept"] for rank in four]
    assert sum(kept) == alone
    assert max(kept) <= 0.26 * alone


@pytest.mark.skipif(not COUNTS.exists(), reason="Linux counts what a process sends")
@pytest.mark.parametrize("case", range(len(SENT)))
def test_processes_send_a_number_a_row_and_half_of_each_matrix(four, case):
    """n + q^2 numbers of 8 bytes; a sum takes up to twice its length."""
    _, n, q = SENT[case]
    for rank in four:
        assert 4 * n < rank["sent"][case] < 8 * (n + 2 * q * (q + 1)) + 8192


def test_rows_are_trained_where_they_are_kept(four):
    """As far as parts of equal size allow: the first process keeps rows 0 to 25."""
    rows = [row for epoch in four[0]["random"]["parts"] for part in epoch for row in part]
    assert sum(row < 26 for row in rows) > 0.8 * len(rows)


def test_weights_of_the_loss_are_those_of_the_rows(four):
    alone = Drive(cases()["again"](), shard=False).train(EPOCHS)
    for step, weight in enumerate(alone.weights):
        theirs = [rank["again"]["weights"][step] for rank in four]
        if weight is None:
            assert theirs == [None] * WORLD
        else:
            together = torch.cat(theirs)
            torch.testing.assert_close(together.sum(), weight.sum())


def test_all_processes_refuse_an_invalid_batch(four):
    row = next(rank["invalid"]["row"] for rank in four if rank["invalid"]["row"] >= 0)
    alone = make("d2ace")
    for number, rows in enumerate(alone):
        if number != 1:
            alone.observe(rows, logits=predictions(rows, 1))
    for rank in four:
        assert f"instance {row}, label 3 is NaN or infinite" in rank["invalid"]["told"]
        torch.testing.assert_close(rank["invalid"]["P"], alone.probabilities)


def test_processes_that_observe_different_numbers_of_batches_say_so(four):
    for told in chain.from_iterable(rank["uneven"] for rank in four):
        assert "The 4 processes observed 0, 3, 8, 8 batches" in told


@pytest.mark.parametrize("what", ["method", "shape", "options", "on_invalid", "shard"])
def test_selectors_that_differ_are_refused_before_training(four, what):
    for rank in four:
        told = rank["different"][what]
        assert told.startswith("UserError: The selectors of the 4 processes were not made alike (")
        assert what in told.partition(")")[0]


def test_states_of_other_data_are_refused(four):
    for rank in four:
        assert "The state was saved with labels" in rank["other"]["rows"]
        assert "The state was saved with other features" in rank["other"]["features"]
        assert "Size mismatch between saved torch.Size([101])" in rank["other"]["number"]


@pytest.mark.parametrize("name", [*REFUSED, "insights", "table", "direct"])
def test_what_needs_all_rows_is_refused(four, name):
    for rank in four:
        assert rank["refused"][name].startswith("UserError")


def test_a_process_that_dies_ends_the_others(folder):
    for rank in range(WORLD - 1):
        told = written(folder, f"lost-{rank}")
        assert told.startswith("RunError: The processes lost each other")
        assert told.endswith("start all of them again from the last state that was saved.")


def test_a_process_that_does_not_answer_ends_the_others(folder):
    """After the time that the user gave the process group."""
    assert "The processes lost each other" in written(folder, "silent")
    assert "2000ms" in written(folder, "silent")


def test_a_state_is_resumed_with_another_number_of_processes(folder):
    """One process, four, two, and one again, between and in the middle of epochs."""
    alone = Drive(make("d2ace"), shard=False).train(1, stop=3)
    for world, prefix, epochs, stop in ((WORLD, "resumed", 1, 3), (2, "resumed-two", 2, 0)):
        alone = resumed(alone).train(epochs, stop=stop)
        assert_together(alone, [written(folder, f"{prefix}-{rank}") for rank in range(world)])
    last = make("d2ace")
    dcp.load({"selector": last}, checkpoint_id=folder / "two", no_dist=True)
    assert last.next_epoch == alone.selector.next_epoch
    torch.testing.assert_close(last.probabilities, alone.selector.probabilities)


def test_a_state_of_one_process_is_loaded_into_four(folder):
    alone = resumed(Drive(make("d2ace"), shard=False).train(1, stop=3)).train(1)
    assert_together(alone, [written(folder, f"plain-{rank}") for rank in range(WORLD)])


def test_alone_nothing_changes():
    sharded, plain = (Drive(make("d2ace"), shard=shard).train(2) for shard in (True, False))
    assert sharded.parts == plain.parts
    state = sharded.batches.state_dict()["memory"]
    assert all(type(value) is torch.Tensor for value in state.values())


def test_a_method_of_your_own_says_that_it_fits():
    class Mine(d2ace.Active):
        def instance_weights(self):
            return super().instance_weights()

    with pytest.raises(UserError, match="Mine has its own instance_weights"):
        DistributedSelector(Mine(torch.eye(4)), shard=True)

    class Fits(Mine):
        @property
        def shardable(self):
            return True

    assert len(list(DistributedSelector(Fits(torch.eye(4), batch_size=2), shard=True))) == 2
