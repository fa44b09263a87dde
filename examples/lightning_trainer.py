"""Batch selection under Lightning's Trainer: a callback, and logits beside the loss.

python examples/lightning_trainer.py
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import d2ace
from d2ace.integrations.lightning import SelectionCallback

# isort: split
import lightning.pytorch as pl  # after ours, which makes torchvision work where it does not fit


class Network(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 6))

    def training_step(self, batch, batch_idx):
        _, x, y = batch  # IndexedDataset puts the rows' numbers first
        logits = self.network(x)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, y)
        return {"loss": loss, "logits": logits}  # the callback reads the logits

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=5e-3)


if __name__ == "__main__":
    pl.seed_everything(0)
    X = torch.rand(400, 20)
    Y = (X @ torch.rand(20, 6) > 5).float()
    selector = d2ace.D2ACE(Y, X, batch_size=32, epochs=10, warmup=2)
    loader = DataLoader(d2ace.IndexedDataset(TensorDataset(X, Y)), batch_sampler=selector)
    trainer = pl.Trainer(
        max_epochs=10,
        accelerator="cpu",
        callbacks=[SelectionCallback(selector)],  # its state is in every checkpoint
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Network()
    trainer.fit(module, loader)
    hardest = selector.weights["hardness"].topk(3).indices.tolist()
    print(f"{selector.epoch - 1} epochs; the hardest rows are {hardest}")
