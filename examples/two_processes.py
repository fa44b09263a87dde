"""Two processes train on disjoint parts of the same selected batches, in plain PyTorch.

torchrun --nproc-per-node=2 examples/two_processes.py
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import torch.distributed.nn  # it keeps the group for good if it is first imported after init
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import d2ace
from d2ace.selectors import DistributedSelector

EPOCHS = 6


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    train()  # a function of its own: what it made lets go of the group at its end
    dist.barrier()  # nobody leaves while another still talks to it
    dist.destroy_process_group()


def train() -> None:
    generator = torch.Generator().manual_seed(0)  # the same data in every process
    X = torch.rand(300, 20, generator=generator)
    Y = (X @ torch.rand(20, 6, generator=generator) > 5).float()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 6))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    selector = d2ace.D2ACE(Y, X, batch_size=64, epochs=EPOCHS, warmup=1)  # 64 rows of both
    batches = DistributedSelector(selector)
    loader = DataLoader(d2ace.IndexedDataset(TensorDataset(X, Y)), batch_sampler=batches)
    for _ in range(EPOCHS):
        rows = 0
        for index, x, y in loader:
            logits = model(x)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, y)
            optimizer.zero_grad()
            (loss * batches.loss_scale(index)).backward()  # parts may differ by a row
            optimizer.step()
            batches.observe(index, logits=logits)
            rows += len(index)
    batches.share()
    P = selector.probabilities
    same = [torch.empty_like(P) for _ in range(dist.get_world_size())]
    dist.all_gather(same, P)
    agree = all(torch.equal(P, other) for other in same)
    said = f"process {dist.get_rank()} trained {rows} rows an epoch; P agree: {agree}"
    sys.stdout.write(f"{said}\n")  # in one piece, as the processes share a terminal


if __name__ == "__main__":
    main()
