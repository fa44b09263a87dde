"""Networks in DistributedDataParallel and FSDP trained with a shared selector, saved and resumed.

python distributed_wrapped.py FOLDER: two processes, then four; each writes NAME-WORLD-RANK.pt.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, distributed, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.functional import binary_cross_entropy_with_logits

import d2ace
from d2ace.selectors import DistributedSelector

N, D, Q, BATCH = 101, 6, 8, 14
LEGS = ((2, 1, 3), (4, 2, 2), (1, 1, 0))
"""Processes, epochs they complete, and batches of the next one; then others resume."""
SHARDED = {"copies": False, "ddp": True, "fsdp": True, "fully_shard": True}
METHODS = ("d2ace", "hard_imb")
CASES = [(wrapper, method) for wrapper in SHARDED for method in METHODS]


def problem() -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(0)
    X = torch.rand(N, D, generator=source, dtype=torch.float64)
    return X, (X @ torch.rand(D, Q, generator=source, dtype=torch.float64) > 1.5).double()


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(D, 16), nn.ReLU(), nn.Linear(16, Q)).double()


def wrapped(wrapper: str) -> nn.Module:
    """The network as the processes share it; alone, the network itself."""
    model = network()
    if not distributed.is_initialized():
        return model
    if wrapper == "fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    if wrapper == "fully_shard":
        from torch.distributed.fsdp import fully_shard

        return fully_shard(model, mesh=init_device_mesh("cpu", (distributed.get_world_size(),)))
    return nn.parallel.DistributedDataParallel(model)


class Training:
    """What a user's script does."""

    def __init__(self, wrapper: str, method: str) -> None:
        self.X, self.Y = problem()
        self.model = wrapped(wrapper)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.02)
        self.selector = d2ace.make_selector(
            method, self.Y, self.X, batch_size=BATCH, epochs=5, warmup=1, dtype=torch.float64
        )
        self.batches = DistributedSelector(self.selector, shard=SHARDED[wrapper])
        self.parts: list[list[int]] = []
        self.losses: list[float] = []
        """Of each step: the mean over the processes is that of the whole batch."""

    def train(self, epochs: int, stop: int) -> None:
        for number in range(epochs + bool(stop)):
            for step, rows in enumerate(self.batches, 1):
                logits = self.model(self.X[rows])
                loss = binary_cross_entropy_with_logits(logits, self.Y[rows])
                loss = loss * self.batches.loss_scale(rows)
                self.parts.append(rows if self.batches.loss_scale(rows) else [])
                self.losses.append(loss.item())
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.batches.observe(rows, logits=logits)
                if number == epochs and step == stop:
                    break

    def save(self, path: Path) -> None:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        state = {"model": model, "optimizer": optimizer, "selector": self.batches}
        dcp.save(state, checkpoint_id=path, no_dist=not distributed.is_initialized())

    def load(self, path: Path) -> None:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        state = {"model": model, "optimizer": optimizer, "selector": self.batches}
        dcp.load(state, checkpoint_id=path, no_dist=not distributed.is_initialized())
        set_state_dict(
            self.model, self.optimizer, model_state_dict=model, optim_state_dict=optimizer
        )


def leg(number: int, wrapper: str, method: str, folder: Path) -> dict[str, Any]:
    """Resume where the last processes stopped, train, and save for the next ones."""
    world, epochs, stop = LEGS[number]
    training = Training(wrapper, method)
    if number:
        training.load(folder / f"{wrapper}-{method}-{LEGS[number - 1][0]}")
    training.train(epochs, stop)
    training.save(folder / f"{wrapper}-{method}-{world}")
    P = training.selector.drawn_probabilities
    return {"parts": training.parts, "losses": training.losses, "P": P}


def run(rank: int, number: int, folder: Path) -> None:
    world = LEGS[number][0]
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting-{world}", rank=rank, world_size=world
    )
    for wrapper, method in CASES:
        seen = leg(number, wrapper, method, folder)
        torch.save(seen, folder / f"seen-{wrapper}-{method}-{world}-{rank}.pt")
    distributed.barrier()
    os._exit(0)  # FSDP's buffers may outlive the group


if __name__ == "__main__":
    for each in (0, 1):
        torch.multiprocessing.start_processes(
            run, (each, Path(sys.argv[1])), nprocs=LEGS[each][0], start_method="fork"
        )
