"""Sparse labels stay sparse: no dense matrix of rows and labels that nobody asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import d2ace
from d2ace._util import label_rows
from d2ace._util.label_rows import LabelRows

SCRIPT = Path(__file__).parents[1] / "helpers" / "large_sparse.py"
SPARSE = ("random", "hard_imb", "online_batch", "info_batch", "balance")
"""Methods that keep numbers of rows and of labels, but none of pairs."""


def taken(method: str, n: int, q: int) -> int:
    """The bytes that training with a method takes beyond those of a small problem."""
    words = [sys.executable, str(SCRIPT), method, str(n), str(q)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout)["bytes"])


@pytest.mark.parametrize("method", ["hard_imb"])
def test_a_large_sparse_matrix_takes_less_than_a_dense_one(method):
    assert taken(method, 200_000, 1_500) < 200_000 * 1_500 / 2


@pytest.mark.slow
@pytest.mark.parametrize("method", SPARSE)
def test_a_million_rows_and_a_thousand_labels_take_what_their_ones_take(method):
    assert taken(method, 1_000_000, 999) < 600e6  # a byte a pair would be 999e6


@pytest.mark.parametrize("method", [*SPARSE, "dihcl", "ada_boundary"])
def test_large_and_small_matrices_give_the_same_batches(method, monkeypatch):
    rng = np.random.default_rng(0)
    y = sp.csr_array((rng.random((90, 7)) < 0.3).astype(np.uint8))
    logits = torch.from_numpy(rng.standard_normal((90, 7)))

    def trained() -> list[list[list[int]]]:
        selector = d2ace.make_selector(method, y, warmup=1, batch_size=16, epochs=4)
        drawn = []
        for _ in range(3):
            drawn.append(list(selector.peek()))
            for batch in selector:
                selector.observe(batch, logits=logits[batch])
                selector.loss_weight(batch)
        return drawn

    dense = trained()
    monkeypatch.setattr(label_rows, "KEPT", 0)
    assert trained() == dense


def test_rows_of_all_lengths_are_looked_up(monkeypatch):
    y = np.array([[0, 0, 0], [1, 1, 1], [0, 0, 1], [1, 0, 0]], dtype=np.uint8)
    index = torch.tensor([3, 0, 1, 1, 2])
    for kept in (label_rows.KEPT, 0):
        monkeypatch.setattr(label_rows, "KEPT", kept)
        for labels in (y, np.zeros_like(y)):
            rows = LabelRows(sp.csr_array(labels)).at(index)
            assert rows.dtype == torch.bool
            assert np.array_equal(rows.numpy(), labels[index.numpy()] > 0)
        assert LabelRows(sp.csr_array(y)).at(index[:0]).shape == (0, 3)
