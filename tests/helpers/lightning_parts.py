"""A small module and data for Lightning, and the same training written by hand."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import d2ace
from d2ace.selectors import DistributedSelector

N, D, Q, BATCH, EPOCHS = 53, 6, 4, 8, 5  # the last batch has 5 rows
BATCHES = 7


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    X = torch.rand(N, D, generator=generator)
    Y = (X @ torch.rand(D, Q, generator=generator) > 1.5).float()
    return X, Y


def make_selector(method: str = "d2ace", **options: Any) -> d2ace.Selector:
    X, Y = data()
    given: dict[str, Any] = {"batch_size": BATCH, "epochs": EPOCHS, "warmup": 1, "seed": 3}
    return d2ace.make_selector(method, Y, X, **(given | options))


def make_loader(batches: Any, workers: int = 0) -> DataLoader[Any]:
    dataset = d2ace.IndexedDataset(TensorDataset(*data()))
    return DataLoader(dataset, batch_sampler=batches, num_workers=workers)


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(D, 16), nn.ReLU(), nn.Linear(16, Q))


class Module(pl.LightningModule):
    """What a user has: ordinary but for the logits it returns."""

    def __init__(self, batches: Any = None) -> None:
        super().__init__()
        self.network = network()
        self.batches = batches
        self.drawn: list[list[int]] = []

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        index, x, y = batch
        self.drawn.append(index.tolist())
        logits = self.network(x)
        weight = self.batches.loss_weight(index) if self.batches is not None else None
        loss = nn.functional.binary_cross_entropy_with_logits(logits, y, weight)
        return {"loss": loss, "logits": logits}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=0.02)


def by_hand(
    method: str = "d2ace",
    dtype: torch.dtype = torch.float32,
    lengths: list[int] | None = None,
    **options: Any,
) -> tuple[list[list[int]], list[Tensor]]:
    """The plain loop of the README: the batches drawn and the weights it ends with.

    How many batches each epoch has is added to ``lengths``.
    """
    selector, model = make_selector(method, **options), network().to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    selector.learning_rate = 0.02  # DIHCL reads it
    drawn = []
    for epoch in range(1, EPOCHS + 1):
        if lengths is not None:
            lengths.append(len(selector))
        for index, x, y in make_loader(selector):
            drawn.append(index.tolist())
            logits = model(x.to(dtype))
            weight = selector.loss_weight(index)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, y.to(dtype), weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            selector.observe(index, logits=logits.float())
        selector.validated(0.4 + 0.1 * epoch)
    return drawn, [parameter.detach() for parameter in model.parameters()]


def make_trainer(folder: Any, **options: Any) -> pl.Trainer:
    given: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": EPOCHS,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": str(folder),
    }
    return pl.Trainer(**(given | options))


__all__ = [
    "BATCH",
    "BATCHES",
    "EPOCHS",
    "DistributedSelector",
    "Module",
    "N",
    "by_hand",
    "data",
    "make_loader",
    "make_selector",
    "make_trainer",
]
