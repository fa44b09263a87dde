"""Two processes under Hugging Face's Trainer: python transformers_two.py FOLDER PORT."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed.nn  # before a group is made: it would keep the group for good

from d2ace.integrations._torchvision import mend_torchvision

mend_torchvision()
from transformers_parts import BATCH, make_selector, make_trainer, searching  # noqa: E402


def run(rank: int, folder: Path, port: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    options: dict[str, Any] = {
        "per_device_train_batch_size": BATCH // 2,
        "ddp_backend": "gloo",
        "ddp_find_unused_parameters": False,
    }
    own = make_selector(insights=True)
    trainer = make_trainer(folder, own, save_strategy="epoch", dtype=torch.float64, **options)
    trainer.train()
    weights = [value.detach() for value in trainer.model.parameters()]
    seen = {"drawn": trainer.drawn, "weights": weights, "P": trainer.selector.probabilities}
    seen["visits"] = own.insights.rows()["visits"].tolist()
    again = searching(folder, make_selector("active", epochs=2), num_train_epochs=2, **options)
    again.train()
    again.train()
    seen["searched"] = again.drawn
    torch.save(seen, folder / f"{rank}.pt")


if __name__ == "__main__":
    torch.multiprocessing.start_processes(
        run, (Path(sys.argv[1]), sys.argv[2]), nprocs=2, start_method="fork"
    )
