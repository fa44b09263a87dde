"""DELA against a direct formulation: the split head, the gates, the divergence."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from problems import SIZES, count, plain, problem
from torch import nn

from d2ace.models import DELA, layers
from d2ace.models.dela import mean_divergence


@pytest.mark.parametrize(
    ("size", "hparams", "expected"),
    [
        (SIZES[0], {}, 498_450),
        (SIZES[1], {}, 552_372),
        (SIZES[0], {"D": 50}, 496_676),
        (SIZES[1], {"D": 50}, 568_836),
        (SIZES[0], {"preset": "reference"}, 498_450),
    ],
)
def test_parameter_counts(size, hparams, expected):
    d, q = size
    model = DELA(d, problem(20, d, q)[1], **hparams)
    assert count(model) == expected == sum(value.numel() for value in model.state_dict().values())


def test_presets():
    Y = problem(20, 9, 5)[1]
    paper, reference = DELA(9, Y).hparams, DELA(9, Y, preset="reference").hparams
    assert paper == {
        "D": 5, "tau": 2 / 3, "omega": 0.5, "p": 0.2, "p_dec": 0.0, "beta": 1e-4,
        "gate_lr_ratio": 1.0, "clamp_logvar": True,
    }  # fmt: skip
    assert reference == {**paper, "omega": 0.0, "p_dec": 0.2, "clamp_logvar": False}


def naive_logits(model: DELA, x, mu, noise, gates) -> torch.Tensor:
    """The head from its text: [x; z] for every pair, and a grouped convolution."""
    q, h = model.classifier.weight.shape
    z = mu[:, None] + gates[None] * noise[:, None]
    u = torch.cat([x[:, None].expand(-1, q, -1), z], 2)
    for linear in model.head.layers:
        u = F.relu(linear(u))
    conv = nn.Conv1d(q, q, h, groups=q).to(x)
    conv.weight.data.copy_(model.classifier.weight[:, None])
    conv.bias.data.copy_(model.classifier.bias)
    return conv(u)[..., 0]


@pytest.mark.parametrize("omega", [0.0, 0.5])
@pytest.mark.parametrize("size", SIZES)
def test_agrees_with_the_direct_formulation(size, omega):
    d, q = size
    X, Y = problem(16, d, q)
    model = plain("dela", d, Y, omega=omega)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
        model, X = model.to(dtype), X.to(dtype)
        with torch.no_grad():
            torch.manual_seed(7)
            output = model.train()(X)
            torch.manual_seed(7)
            gates = model.sample_gates()
            noise = torch.exp(output.aux["logvar"] / 2) * torch.randn_like(output.aux["mu"])
            assert torch.equal(gates, output.aux["gates"])
            naive = naive_logits(model, X, output.aux["mu"], noise, gates)
            torch.testing.assert_close(output.logits, naive, atol=tolerance, rtol=0)
            output = model.eval()(X)
            assert set(output.aux) == {"mu", "logvar"}
            naive = naive_logits(model, X, output.aux["mu"], noise, torch.zeros_like(gates))
            torch.testing.assert_close(output.logits, naive, atol=tolerance, rtol=0)


@pytest.mark.parametrize("p_dec", [0.0, 0.2])
def test_chunked_equals_unchunked(monkeypatch, p_dec):
    X, Y = problem(8, 11, 23)
    model = DELA(11, Y, p_dec=p_dec).double()
    X, Y = X.double(), Y.double()

    def run():
        torch.manual_seed(4)
        model.zero_grad()
        terms = model.loss(model(X), Y)
        terms.total.backward()
        return [terms.per_pair, *(p.grad.clone() for p in model.parameters())]

    def limit(labels: int, kept: int) -> None:
        monkeypatch.setattr(layers, "CHUNK_ELEMENTS", labels * 8 * 512)
        monkeypatch.setattr(layers, "KEPT_ELEMENTS", kept)

    whole = run()
    for labels, kept in ((1, 2**30), (5, 2**30), (22, 2**30)):
        limit(labels, kept)
        expected = whole if not p_dec else run()  # other chunks, other dropout
        limit(labels, 0)
        for ours, theirs in zip(run(), expected, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-9)


def test_training_without_noise_is_evaluation(monkeypatch):
    X, Y = problem()
    model = plain("dela", 9, Y, omega=0.0)
    expected = model.eval()(X).logits
    nn.init.zeros_(model.gate.weight)
    nn.init.constant_(model.gate.bias, -1e4)
    model.train()
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)
    output = model(X)
    assert output.aux["gates"].abs().max() == 0
    torch.testing.assert_close(output.logits, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("weighted", [False, True])
def test_separated_divergence_equals_the_direct_sum(weighted):
    B, q, D = 6, 4, 3
    mu, logvar = torch.randn(B, D).double(), torch.randn(B, D).double()
    a = torch.rand(q, D).double()
    weight = torch.rand(B).double() if weighted else torch.ones(B).double()
    direct = 0.0
    for b in range(B):
        for j in range(q):
            pair = (
                -logvar[b] - 2 * torch.log(a[j] + 1e-6) - 1
                + logvar[b].exp() * a[j] ** 2 + mu[b] ** 2
            )  # fmt: skip
            direct += float(weight[b] * pair.sum() / 2) / (B * q)
    ours = layers.batch_mean(mean_divergence(mu, logvar, a), weight if weighted else None)
    assert ours.item() == pytest.approx(direct, rel=1e-12)


def test_divergence_is_that_of_two_gaussians():
    mu, logvar, a = (
        torch.randn(1, 3).double(),
        torch.randn(1, 3).double(),
        torch.rand(1, 3).double(),
    )
    noisy = torch.distributions.Normal(mu, a * torch.exp(logvar / 2))
    prior = torch.distributions.Normal(torch.zeros(3).double(), torch.ones(3).double())
    expected = torch.distributions.kl_divergence(noisy, prior).sum()
    torch.testing.assert_close(mean_divergence(mu, logvar, a)[0], expected, atol=1e-4, rtol=1e-4)


def test_loss_sums_over_labels_and_adds_the_divergence():
    X, Y = problem()
    model = DELA(9, Y, beta=0.3)
    output = model(X)
    terms = model.loss(output, Y)
    expected = 0.3 * mean_divergence(**output.aux).mean()
    torch.testing.assert_close(terms.parts["divergence"], expected.detach())
    assert set(terms.parts) == {"classification", "divergence"}
    model.eval()
    assert set(model.loss(model(X), Y).parts) == {"classification"}


@pytest.mark.parametrize("omega", [0.0, 0.5, 1.0])
def test_gates_are_hard_forward_and_soft_backward(omega):
    model = DELA(40, problem(10, 40, 8)[1], omega=omega)
    gates = model.sample_gates()
    assert gates.shape == (8, 20)
    values = set(gates.detach().unique().tolist())
    assert values == {omega, 1.0}
    gates.sum().backward()
    assert model.R.grad.abs().max() > 0
    assert model.gate.bias.grad.abs().max() > 0


def test_gates_open_as_often_as_their_logits_say():
    model = DELA(40, problem(10, 40, 8)[1])
    torch.nn.init.zeros_(model.gate.weight)
    with torch.no_grad():
        share = torch.stack([model.sample_gates() == 1 for _ in range(100)]).float().mean()
    assert abs(share - 1 / (1 + math.exp(-2))) < 0.01


def test_one_gate_sample_and_one_noise_draw_per_batch():
    X, Y = problem()
    model = plain("dela", 9, Y)
    torch.manual_seed(2)
    both = model(torch.cat([X[:1], X[:1]]))
    assert both.aux["gates"].shape == (5, 5)
    assert not torch.equal(both.logits[0], both.logits[1])  # the noise is each instance's own


def test_learning_rate_of_the_gates():
    model = DELA(9, problem()[1], gate_lr_ratio=0.8)
    others, gates = model.param_groups(0.1)
    assert others["lr"] == 0.1
    assert gates["lr"] == pytest.approx(0.08)
    assert {id(p) for p in gates["params"]} == {
        id(p) for p in (model.R, model.gate.weight, model.gate.bias)
    }


def test_initialisation():
    model = DELA(400, problem(20, 400, 40)[1])
    assert 9.9 < model.R.abs().max() <= 10
    assert (model.gate.bias == 2).all()
    for tensor, bound in [
        (model.gate.weight, 1 / math.sqrt(200)),
        (model.mu.weight, 1 / math.sqrt(256)),
        (model.encoder.layers[0].weight, math.sqrt(6 / 400)),
        (model.head.layers[0].weight, math.sqrt(6 / 600)),
        (model.classifier.weight, 1 / math.sqrt(512)),
    ]:
        assert 0.98 * bound < tensor.abs().max() <= bound


@pytest.mark.parametrize("extreme", [-1e4, 1e4])
def test_log_variances_out_of_range_stay_finite(extreme):
    X, Y = problem()
    model = DELA(9, Y)
    nn.init.constant_(model.logvar.bias, extreme)
    terms = model.loss(model(X), Y)
    terms.total.backward()
    assert torch.isfinite(terms.total)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_the_floor_keeps_the_divergence_from_driving_the_gates():
    X, Y = problem(64, 103, 14)
    gradient = {}
    for omega in (0.0, 0.5):
        torch.manual_seed(0)
        model = plain("dela", 103, Y, omega=omega)
        output = model(X)
        (model.beta * mean_divergence(**output.aux).mean()).backward()
        gradient[omega] = model.R.grad.abs().mean().item()
    assert gradient[0.5] < 1e-5 < 1e-2 < gradient[0.0]
