"""How many rows an epoch draws: ``rows_per_epoch``, what frameworks ask of it, and bad values."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import d2ace
from d2ace._util.checksum import checksum

N, Q, BATCH = 37, 4, 8
Y = (np.random.default_rng(0).random((N, Q)) < 0.4).astype(int)


def make(name: str = "active", **options: Any) -> d2ace.Selector:
    given: dict[str, Any] = {"batch_size": BATCH, "epochs": 10, "warmup": 1}
    return d2ace.make_selector(name, Y, **(given | options))


def rows_of_epochs(selector: d2ace.Selector, epochs: int = 10) -> list[int]:
    found = []
    for epoch in range(1, epochs + 1):
        selector.set_epoch(epoch)
        found.append(selector.rows_per_epoch)
        assert len(selector) == -(-found[-1] // BATCH)
    return found


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        (1.0, [37] * 10),
        (0.5, [18] * 10),  # 18.5, to the even one
        (20, [20] * 10),
        (1, [1] * 10),
        (1e-9, [1] * 10),
        ((1.0, 0.5), [37, 37, 35, 32, 30, 28, 25, 23, 21, 18]),
        ([0.5, 1.0], [18, 18, 21, 23, 25, 28, 30, 32, 35, 37]),
        (np.array([37, 1]), [37, 37, 32, 28, 24, 19, 14, 10, 6, 1]),
    ],
    ids=str,
)
@pytest.mark.parametrize("draw", ["batch", "epoch", "once"])
def test_shares_numbers_and_schedules(given, rows, draw):
    assert rows_of_epochs(make(draw=draw, rows_per_epoch=given)) == rows


@pytest.mark.parametrize(
    "given",
    [
        *(0, -1, N + 1, 0.0, 1.5, float("nan"), float("inf"), True, "0.5", b"ab", None),
        *((1.0,), (1.0, 0.5, 0.2), (1, 0.5), (0.5, 1), ((1.0, 0.5), 1.0), {1.0: 1, 0.5: 2}),
        *(torch.tensor(0.5), torch.tensor([1.0, 0.5]), np.array(0.5), {"start": 1.0}),
    ],
    ids=repr,
)
def test_anything_else_is_refused(given):
    with pytest.raises(ValueError, match=r"^rows_per_epoch must be a share .* got .*\.$"):
        make(rows_per_epoch=given)


@pytest.mark.parametrize("draw", ["", 0, False, "Epoch", b"once", ["epoch"]], ids=repr)
def test_other_ways_of_drawing_are_refused(draw):
    with pytest.raises(ValueError, match=r"^draw must be one of 'batch', 'epoch', 'once', got"):
        make(draw=draw)


def trained(selector: d2ace.Selector, loader: Any) -> tuple[int, list[list[int]]]:
    """The length that the loader announces for its epoch, and its batches."""
    length, batches = len(loader), []
    logits = torch.randn(N, Q, generator=torch.Generator().manual_seed(selector.epoch))
    for index, _ in loader:
        assert len(loader) == length  # while the epoch is being drawn
        selector.loss_weight(index)
        selector.observe(index, logits=logits[index])
        batches.append(index.tolist())
    return length, batches


VARYING: dict[str, dict[str, Any]] = {
    "longer": {"draw": "epoch", "rows_per_epoch": (0.2, 1.0)},
    "shorter": {"draw": "once", "rows_per_epoch": (1.0, 0.1)},
    "dihcl": {"name": "dihcl", "preset": "original"},
    "info_batch": {"name": "info_batch", "delta": 0.7},
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", VARYING.values(), ids=VARYING)
def test_a_loader_announces_the_epoch_that_it_draws(options, workers):
    selector = make(**options)
    dataset = d2ace.IndexedDataset(TensorDataset(torch.zeros(N, 1)))
    loader = DataLoader(dataset, batch_sampler=selector, num_workers=workers)
    lengths = set()
    for _ in range(10 if not workers else 3):
        length, batches = trained(selector, loader)
        assert len(batches) == length
        lengths.add(length)
    assert len(lengths) > 1 or workers


@pytest.mark.parametrize("options", VARYING.values(), ids=VARYING)
def test_the_sum_of_all_epochs_is_known_beforehand_or_bounded(options):
    selector = make(**options)
    total, first = selector.total_batches(), selector.total_batches(1)
    assert selector.epochs_vary
    assert first == len(selector)
    loader = DataLoader(
        d2ace.IndexedDataset(TensorDataset(torch.zeros(N, 1))), batch_sampler=selector
    )
    drawn = sum(trained(selector, loader)[0] for _ in range(10))
    if selector.name == "info_batch":
        assert drawn < total == 10 * -(-N // BATCH)
    else:
        assert drawn == total
    assert selector.total_batches() == total  # whatever was observed
    assert selector.total_batches(0) == 0


def test_epochs_that_do_not_vary_say_so():
    for selector in (make(), make(rows_per_epoch=0.5), make("d2ace", draw="epoch")):
        assert not selector.epochs_vary
        assert selector.total_batches() == 10 * len(selector)


@pytest.mark.parametrize("options", VARYING.values(), ids=VARYING)
def test_jumps_copies_and_states_keep_the_length(options):
    """Moved to another epoch in the middle of one, copied and restored at every position."""
    selector = make(**options)
    logits = torch.randn(N, Q, generator=torch.Generator().manual_seed(5))
    for epoch in (1, 4, 2, 10, 12, 5):
        selector.set_epoch(epoch)
        announced, batches = len(selector), []
        for batch in selector:
            batches.append(batch)
            selector.loss_weight(batch)
            selector.observe(batch, logits=logits[batch])
            twin, clone = make(**options), copy.deepcopy(selector)
            twin.load_state_dict(selector.state_dict())
            left = selector.peek()
            if len(batches) < announced:
                assert len(twin) == len(clone) == len(selector) == announced
                assert twin.peek() == clone.peek() == left
                assert list(twin) == list(clone) == left
        assert len(batches) == announced


@pytest.mark.parametrize("rows", [N + 1, 10**9, 0, -5])
def test_a_state_of_an_epoch_that_cannot_be_is_refused(rows):
    selector = make(rows_per_epoch=0.5)
    batch = next(iter(selector))
    selector.observe(batch, probs=np.full((len(batch), Q), 0.5))
    state = selector.state_dict()
    state["progress"] = {**state["progress"], "rows": rows}
    state["checksum"] = checksum(state)
    fresh = make(rows_per_epoch=0.5)
    with pytest.raises(ValueError, match=rf"{rows} rows"):
        fresh.load_state_dict(state)
    assert fresh.epoch == 1


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("name", list(d2ace.SELECTORS))
def test_few_rows(name, n):
    """Fewer rows than a batch has, or one, for all presets and ways of drawing."""
    method = d2ace.SELECTORS[name]
    ways = ["epoch"] if name == "info_batch" else ["batch", "epoch", "once"]
    for preset in method.presets:
        for draw in ways:
            for batch_size in (1, 2, 8):
                selector = method(
                    Y[:n], batch_size=batch_size, epochs=4, warmup=1, preset=preset, draw=draw
                )
                for epoch in range(6):
                    batches, rows = len(selector), selector.rows_per_epoch
                    probs = np.random.default_rng(epoch).random((n, Q))
                    drawn = []
                    for batch in selector:
                        selector.loss_weight(batch)
                        selector.observe(batch, probs=probs[batch])
                        drawn.append(batch)
                    selector.validated(1.0)
                    assert (len(drawn), sum(map(len, drawn))) == (batches, rows)
