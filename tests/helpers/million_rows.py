"""A selective epoch over a million rows that stay in a file: python million_rows.py FILE WORKERS.

Prints what the process and its loader workers held in memory of their own, as JSON. The pages of a
mapped file are not counted: the system takes them back when it needs the room.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch.utils.data import DataLoader

import d2ace

N, D, Q = 1_000_000, 256, 20
MARKED = 997  # every so many rows, the first feature is the row's number


def numpy_file(folder: Path) -> Path:
    """A GB, mostly zeros that take no room on the disk."""
    path = folder / "x.npy"
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (N, D))
    rows[::MARKED, 0] = np.arange(0, N, MARKED)
    return path


def arrow_file(folder: Path) -> Path:
    """The same as Hugging Face's datasets keep it."""
    import pyarrow as pa

    path, height = folder / "x.arrow", 50_000
    kind = pa.list_(pa.float32(), D)
    with pa.ipc.new_stream(str(path), pa.schema({"x": kind})) as file:
        for start in range(0, N, height):
            numbers = np.arange(start, start + height)
            block = np.zeros((height, D), np.float32)
            block[:, 0] = np.where(numbers % MARKED, 0, numbers)
            column = pa.FixedSizeListArray.from_arrays(pa.array(block.ravel()), D)
            file.write_table(pa.table({"x": column}))
    return path


def opened(path: Path) -> Any:
    if path.suffix == ".npy":
        return np.load(path, mmap_mode="r")
    import datasets

    return datasets.Dataset.from_file(str(path)).with_format("torch")


def own_memory() -> int:
    """Bytes of this process and its children that are in no file; shared ones count once."""
    processes = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
    maps = [Path(f"/proc/{process}/smaps_rollup").read_text() for process in processes]
    return sum(int(text.split("Pss_Anon:")[1].split()[0]) * 1024 for text in maps)


def main(path: Path, workers: int) -> None:
    X = opened(path)
    places = np.random.default_rng(0).integers(0, Q, 3 * N), np.arange(0, 3 * N + 1, 3)
    labels = sp.csr_array((np.ones(3 * N), *places), shape=(N, Q)).sign()
    selector = d2ace.HardImb(labels, batch_size=4096, warmup=0, epochs=3)
    dataset = d2ace.IndexedDataset(X)
    loader = DataLoader(dataset, batch_sampler=selector, num_workers=workers)
    model = torch.nn.Linear(D, Q).requires_grad_(False)
    before, most, rows = own_memory(), 0, 0
    for index, item in loader:
        x = item["x"] if isinstance(item, dict) else item
        marked = index % MARKED == 0
        assert torch.equal(x[marked, 0], index[marked].float())
        selector.observe(index, logits=model(x / N))
        rows += len(index)
        most = max(most, own_memory())
    spread = float(selector.probabilities.max() / selector.probabilities.min())
    print(json.dumps({"rows": rows, "features": N * D * 4, "own": most - before, "spread": spread}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]))
