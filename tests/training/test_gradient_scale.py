"""Half precision scales its gradients: the scale is kept, and gradients can still be clipped."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from smallrun import SMALL

from d2ace.training.config import RunConfig
from d2ace.training.loop import Loop
from d2ace.training.split import make_problem


def half(scale: float = 2.0) -> Fabric:
    """As on a GPU with 16-mixed, whose scale doubles with every step that went well."""
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=1)
    return Fabric(accelerator="cpu", plugins=[MixedPrecision("16-mixed", "cpu", scaler)])


@pytest.fixture
def made(table_file: Path):
    settings = {name: value for name, value in SMALL.items() if name != "threads"}
    config = RunConfig.from_dict(settings | {"data": str(table_file), "precision": "16-mixed"})
    problem = make_problem(config)

    def loop(scale: float = 2.0) -> Loop:
        made = Loop(config, problem, half(scale))
        made.model.clip_norm = 0.5  # as ML-GCN
        return made

    return loop


def test_the_scale_goes_on_where_it_was(made) -> None:
    first = made()
    before = {name: value.clone() for name, value in first.model.named_parameters()}
    steps = first.train_epoch()
    for _ in range(3):
        next(steps)
    moved = [not torch.equal(before[name], value) for name, value in first.model.named_parameters()]
    assert all(moved)
    state = copy.deepcopy(first.state_dict())
    assert state["precision"]["scale"] == 2.0 * 2**3
    second = made()
    second.load_state_dict(state)
    for one in (first, second):
        for _ in steps if one is first else one.train_epoch():
            pass
    for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert first.state_dict()["precision"] == second.state_dict()["precision"]


def test_a_scale_that_is_too_large_is_found_out(made) -> None:
    loop = made(scale=2.0**120)
    before = {name: value.clone() for name, value in loop.model.named_parameters()}
    steps = loop.train_epoch()
    next(steps)  # its gradients overflow: skipped, and the scale is halved
    assert loop.state_dict()["precision"]["scale"] == 2.0**119
    for name, value in loop.model.named_parameters():
        assert torch.equal(before[name], value)
