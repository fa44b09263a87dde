"""A small problem for the checks, and a "model" whose predictions depend on row and epoch alone."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from d2ace.selectors import IndexedDataset, Selector

Check: TypeAlias = Callable[..., None]
CHECKS: list[Check] = []

N, Q, D, BATCH, EPOCHS, WARMUP = 37, 5, 3, 8, 9, 2
COMMON = {"batch_size": BATCH, "epochs": EPOCHS, "warmup": WARMUP, "dtype": torch.float64}
OWN = (*COMMON, "seed", "predictions", "device")  # what the checks presuppose or vary themselves


def check(function: Check) -> Check:
    """Register a check: a function of a selector class and its options that raises or returns."""
    CHECKS.append(function)
    return function


def labels() -> Tensor:
    return (torch.rand(N, Q, generator=torch.Generator().manual_seed(1)) < 0.4).to(torch.uint8)


def features() -> Tensor:
    return torch.randn(N, D, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def logits_of(epoch: int) -> Tensor:
    """Of a model that learns the labels by heart, as the validation loss says too."""
    source = torch.Generator().manual_seed(100 + epoch)
    learnt = (4.0 - 4.0 * 0.7**epoch) * (2.0 * labels().double() - 1.0)
    return 2.0 * torch.randn(N, Q, generator=source, dtype=torch.float64) + learnt


def make(cls: type[Selector], options: dict[str, Any], **more: Any) -> Selector:
    return cls(labels(), features(), **{**COMMON, **options, **more})


def make_or_refused(cls: type[Selector], options: dict[str, Any], **more: Any) -> Selector | None:
    """A selector with options that a method may refuse, or None."""
    try:
        return make(cls, options, **more)
    except ValueError:
        return None


def validation_loss(epoch: int) -> float:
    """It rises at once, so that what waits for that happens in the first selective epoch."""
    return 0.4 + 0.1 * epoch


def steps(selector: Selector) -> Iterator[list[int]]:
    """One epoch as a training loop has it: draw a batch, weigh its loss, observe it; validate."""
    epoch = selector.epoch
    logits = logits_of(epoch)
    for batch in selector:
        selector.loss_weight(batch)
        yield batch
        selector.observe(batch, logits=logits[batch])
    selector.validated(validation_loss(epoch))


def train(selector: Selector, epochs: int) -> list[list[list[int]]]:
    return [list(steps(selector)) for _ in range(epochs)]


def trained(cls: type[Selector], options: dict[str, Any], **more: Any) -> Selector:
    """A selector about to draw its second selective epoch."""
    selector = make(cls, options, **more)
    train(selector, WARMUP + 1)
    return selector


def reload(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def loaded(cls: type[Selector], options: dict[str, Any], workers: int) -> list[list[int]]:
    selector = make(cls, options)
    data = IndexedDataset(TensorDataset(features()))
    loader = DataLoader(data, batch_sampler=selector, num_workers=workers)
    seen = []
    for epoch in range(1, WARMUP + 3):
        logits = logits_of(epoch)
        for index, _ in loader:
            selector.loss_weight(index)
            selector.observe(index, logits=logits[index])
            seen.append(index.tolist())
        selector.validated(validation_loss(epoch))
    return seen


def refusal(action: Callable[[], Any]) -> str:
    try:
        action()
    except (ValueError, TypeError) as refusal:
        message = str(refusal)
        assert "\n" not in message and message.endswith("."), f"not one sentence: {message!r}"
        return message
    raise AssertionError("bad input was accepted")
