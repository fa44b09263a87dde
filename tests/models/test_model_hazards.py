"""Inputs and number formats that break careless networks."""

from __future__ import annotations

import pytest
import torch
from problems import NAMES, problem, train
from promises import (
    DEGENERATE,
    bfloat16_is_close,
    degenerate,
    runs_in_bfloat16,
    stays_finite,
)

from d2ace.models import make_model

every_model = pytest.mark.parametrize("name", NAMES)
every_preset = pytest.mark.parametrize("preset", ["paper", "reference"])


@every_model
@every_preset
@pytest.mark.parametrize("kind", [*DEGENERATE, "one label", "one feature"])
def test_losses_and_gradients_stay_finite(name, preset, kind):
    X, Y = problem(16, 1 if kind == "one feature" else 9, 1 if kind == "one label" else 5)
    X, Y = degenerate(X, Y, kind)
    model = make_model(name, X.shape[1], Y, preset=preset)
    train(model, X, Y, steps=3)
    stays_finite(model, X, Y)


@every_model
def test_far_larger_steps_than_anyone_takes_give_no_nan(name):
    X, Y = problem(16, 9, 5)
    model = make_model(name, 9, Y)
    train(model, X, Y, steps=10, lr=0.05)


@every_model
def test_weights_may_be_bfloat16(name):
    X, Y = problem()
    runs_in_bfloat16(make_model(name, X.shape[1], Y), X, Y)


@every_model
def test_bfloat16_autocast_is_close_to_float32(name):
    X, Y = problem(32, 20, 6)
    model = make_model(name, 20, Y, p=0.0)
    bfloat16_is_close(model, X, Y)


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
