"""Two processes under Lightning: a whole run, one killed in the middle of an epoch, one resumed.

python lightning_two.py FOLDER: every run writes what each process saw to FOLDER/RUN-RANK.pt.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed.nn  # before a group is made: it would keep the group for good

from d2ace.integrations._torchvision import mend_torchvision

mend_torchvision()
from lightning.pytorch.callbacks import Callback, ModelCheckpoint  # noqa: E402
from lightning_parts import (  # noqa: E402
    DistributedSelector,
    Module,
    make_loader,
    make_selector,
    make_trainer,
)

from d2ace.integrations.lightning import SelectionCallback  # noqa: E402

SAVED, KILLED = 9, 12  # steps; an epoch has 7


class Witness(Callback):
    """Writes what this process trained on, and may kill it on the way."""

    def __init__(self, path: Path, kill_at: int | None = None) -> None:
        self.path, self.kill_at = path, kill_at

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_end(self, trainer: Any, module: Any) -> None:
        weights = [value.detach() for value in module.network.parameters()]
        selector = module.batches.selector
        seen = {
            "drawn": module.drawn,
            "weights": weights,
            "P": selector.probabilities,
            "epoch": selector.epoch,
            "suspicion": selector.insights.suspicion(),
            "visits": selector.insights.rows()["visits"].tolist(),
        }
        torch.save(seen, f"{self.path}-{trainer.global_rank}.pt")


def run(folder: Path, name: str, method: str = "d2ace", **options: Any) -> None:
    batches = DistributedSelector(make_selector(method, insights=True))
    checkpoint = ModelCheckpoint(folder / "saved", "{step}", every_n_train_steps=SAVED)
    resumed = options.pop("resumed", None)
    trainer = make_trainer(
        folder,
        devices=2,
        strategy="ddp_fork",
        use_distributed_sampler=False,
        precision="64-true",
        enable_checkpointing=True,
        callbacks=[
            SelectionCallback(batches),
            Witness(folder / name, options.pop("kill_at", None)),
            checkpoint,
        ],
    )
    module = Module(batches).double()  # Lightning restores weights before it sets the precision
    trainer.fit(module, make_loader(batches, **options), ckpt_path=resumed)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    run(target, "whole")
    run(target, "balance", "balance")
    for old in (target / "saved").glob("*"):
        old.unlink()
    with suppress(torch.multiprocessing.ProcessExitedException):
        run(target, "killed", kill_at=KILLED)
    run(target, "resumed", resumed=str(target / "saved" / f"step={SAVED}.ckpt"), workers=1)
