"""Random problems for metrics, with everything that makes metrics differ: ties, constant labels,
empty and full rows, one label, one row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Case(NamedTuple):
    truth: np.ndarray
    scores: np.ndarray


def case(seed: int) -> Case:
    """One problem per seed; the seed also walks through kinds of scores and of labels."""
    draw = np.random.default_rng(seed)
    n = 1 if seed % 11 == 0 else int(draw.integers(2, 40))
    q = 1 if seed % 7 == 0 else int(draw.integers(2, 15))
    truth = draw.random((n, q)) < draw.random(q) ** 2
    if seed % 3 == 0:  # constant labels, rows without and with all labels
        truth[:, draw.integers(q)] = draw.random() < 0.5
        truth[draw.integers(n)] = False
        truth[draw.integers(n)] = True
    scores = [
        lambda: draw.random((n, q)),
        lambda: draw.random((n, q)).astype(np.float32),
        lambda: draw.integers(0, 4, (n, q)) / 4,  # many ties, some at the threshold
        lambda: draw.normal(size=(n, q)) * 10.0 ** draw.integers(-300, 300, (n, q)),
        lambda: np.full((n, q), 0.5),
        lambda: (draw.random((n, q)) < 0.5).astype(np.float32),
    ][seed % 6]()
    return Case(truth, scores)
