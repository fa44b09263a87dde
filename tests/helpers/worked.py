"""The small problem of the specification's worked examples, and its printed numbers."""

from __future__ import annotations

import numpy as np
import torch

import d2ace

X = torch.tensor([[0, 0], [0.1, 0], [1, 1], [1, 0.8]], dtype=torch.float64)
Y = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 0], [0, 0, 0]])
VISITS = torch.tensor(
    [
        [[0.60, 0.30, 0.40], [0.45, 0.55, 0.20], [0.30, 0.20, 0.10], [0.40, 0.50, 0.60]],
        [[0.70, 0.20, 0.55], [0.55, 0.60, 0.25], [0.25, 0.30, 0.10], [0.35, 0.45, 0.52]],
        [[0.80, 0.10, 0.45], [0.65, 0.40, 0.30], [0.20, 0.35, 0.05], [0.30, 0.40, 0.48]],
    ],
    dtype=torch.float64,
)


def numbers(text: str) -> list[float]:
    return [float(word) for word in text.replace("|", " ").split()]


def equal(value, text: str) -> None:
    """``value`` equals the printed numbers in their order."""
    got = np.asarray(value, dtype=float).ravel()
    np.testing.assert_allclose(got, numbers(text), rtol=0, atol=5.01e-7)


def visited(name: str, *, epoch: int = 11, y=Y, x=X, **options):
    """A selector that has seen the three visits and is about to draw ``epoch``."""
    options = {"dtype": torch.float64, "batch_size": 4, **options}
    selector = d2ace.make_selector(name, y, x, **options)
    for probs in VISITS:
        selector.observe(range(4), probs=probs)
    selector.set_epoch(epoch)
    return selector


def metric(selector, name):
    selector.flush()
    return selector.metric(name).clone()
