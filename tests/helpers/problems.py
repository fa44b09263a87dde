"""Small random problems for models, and models without dropout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from d2ace.models import MODELS, MultiLabelModel, make_model


def problem(n: int = 12, d: int = 9, q: int = 5, share: float = 0.3) -> tuple[Tensor, Tensor]:
    """Features [n, d] in [0, 1] and labels [n, q]."""
    return torch.rand(n, d), (torch.rand(n, q) < share).float()


def plain(name: str, d: int, Y: Tensor, **hparams: Any) -> MultiLabelModel:
    """A model without dropout, in its own defaults otherwise."""
    return make_model(name, d, Y, **{"p": 0.0, **hparams})


def count(model: torch.nn.Module) -> int:
    """Number of trainable numbers."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def assert_healthy(model: MultiLabelModel, total: Tensor) -> None:
    """A finite loss, and finite gradients for every trained parameter, after its backward pass."""
    assert torch.isfinite(total)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            assert parameter.grad is None, f"{name} is frozen but has a gradient"
            continue
        assert parameter.grad is not None, f"{name} has no gradient"
        assert torch.isfinite(parameter.grad).all(), f"{name} has a gradient that is not finite"


def train(
    model: MultiLabelModel, X: Tensor, Y: Tensor, steps: int, lr: float = 1e-3, **loss: Any
) -> None:
    """Full-batch steps, each checked."""
    optimiser = torch.optim.Adam(model.param_groups(lr))
    for _ in range(steps):
        terms = model.loss(model(X), Y, **loss)
        optimiser.zero_grad()
        terms.total.backward()
        assert_healthy(model, terms.total)
        optimiser.step()


NAMES = [name for name, model in MODELS.items() if model.input == "table"]
SIZES = [(103, 14), (68, 174)]
