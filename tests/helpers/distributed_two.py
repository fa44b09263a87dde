"""Two processes share a selector: python distributed_two.py FOLDER; each writes FOLDER/RANK.pt."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import d2ace
from d2ace._util.errors import UserError
from d2ace.selectors import DistributedSelector

N, Q, BATCH, EPOCHS = 41, 3, 8, 3  # the last of 6 batches has 1 row
SPOILT = 2  # the batch of which a process predicts NaN


def labels() -> Tensor:
    return (torch.rand(N, Q, generator=torch.Generator().manual_seed(0)) < 0.4).float()


def make(given: Tensor | None = None, **options: Any) -> d2ace.Selector:
    chosen: dict[str, Any] = {"batch_size": BATCH, "epochs": 4, "warmup": 1, "seed": 2} | options
    return d2ace.MLUnc(labels() if given is None else given, **chosen)


def predictions(rows: list[int], epoch: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A function of row, label and epoch."""
    angle = torch.tensor(rows).double()[:, None] * 0.7 * torch.arange(1, Q + 1) + epoch
    return (3 * angle.sin()).to(dtype)


def train(
    batches: Any, epochs: int = EPOCHS, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """What is remembered of an observed training."""
    for epoch in range(epochs):
        for rows in batches:
            logits = predictions(rows, epoch, dtype)
            batches.observe(rows, logits=logits)
            logits.sigmoid_()  # as for a metric: what was observed must not change with it
    return dict(batches.state_dict()["memory"])


def spoilt(rank: int) -> dict[str, Any]:
    """An epoch in which the second process predicts a NaN, and another one after it."""
    batches, told = DistributedSelector(make()), []
    for number, rows in enumerate(batches):
        logits = predictions(rows, 0)
        if rank == 1 and number == SPOILT:
            logits[0, 0] = torch.nan
        batches.learning_rate = 1 / (number + 1)
        batches.observe(rows, logits=logits)
    batches.learning_rate = 0.125
    for _ in range(2):  # the second time, there is nothing left to share
        try:
            batches.share()
        except ValueError as problem:
            told.append(str(problem))
    rate, P = batches.learning_rate, batches.selector.probabilities
    return {"told": told, "rate": rate, "P": P, "memory": train(batches, 1)}


def different(rank: int) -> dict[str, d2ace.Selector]:
    """Selectors that are not alike in the two processes, each in another way."""
    loaded = make()
    if rank == 0:
        earlier = make()
        train(earlier, 1)
        loaded.load_state_dict(earlier.state_dict())
    return {
        "seed": make(seed=rank),
        "order": make(labels().flip(0) if rank else None),
        "rows": make(labels()[: N - 10 * rank]),
        "dtype": make(dtype=torch.float64 if rank else torch.float32),
        "state": loaded,
        "pressure": make(pressure=100.0 - 90.0 * rank),
    }


def refusal(selector: d2ace.Selector) -> str:
    try:
        train(DistributedSelector(selector))
    except UserError as problem:
        return str(problem)
    return "nothing was noticed"


def validated(rank: int) -> dict[str, Any]:
    """Losses on rows of their own, whose mean rises; then one that is none, in one process."""
    trim = d2ace.Trim(labels(), batch_size=BATCH, seed=2, fall=0)
    batches, started, told = DistributedSelector(trim), [], ""
    for losses in ((0.4, 0.6), (0.9, 0.1), (0.2, 0.81)):  # on average 0.5, 0.5 and 0.505
        train(batches, 1)
        batches.validated(losses[rank])
        started.append(trim.first_trimmed_epoch)
    train(batches, 1)
    batches.validated([0.6, 0.8][rank])
    started.append(trim.first_trimmed_epoch)
    try:
        batches.validated([0.5, -1.0][rank])
    except ValueError as problem:
        told = str(problem)
    memory = train(batches, 1)
    return {"started": started, "told": told, "memory": memory}


def overfitted() -> int | None:
    """The first trimmed epoch of two that are learnt by heart, told right after each."""
    trim = d2ace.Trim(labels(), batch_size=BATCH, seed=2)
    batches = DistributedSelector(trim)
    for epoch, loss in enumerate((0.4, 0.5), start=1):
        for rows in batches:
            batches.observe(rows, logits=epoch * (2 * labels()[rows] - 1))
        batches.validated(loss)
    return trim.first_trimmed_epoch


def run(rank: int, folder: Path) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    double = torch.float64
    seen = {
        "float32": train(DistributedSelector(make())),
        "float64": train(DistributedSelector(make(dtype=double)), dtype=double),
        "spoilt": spoilt(rank),
        "validated": validated(rank),
        "overfitted": overfitted(),
        "different": {what: refusal(made) for what, made in different(rank).items()},
    }
    torch.save(seen, folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.start_processes(run, (Path(sys.argv[1]),), nprocs=2, start_method="fork")
