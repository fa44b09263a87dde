"""The library's own selectors as rules: what is measured is what ships."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor
from trim.cells import Cell
from trim.networks import Epoch, Network, Rule, batch_size

from d2ace import Random, Trim
from d2ace.selectors import Selector


@dataclass
class Shipped:
    """A selector that draws the same batches as Random does."""

    name: str
    selector: Selector
    batches: Iterator[list[int]] = field(init=False)

    def start(self, epoch: int, network: Network) -> Hashable | None:
        self.batches = iter(self.selector)
        return self.name if self.selector.weighs_loss(epoch) else None

    def draw(self, rows: list[int]) -> None:
        if next(self.batches) != rows:
            raise RuntimeError(f"{self.name} drew another batch than Random.")

    def weights(self, rows: Tensor, network: Network) -> Tensor:
        found = self.selector.loss_weight(rows)
        if found is None:
            raise RuntimeError(f"{self.name} gave no weights in an epoch that weighs the loss.")
        return found.to(torch.float32)

    def observe(self, rows: Tensor, logits: Tensor) -> None:
        self.selector.observe(rows, logits=logits)

    def validated(self, epoch: Epoch) -> None:
        if next(self.batches, None) is not None:
            raise RuntimeError(f"{self.name} has more batches than Random.")
        self.selector.validated(float(epoch.validation.mean()))


def rules(
    cell: Cell, seed: int, epochs: int
) -> tuple[list[Rule], Callable[[int], Iterable[list[int]]]]:
    """Trim as it comes, its controls, and the batches of Random that all are trained with."""
    options = {"batch_size": batch_size(len(cell.train.Y)), "epochs": epochs, "seed": seed}
    random = Random(cell.train.Y, **options)
    found: list[Rule] = [
        Shipped("Trim", Trim(cell.train.Y, **options)),
        Shipped("fixed start", Trim(cell.train.Y, start=4, **options)),
    ]
    return found, lambda epoch: random
