"""PACA: its size, its loss term by term, its two branches."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from problems import assert_healthy, count, plain, problem
from torch.distributions import Normal, kl_divergence

from d2ace.models import PACA, layers, make_model


@pytest.mark.parametrize(
    ("d", "q", "D", "expected"),
    [
        (103, 14, None, 1_430_441),
        (68, 174, None, 1_685_496),
        (103, 14, 50, 1_489_299),
        (68, 174, 50, 1_772_304),
        (1001, 53, None, 3_133_854),
        (1836, 159, None, 4_155_979),
    ],
)
def test_number_of_parameters(d, q, D, expected):
    model = make_model("paca", d, torch.ones(2, q), D=D)
    assert count(model) == sum(p.numel() for p in model.parameters()) == expected


@pytest.mark.parametrize(("d", "expected"), [(1, 1), (2, 1), (103, 52), (512, 256), (1836, 256)])
def test_default_latent_width(d, expected):
    assert make_model("paca", d, torch.ones(2, 3)).hparams["D"] == expected


def test_latent_width_has_a_limit():
    with pytest.raises(ValueError, match=r"D must be at most Hf = 256, got 257: .* a larger Hf"):
        make_model("paca", 600, torch.ones(2, 3), D=257)
    with pytest.raises(ValueError, match="D must be at most Hf = 8, got 9"):
        make_model("paca", 600, torch.ones(2, 3), D=9, Hf=8)
    assert make_model("paca", 600, torch.ones(2, 3), D=257, Hf=300).positive.sigmoidal.K == 3


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ({"alpha": -1.0}, "alpha must be at least 0"),
        ({"gamma": "x"}, "gamma must be a number"),
        ({"T": 0}, "T must be at least 1"),
        ({"p": 1.5}, "p must be in"),
        ({"binary_features": "no"}, "binary_features must be True or False, got 'no'"),
    ],
)
def test_wrong_hyperparameters_are_named(hparams, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make_model("paca", 9, torch.ones(2, 3), **hparams)


def test_presets_and_explicit_arguments():
    Y = torch.ones(2, 3)
    assert make_model("paca", 9, Y).hparams["p_dec"] == 0.0
    reference = make_model("paca", 9, Y, preset="reference")
    assert reference.hparams["p_dec"] == 0.2
    assert {part.dropout for part in (reference.decoder, reference.label_decoder)} == {0.2}
    assert reference.instance_map.dropout == 0.2
    assert reference.encoder.dropout == reference.label_encoder.dropout == 0.1
    assert make_model("paca", 9, Y, preset="reference", p_dec=0.5).decoder.dropout == 0.5


@pytest.mark.parametrize("binary", [False, True])
def test_evaluation_loss_term_by_term(binary):
    X, Y = problem()
    X = X.round() if binary else X
    model = make_model("paca", X.shape[1], Y, binary_features=binary, alpha=3.0, gamma=0.5).eval()
    output = model(X)
    aux = output.aux
    assert set(aux) == {"x", "mu", "logvar", "recon"}
    terms = model.loss(output, Y)
    hidden = model.label_encoder(Y)
    label_mu, label_logvar = model.label_mu(hidden), model.label_logvar(hidden)
    label_logits = model.label_logits(model.label_decoder(label_mu))
    reconstruction = (
        F.binary_cross_entropy(aux["recon"].sigmoid(), X, reduction="none")
        if binary
        else (aux["recon"].sigmoid() - X) ** 2
    )
    divergence = kl_divergence(
        Normal(aux["mu"], (aux["logvar"] / 2).exp()), Normal(label_mu, (label_logvar / 2).exp())
    )
    expected = {
        "reconstruction": reconstruction.sum(1).mean(),
        "divergence": 0.5 * divergence.sum(1).mean(),
        "label_autoencoder": 0.5 * len(Y[0]) * F.binary_cross_entropy_with_logits(label_logits, Y),
        "classification": 3.0 * terms.per_pair.sum(1).mean(),
    }
    assert set(terms.parts) == set(expected)
    for name, part in expected.items():
        torch.testing.assert_close(terms.parts[name], part.detach(), rtol=1e-5, atol=1e-5)


def test_weights_multiply_every_term_of_an_instance():
    X, Y = problem()
    model = make_model("paca", X.shape[1], Y).eval()
    weight = torch.rand(len(X))
    terms = model.loss(model(X), Y, weight)
    rows = [model.loss(model(X[[i]]), Y[[i]]).parts for i in range(len(X))]
    for name, part in terms.parts.items():
        expected = (torch.stack([row[name] for row in rows]) * weight).mean()
        torch.testing.assert_close(part, expected, rtol=1e-4, atol=1e-4)


def test_codes_are_sampled_in_training_only():
    X, Y = problem()
    model = plain("paca", X.shape[1], Y)
    assert not torch.equal(model(X).logits, model(X).logits)
    model.eval()
    assert torch.equal(model(X).logits, model(X).logits)


def test_labels_reach_the_loss_and_not_the_prediction():
    X, Y = problem()
    model = plain("paca", X.shape[1], Y)
    model.loss(model(X), Y).total.backward()
    for part in (model.label_encoder, model.label_decoder, model.label_mu, model.label_logits):
        assert all(parameter.grad.abs().sum() > 0 for parameter in part.parameters())
        for parameter in part.parameters():
            torch.nn.init.constant_(parameter, float("nan"))
    assert torch.isfinite(model.predict_proba(X)).all()


def test_prediction_skips_the_reconstruction():
    X, Y = problem()
    model = make_model("paca", X.shape[1], Y)
    calls = []
    model.decoder.register_forward_hook(lambda *_: calls.append(1))
    model.predict_proba(X)
    assert not calls
    with pytest.raises(ValueError, match="was made for instances"):
        model.predict_proba(X[:, 1:])
    assert "recon" in model.eval()(X).aux
    assert len(calls) == 1


def test_chunked_training_equals_unchunked(monkeypatch):
    X, Y = problem()
    model = make_model("paca", X.shape[1], Y, p=0.0).double().eval()
    X, Y = X.double(), Y.double()
    gradients = []
    for kept in (layers.KEPT_ELEMENTS, 0):
        monkeypatch.setattr(layers, "KEPT_ELEMENTS", kept)
        monkeypatch.setattr(layers, "CHUNK_ELEMENTS", 0)  # a label at a time
        model.zero_grad()
        total = model.loss(model(X), Y).total
        total.backward()
        assert_healthy(model, total)
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("logvar", [-1e4, 1e4])
def test_unbounded_variances_stay_finite(logvar):
    X, Y = problem()
    model = make_model("paca", X.shape[1], Y)
    for layer, value in ((model.logvar, logvar), (model.label_logvar, -logvar)):
        torch.nn.init.constant_(layer.bias, value)
    terms = model.loss(model(X), Y)
    terms.total.backward()
    assert_healthy(model, terms.total)


def test_is_a_model_of_the_registry():
    assert isinstance(make_model("paca", 4, torch.ones(2, 3)), PACA)
