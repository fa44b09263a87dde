"""What every model promises, whether it reads tables or images."""

from __future__ import annotations

import io
from collections.abc import Callable

import torch
from problems import assert_healthy
from torch import Tensor

from d2ace.models import MultiLabelModel

DEGENERATE = ["constant", "zero", "no positives", "all positives", "one row", "equal labels"]


def degenerate(X: Tensor, Y: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """A problem turned into one that breaks careless networks."""
    if kind == "constant":
        X = torch.full_like(X, 0.5)
    elif kind == "zero":
        X = torch.zeros_like(X)
    elif kind == "no positives":
        Y = torch.zeros_like(Y)
    elif kind == "all positives":
        Y = torch.ones_like(Y)
    elif kind == "one row":
        X, Y = X[:1], Y[:1]
    elif kind == "equal labels":
        Y = Y[:, :1].expand_as(Y).contiguous()
    return X, Y


def stays_finite(model: MultiLabelModel, X: Tensor, Y: Tensor) -> None:
    assert torch.isfinite(model.predict_proba(X)).all()
    assert torch.isfinite(model.eval().loss(model(X), Y).total)


def state_goes_round(model: MultiLabelModel, other: MultiLabelModel, X: Tensor, Y: Tensor) -> None:
    """Another model with the state of this one is this one, to the last bit."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.predict_proba(X)
    other.load_state_dict(torch.load(file, weights_only=True))
    for key, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[key]), key
    assert torch.equal(model.predict_proba(X), other.predict_proba(X))
    torch.manual_seed(3)
    expected = model.loss(model(X), Y).total
    torch.manual_seed(3)
    assert torch.equal(other.loss(other(X), Y).total, expected)


def follows_the_global_generator(make: Callable[[], MultiLabelModel]) -> None:
    torch.manual_seed(5)
    first = make().state_dict()
    after = torch.rand(3)
    second = make().state_dict()
    torch.manual_seed(5)
    again = make().state_dict()
    assert torch.equal(torch.rand(3), after)
    assert all(torch.equal(value, again[key]) for key, value in first.items())
    assert any(not torch.equal(value, second[key]) for key, value in first.items())


def runs_in_bfloat16(model: MultiLabelModel, X: Tensor, Y: Tensor) -> None:
    """A model whose weights are bfloat16 trains and predicts, near what it does in float32."""
    expected = model.predict_proba(X)
    model.bfloat16()
    seen = model.predict_proba(X.bfloat16())
    assert seen.dtype is torch.float32
    torch.testing.assert_close(seen, expected, atol=0.05, rtol=0.1)
    terms = model.loss(model.train()(X.bfloat16()), Y)
    terms.total.backward()
    assert torch.isfinite(terms.total)
    assert terms.total.dtype is torch.float32


def bfloat16_is_close(model: MultiLabelModel, X: Tensor, Y: Tensor) -> None:
    """Of a model without dropout: losses, their parts, gradients and predictions."""
    for training in (True, False):
        model.train(training)
        torch.manual_seed(3)
        exact = model.loss(model(X), Y)
        torch.manual_seed(3)
        with torch.autocast("cpu", torch.bfloat16):
            half = model.loss(model(X), Y)
        assert half.total.dtype is half.per_pair.dtype is torch.float32
        torch.testing.assert_close(half.total, exact.total, rtol=0.03, atol=0.03)
        for key, part in exact.parts.items():
            torch.testing.assert_close(half.parts[key], part, rtol=0.05, atol=0.03)
        model.zero_grad()
        half.total.backward()
        if training:
            assert_healthy(model, half.total)
    with torch.autocast("cpu", torch.bfloat16):
        half = model.predict_proba(X)
    assert half.dtype is torch.float32
    torch.testing.assert_close(half, model.predict_proba(X), rtol=0.05, atol=0.03)
