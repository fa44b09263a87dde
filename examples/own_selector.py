"""A selection method of your own in about thirty lines, checked by the library's own kit.

python examples/own_selector.py
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

import d2ace
from d2ace.selectors import Memory
from d2ace.testing import CHECKS, check_selector


class Margin(d2ace.Selector):
    """Prefers instances whose most ambiguous label has been near 0.5 lately."""

    name = "margin"

    def __init__(self, labels, features=None, *, smoothing: float = 0.5, **common) -> None:
        super().__init__(labels, features, **common)
        self.smoothing = smoothing

    def make_memory(self) -> Memory:
        return Memory(ambiguity=torch.full((self.n,), 0.5, dtype=self.dtype))

    def update(self, index: Tensor, probs: Tensor) -> None:
        nearest = 0.5 - (probs - 0.5).abs().amin(dim=1)
        average = torch.lerp(self.memory.ambiguity[index], nearest, self.smoothing)
        self.memory.ambiguity.index_copy_(0, index, average)

    def instance_weights(self) -> dict[str, Tensor]:
        return {"ambiguity": self.memory.ambiguity}


if __name__ == "__main__":
    if "--quick" not in sys.argv:
        check_selector(Margin)
        print(f"Margin keeps all {len(CHECKS)} promises of a selector.")
    labels = (torch.rand(200, 5) < 0.3).int()
    selector = Margin(labels, batch_size=32, warmup=1, epochs=5)
    for epoch in range(1, 6):
        for batch in selector:
            selector.observe(batch, probs=torch.rand(len(batch), 5))
        p = selector.probabilities
        print(f"epoch {epoch}: largest over smallest probability {float(p.max() / p.min()):.1f}")
