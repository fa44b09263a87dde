"""Datasets that stay in their files: a mapped array, a Hugging Face dataset; sparse labels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from million_rows import N as MANY
from million_rows import arrow_file, numpy_file
from torch.utils.data import DataLoader

import d2ace

N, Q = 60, 5

ROWS = """
import json, resource, sys
import numpy as np, scipy.sparse as sp, torch
from torch.utils.data import DataLoader
import d2ace
def peak():
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
X = np.load(sys.argv[1], mmap_mode="r")
n = len(X)
Y = sp.csr_array((np.ones(n), np.arange(n) % 1000, np.arange(n + 1)), shape=(n, 1000))
selector = d2ace.HardImb(Y, batch_size=32, warmup=0, epochs=2)
loader = DataLoader(d2ace.IndexedDataset(X), batch_sampler=selector)
before = peak()
for step, (index, x) in enumerate(loader):
    assert x.shape == (32, X.shape[1])
    selector.observe(index, logits=torch.zeros(32, 1000))
    if step == 20:
        break
print(json.dumps([len(loader), peak() - before]))
"""


def labels() -> np.ndarray:
    return (np.random.default_rng(0).random((N, Q)) < 0.4).astype(np.uint8)


def test_a_mapped_file_is_read_row_by_row(tmp_path):
    X = np.random.default_rng(0).random((N, 3), dtype=np.float32)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    selector = d2ace.D2ACE(labels(), mapped, batch_size=8, warmup=0, epochs=2)
    held = d2ace.D2ACE(labels(), X, batch_size=8, warmup=0, epochs=2)
    loader = DataLoader(d2ace.IndexedDataset(mapped), batch_sampler=selector, num_workers=2)
    for (index, x), batch in zip(loader, held, strict=True):
        assert index.tolist() == batch
        assert np.array_equal(x.numpy(), X[batch])
        for each in (selector, held):
            each.observe(index, logits=torch.zeros(len(index), Q))


def test_a_dataset_of_hugging_face_is_read_a_batch_at_a_time(tmp_path):
    datasets = pytest.importorskip("datasets")
    values = np.random.default_rng(0).random((N, 3)).tolist()
    datasets.Dataset.from_dict({"x": values, "y": labels().tolist()}).save_to_disk(tmp_path / "d")
    data = datasets.load_from_disk(tmp_path / "d").with_format("torch")
    selector = d2ace.D2ACE(labels(), batch_size=8, warmup=0, epochs=2)
    loader = DataLoader(d2ace.IndexedDataset(data), batch_sampler=selector)
    drawn = selector.peek()
    for (index, item), batch in zip(loader, drawn, strict=True):
        assert index.tolist() == batch
        assert np.array_equal(item["y"].numpy(), labels()[batch])
        assert np.allclose(item["x"].numpy(), np.array(values)[batch])
        selector.observe(index, logits=torch.zeros(len(index), Q))


def test_what_has_no_index_or_length_is_refused(tmp_path):
    datasets = pytest.importorskip("datasets")
    stream = datasets.Dataset.from_dict({"x": [1, 2]}).to_iterable_dataset()
    with pytest.raises(TypeError, match=r"needs a dataset with __getitem__ and __len__, got Iter"):
        d2ace.IndexedDataset(stream)


def test_a_million_rows_on_disk_take_no_memory(tmp_path):
    shape = (1_000_000, 256)  # a GB of zeros, which take no room on the disk
    np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, shape)
    script: Path = tmp_path / "rows.py"
    script.write_text(ROWS)
    words = [sys.executable, str(script), str(tmp_path / "x.npy")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    batches, taken = json.loads(done.stdout)
    assert batches == 31_250
    assert taken < 200e6


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux says which memory is a file's")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["numpy", "arrow"])
def test_an_epoch_over_a_million_rows_holds_no_features(tmp_path, kind, workers):
    if kind == "arrow":
        pytest.importorskip("datasets")
    path = (numpy_file if kind == "numpy" else arrow_file)(tmp_path)
    script = Path(__file__).resolve().parents[1] / "helpers" / "million_rows.py"
    words = [sys.executable, str(script), str(path), str(workers)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    path.unlink()
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout)
    assert seen["rows"] == MANY
    assert seen["spread"] > 1.5  # what was observed decides the next epoch
    assert seen["own"] < 0.5 * seen["features"]
