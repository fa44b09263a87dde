"""torchdata's StatefulDataLoader: what works goes on with the same batches, the rest is refused."""

from __future__ import annotations

import copy
import itertools
import warnings
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from lightning.fabric import Fabric
from lightning_parts import BATCH, BATCHES, EPOCHS, data, make_loader, make_selector
from torch.utils.data import TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import d2ace

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
ORDERS = ["loader", "selector", "loader, selector", "selector, loader"]


def stateful(selector: d2ace.Selector, *, flat: bool = False, **options: Any) -> Any:
    dataset = d2ace.IndexedDataset(TensorDataset(*data()))
    if flat:
        rows = selector.sampler
        return StatefulDataLoader(dataset, sampler=rows, batch_size=BATCH, **options)
    return StatefulDataLoader(dataset, batch_sampler=selector, **options)


def train(
    selector: d2ace.Selector,
    loader: Any,
    done: int = 0,
    stop: tuple[int, str] | None = None,
    counts: bool = False,
) -> tuple[list[list[int]], dict[str, Any]]:
    """The batches up to a stop, and what loader and selector say there."""
    rows: list[list[int]] = []

    def saved(moment: str) -> dict[str, Any] | None:
        if stop != (done + len(rows), moment):
            return None
        asked = {"loader": loader, "selector": selector}
        states = {
            name: each.state_dict() for name, each in asked.items() if hasattr(each, "state_dict")
        }
        return copy.deepcopy(states)

    for count in itertools.count():
        if done + len(rows) == EPOCHS * BATCHES:
            break
        if counts:
            selector.set_epoch(count)  # from 0 in every process, as frameworks do
        for index, x, _y in loader:
            if states := saved("not observed"):
                return rows, states
            rows.append(index.tolist())
            selector.observe(index, logits=x[:, :4] * (done + len(rows)))
            if states := saved("inside"):
                return rows, states
        if states := saved("after"):
            return rows, states
    return rows, {}


def resumed(selector: d2ace.Selector, loader: Any, states: dict[str, Any], order: str) -> Any:
    """Loads the states in an order, such as "selector, loader"."""
    targets = {"loader": loader, "selector": selector}
    for name in order.split(", "):
        targets[name].load_state_dict(states[name])
    return loader


def whole() -> list[list[int]]:
    selector = make_selector()
    return train(selector, make_loader(selector))[0]


STOPS = [
    (3, "inside"),
    (BATCHES + 3, "inside"),
    (BATCHES + 3, "not observed"),
    (2 * BATCHES, "inside"),
    (2 * BATCHES, "after"),
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("flat", [False, True], ids=["batches", "rows"])
def test_without_workers_it_goes_on_with_the_same_batches(order, flat):
    expected = whole()
    for stop in STOPS:
        for options in ({}, {"snapshot_every_n_steps": 3}):
            for counts in (False, True):
                selector = make_selector()
                loader = stateful(selector, flat=flat, **options)
                selector.verify(loader)
                rows, states = train(selector, loader, 0, stop, counts)
                again = make_selector()
                loader = resumed(again, stateful(again, flat=flat, **options), states, order)
                done = len(rows)
                rows += train(again, loader, done, None, counts)[0]
                assert rows == expected, (stop, options, counts)


def refused(selector: d2ace.Selector, loader: Any) -> str:
    with pytest.raises(ValueError, match="StatefulDataLoader") as refusal:
        selector.verify(loader)
    return str(refusal.value)


@pytest.mark.parametrize("flat", [False, True], ids=["batches", "rows"])
@pytest.mark.parametrize("options", [{}, {"snapshot_every_n_steps": 0, "persistent_workers": True}])
def test_with_workers_it_is_refused(options, flat):
    selector = make_selector()
    loader = stateful(selector, flat=flat, num_workers=2, **options)
    told = refused(selector, loader)
    assert "with num_workers=2" in told
    assert "use torch's DataLoader, save selector.state_dict() yourself and load that" in told
    fabric = Fabric(accelerator="cpu", devices=1)
    assert refused(selector, fabric.setup_dataloaders(loader)) == told


def test_accelerates_own_is_refused():
    """It saves when a batch is fetched, so that the last one trained would come again."""
    selector = make_selector()
    accelerator = Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True)
    )
    told = refused(selector, accelerator.prepare(make_loader(selector)))
    assert "use use_stateful_dataloader=False, save selector.state_dict()" in told
    selector.verify(Accelerator(cpu=True).prepare(stateful(selector, num_workers=2)))  # replaced


def test_snapshots_of_batches_drawn_ahead_are_reported_without_verifying():
    selector = make_selector()
    with pytest.warns(UserWarning, match="torchdata's StatefulDataLoader saves while workers draw"):
        next(iter(stateful(selector, num_workers=1)))


@pytest.mark.parametrize("order", ["loader, selector", "selector, loader"])
def test_a_snapshot_that_replaces_a_later_state_is_reported_without_verifying(order):
    selector = make_selector()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, states = train(selector, stateful(selector, num_workers=2), 0, (BATCHES + 5, "inside"))
    again = make_selector()
    loader = resumed(again, stateful(again, num_workers=2), states, order)
    with pytest.warns(UserWarning, match=r"with batch \d of epoch 2, but .* batch 6 of epoch 2"):
        next(iter(loader))


def test_going_back_on_purpose_gives_no_warning():
    """After a batch was drawn, or in a copy, an earlier state is what somebody wants."""
    selector = make_selector()
    before = selector.state_dict()
    _, states = train(selector, make_loader(selector), 0, (2 * BATCHES, "after"))
    list(selector)
    selector.load_state_dict(states["selector"])
    twin = copy.deepcopy(selector)
    twin.load_state_dict(before)
    next(iter(selector))
    selector.load_state_dict(before)
    assert torch.equal(selector.probabilities, twin.probabilities)
    assert selector.epoch == twin.epoch == 1
