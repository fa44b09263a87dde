"""Models by name: what may be asked for, and what is said when it cannot be had."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from problems import NAMES, problem

import d2ace
from d2ace.models import MODELS, make_model
from d2ace.models.finding import hparams_of


def test_names():
    assert NAMES == ["mlp", "clif", "dela", "paca"]
    assert list(MODELS) == [*NAMES, "image_mlp", "ml_gcn", "hst"]
    assert {model.input for model in MODELS.values()} == {"table", "image"}
    assert all(model.name == name for name, model in MODELS.items())
    assert d2ace.models.MODELS is MODELS


def test_an_unknown_model_is_met_with_a_guess():
    _, Y = problem()
    with pytest.raises(ValueError, match=r"no model 'cilf' \(did you mean 'clif'\?\); choose from"):
        make_model("cilf", 9, Y)


def test_an_unknown_hyperparameter_is_met_with_a_guess():
    _, Y = problem()
    with pytest.raises(
        TypeError, match=r"dela has no .* 'omga' \(did you mean 'omega'\?\); it takes"
    ):
        make_model("dela", 9, Y, omga=0.1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "kind", [torch.as_tensor, np.asarray, sp.csr_matrix, sp.csr_array, lambda Y: Y.bool()]
)
def test_labels_in_every_container_give_the_same_model(name, kind):
    X, Y = problem()
    torch.manual_seed(1)
    expected = make_model(name, X.shape[1], Y).predict_proba(X)
    torch.manual_seed(1)
    assert torch.equal(make_model(name, X.shape[1], kind(Y)).predict_proba(X), expected)


@pytest.mark.parametrize("name", NAMES)
def test_explicit_hyperparameters_win_over_the_preset(name):
    _, Y = problem()
    model = make_model(name, 9, Y, preset="reference", p=0.45)
    assert model.hparams["p"] == 0.45
    assert set(hparams_of(MODELS[name])) == {"preset", *model.hparams}
    assert "p=0.45" in repr(model)
    signature = inspect.signature(MODELS[name].__init__)
    assert all(signature.parameters[hparam].default is None for hparam in model.hparams)


@pytest.mark.parametrize(
    ("name", "hparams", "message"),
    [
        ("mlp", {"h": 0}, "h must be at least 1, got 0"),
        ("mlp", {"L": 1.5}, "L must be a whole number, got 1.5"),
        ("clif", {"e": 0}, "e must be at least 1, got 0"),
        ("clif", {"p": 1.5}, r"p must be in \[0, 1\], got 1.5"),
        ("clif", {"graph": "knn"}, "graph must be one of 'cooccurrence', 'identity', got 'knn'"),
        ("clif", {"gate": "tanh"}, "gate must be one of 'sigmoid', 'linear', got 'tanh'"),
        ("clif", {"lam": -1}, "lam must be at least 0, got -1"),
        ("dela", {"D": 0}, "D must be at least 1, got 0"),
        ("dela", {"tau": 0.0}, "tau must be above 0, got 0.0"),
        ("dela", {"omega": 2}, r"omega must be in \[0, 1\], got 2"),
        ("dela", {"preset": "papr"}, "preset must be one of 'paper', 'reference', got 'papr'"),
        ("dela", {"beta": float("nan")}, "beta must be at least 0, got nan"),
    ],
)
def test_hyperparameters_out_of_range(name, hparams, message):
    _, Y = problem()
    with pytest.raises((ValueError, TypeError), match=message):
        make_model(name, 9, Y, **hparams)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_sizes_and_labels(name):
    _, Y = problem()
    with pytest.raises(ValueError, match="n_features must be at least 1, got 0"):
        make_model(name, 0, Y)
    with pytest.raises(ValueError, match=r"labels\[0, 0\] is 2.0, but labels must be 0 or 1"):
        make_model(name, 9, torch.full((3, 2), 2.0))
