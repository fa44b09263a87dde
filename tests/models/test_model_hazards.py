"""Inputs and number formats that break careless networks."""

from __future__ import annotations

import pytest
import torch
from problems import NAMES, assert_healthy, problem, train

from d2ace.models import make_model

every_model = pytest.mark.parametrize("name", NAMES)
every_preset = pytest.mark.parametrize("preset", ["paper", "reference"])


def degenerate(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    X, Y = problem(16, 9, 1 if kind == "one label" else 5)
    if kind == "constant features":
        X = torch.full_like(X, 0.5)
    elif kind == "zero features":
        X = torch.zeros_like(X)
    elif kind == "no positives":
        Y = torch.zeros_like(Y)
    elif kind == "all positives":
        Y = torch.ones_like(Y)
    elif kind == "one feature":
        X = X[:, :1]
    elif kind == "one row":
        X, Y = X[:1], Y[:1]
    elif kind == "equal labels":
        Y = Y[:, :1].expand(-1, 5).contiguous()
    return X, Y


@every_model
@every_preset
@pytest.mark.parametrize(
    "kind",
    [
        "constant features",
        "zero features",
        "no positives",
        "all positives",
        "one label",
        "one feature",
        "one row",
        "equal labels",
    ],
)
def test_losses_and_gradients_stay_finite(name, preset, kind):
    X, Y = degenerate(kind)
    model = make_model(name, X.shape[1], Y, preset=preset)
    train(model, X, Y, steps=3)
    assert torch.isfinite(model.predict_proba(X)).all()
    assert torch.isfinite(model.eval().loss(model(X), Y).total)


@every_model
def test_far_larger_steps_than_anyone_takes_give_no_nan(name):
    X, Y = problem(16, 9, 5)
    model = make_model(name, 9, Y)
    train(model, X, Y, steps=10, lr=0.05)


@every_model
def test_bfloat16_autocast_is_close_to_float32(name):
    X, Y = problem(32, 20, 6)
    model = make_model(name, 20, Y, p=0.0)
    for training in (True, False):
        model.train(training)
        torch.manual_seed(3)
        exact = model.loss(model(X), Y)
        torch.manual_seed(3)
        with torch.autocast("cpu", torch.bfloat16):
            output = model(X)
            half = model.loss(output, Y)
        assert half.total.dtype is torch.float32
        assert half.per_pair.dtype is torch.float32
        torch.testing.assert_close(half.total, exact.total, rtol=0.03, atol=0.02)
        for key, part in exact.parts.items():
            torch.testing.assert_close(half.parts[key], part, rtol=0.05, atol=0.02)
        model.zero_grad()
        half.total.backward()
        if training:
            assert_healthy(model, half.total)
    with torch.autocast("cpu", torch.bfloat16):
        half = model.predict_proba(X)
    assert half.dtype is torch.float32
    torch.testing.assert_close(half, model.predict_proba(X), rtol=0.05, atol=0.02)


def test_constant_terms_are_exact_under_autocast():
    X, Y = problem(32, 20, 6)
    clif = make_model("clif", 20, Y, p=0.0)
    exact = clif.loss(clif(X), Y).parts["graph"]
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(clif.loss(clif(X), Y).parts["graph"], exact)


@every_model
def test_double_precision_throughout(name):
    X, Y = problem(16, 9, 5)
    model = make_model(name, 9, Y).double()
    X, Y = X.double(), Y.double()
    train(model, X, Y, steps=2)
    output = model(X)
    assert output.logits.dtype is torch.float64
    assert model.loss(output, Y).total.dtype is torch.float64
