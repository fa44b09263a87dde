"""Loops of one's own, stopped and resumed: python resuming_loops.py FOLDER (see resuming_legs)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from d2ace.integrations._torchvision import mend_torchvision

mend_torchvision()
from accelerate import Accelerator  # noqa: E402
from lightning.fabric import Fabric  # noqa: E402
from lightning_parts import (  # noqa: E402
    BATCH,
    EPOCHS,
    DistributedSelector,
    make_loader,
    make_selector,
    network,
)
from resuming_legs import AFTER, BEFORE, INSIDE, Leg, Stopped, main  # noqa: E402


def parts(leg: Leg) -> tuple[Any, Any, nn.Module, torch.optim.Optimizer]:
    """What training needs, new: what draws batches, the loader, model and optimizer."""
    selector = make_selector(leg.case.get("method", "d2ace"), **leg.case.get("options", {}))
    batches = DistributedSelector(selector) if leg.case.get("shared") else selector
    loader = make_loader(batches, leg.case["workers"])
    if leg.case.get("flat"):
        loader = torch.utils.data.DataLoader(
            loader.dataset,
            sampler=selector.sampler,
            batch_size=BATCH,
            num_workers=leg.case["workers"],
        )
    model = network()
    return batches, loader, model, torch.optim.Adam(model.parameters(), lr=0.02)


def train(leg: Leg, batches: Any, loader: Any, model: nn.Module, step: Any, save: Any) -> None:
    """The loop of the documentation; ``step`` is what one does with a loss."""
    selector = getattr(batches, "selector", batches)
    selector.learning_rate = 0.02

    def maybe_stop(moment: str) -> None:
        if leg.at(moment):
            save()
            raise Stopped

    first = leg.case.get("counts_from")
    for epoch in range(selector.epoch, EPOCHS + 1):
        if first is not None:
            batches.set_epoch(epoch - 1 + first)
        maybe_stop(BEFORE)
        for index, x, y in loader:
            leg.rows.append(index.tolist())
            logits = model(x)
            weight = batches.loss_weight(index)
            step(nn.functional.binary_cross_entropy_with_logits(logits, y, weight))
            batches.observe(index, logits=logits)
            maybe_stop(INSIDE)
        batches.validated(0.4 + 0.1 * epoch)
        maybe_stop(AFTER)


def plain(leg: Leg) -> None:
    batches, loader, model, optimizer = parts(leg)
    stateful = {"selector": batches, "model": model, "optimizer": optimizer}
    if leg.begin:
        saved = torch.load(leg.begin, weights_only=True)
        for name, each in stateful.items():
            each.load_state_dict(saved[name])

    def step(loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def save() -> None:
        torch.save({name: each.state_dict() for name, each in stateful.items()}, leg.end)

    train(leg, batches, loader, model, step, save)


def fabric(leg: Leg) -> None:
    batches, loader, model, optimizer = parts(leg)
    fabric = Fabric(accelerator="cpu", devices=1)
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(loader, use_distributed_sampler=False)
    getattr(batches, "selector", batches).verify(loader)
    state = {"selector": batches, "model": model, "optimizer": optimizer}
    if leg.begin:
        fabric.load(leg.begin, state)

    def step(loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()

    train(leg, batches, loader, model, step, lambda: fabric.save(leg.end, state))


def accelerate(leg: Leg) -> None:
    batches, loader, model, optimizer = parts(leg)
    accelerator = Accelerator(cpu=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    getattr(batches, "selector", batches).verify(loader)
    accelerator.register_for_checkpointing(batches)
    if leg.begin:
        accelerator.load_state(str(leg.begin))

    def step(loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()

    train(leg, batches, loader, model, step, lambda: accelerator.save_state(str(leg.end)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main({"plain": plain, "fabric": fabric, "accelerate": accelerate}, Path(sys.argv[1]))
