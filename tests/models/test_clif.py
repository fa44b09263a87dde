"""CLIF against a direct formulation, its graph, its symmetry, its chunks and what it remembers."""

from __future__ import annotations

import copy
import math

import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from problems import SIZES, count, plain, problem, train
from torch import nn

from d2ace.models import CLIF, gated
from d2ace.models.clif import graph_loss, label_graph


@pytest.mark.parametrize(
    ("size", "hparams", "expected"),
    [
        (SIZES[0], {}, 941_072),
        (SIZES[1], {}, 1_015_472),
        (SIZES[0], {"e": 256, "L": 1}, 557_072),
        (SIZES[1], {"e": 256, "L": 1}, 641_712),
        (SIZES[0], {"preset": "reference"}, 1_874_454),
        (SIZES[1], {"preset": "reference"}, 2_155_094),
        (SIZES[0], {"h": 768, "e": 14}, 1_874_454),
    ],
)
def test_parameter_counts(size, hparams, expected):
    d, q = size
    model = CLIF(d, problem(20, d, q)[1], **hparams)
    assert count(model) == expected
    h, e, L = (model.hparams[key] for key in ("h", "e", "L"))
    m = math.ceil(e / 2)
    assert expected == (
        2 + (q + 3 * e) * m + 6 * m + 6 * e + d * h + h + (L - 1) * (h * h + h)
        + e * h + h + h * h + h + q * h + q
    )  # fmt: skip


def test_presets():
    Y = problem(20, 9, 5)[1]
    paper, reference = CLIF(9, Y).hparams, CLIF(9, Y, preset="reference").hparams
    assert paper == {
        "h": 512, "e": 128, "L": 3, "p": 0.2, "lam": 1e-3,
        "graph": "cooccurrence", "gate": "sigmoid",
    }  # fmt: skip
    changed = {"h": 768, "e": 5, "graph": "identity", "gate": "linear"}
    assert reference == {**paper, **changed}
    assert CLIF(9, Y, preset="reference", gate="sigmoid").hparams["gate"] == "sigmoid"


def naive_logits(model: CLIF, x: torch.Tensor) -> torch.Tensor:
    """The model from its text: a grouped convolution over all pairs at once, no shared helpers."""
    H, slope = model.E0, 0.1
    for gin in model.label_encoder:
        out = (1 + gin.eps) * H + model.A @ H
        for linear, norm in zip(gin.mlp.layers, gin.mlp.norms, strict=True):
            out = linear(out)
            use = (None, None) if model.training else (norm.running_mean, norm.running_var)
            out = F.batch_norm(out, *use, norm.weight, norm.bias, model.training, eps=1e-5)
            out = F.leaky_relu(out, slope)
        H = out + H if out.shape == H.shape else out
    gates = model.gate(H)
    if model.hparams["gate"] == "sigmoid":
        gates = torch.sigmoid(gates)
    f = x
    for linear in model.encoder.layers:
        f = F.leaky_relu(linear(f), slope)
    (shared,) = model.specific.layers
    u = F.leaky_relu(shared(f[:, None, :] * gates[None]), slope)
    q, h = model.classifier.weight.shape
    conv = nn.Conv1d(q, q, h, groups=q).to(x)
    conv.weight.data.copy_(model.classifier.weight[:, None])
    conv.bias.data.copy_(model.classifier.bias)
    return conv(u)[..., 0]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("preset", ["paper", "reference"])
@pytest.mark.parametrize("size", SIZES)
def test_agrees_with_the_direct_formulation(size, preset, training):
    d, q = size
    X, Y = problem(16, d, q)
    model = plain("clif", d, Y, preset=preset)
    model(X)  # running statistics that are not 0 and 1
    with torch.no_grad():
        model.label_encoder[0].eps.fill_(0.3)
        model.train(training)
        scale = model(X).logits.abs().max().clamp(min=1)
        assert (model(X).logits - naive_logits(model, X)).abs().max() < 1e-5 * scale
        model.double()
        X = X.double()
        torch.testing.assert_close(model(X).logits, naive_logits(model, X), atol=1e-10, rtol=0)


def test_gradients_agree_with_the_direct_formulation(monkeypatch):
    X, Y = problem(16, 30, 20)
    model = plain("clif", 30, Y).double()
    X, Y = X.double(), Y.double()
    monkeypatch.setattr(gated, "CHUNK_ELEMENTS", 3 * 16 * 512)
    monkeypatch.setattr(gated, "KEPT_ELEMENTS", 0)

    def gradients(logits):
        model.zero_grad()
        F.binary_cross_entropy_with_logits(logits, Y).backward()
        shared = [p for name, p in model.named_parameters() if not name.startswith("classifier")]
        return [p.grad.clone() for p in shared]

    for ours, naive in zip(
        gradients(model(X).logits), gradients(naive_logits(model, X)), strict=True
    ):
        torch.testing.assert_close(ours, naive, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("training", [True, False])
def test_chunked_equals_unchunked(monkeypatch, dtype, training):
    X, Y = problem(8, 11, 23)
    model = CLIF(11, Y).to(dtype).train(training)  # dropout on: chunks must not move its draws
    X, Y = X.to(dtype), Y.to(dtype)

    def run():
        torch.manual_seed(4)
        model.zero_grad()
        terms = model.loss(model(X), Y)
        terms.total.backward()
        return [terms.per_pair, *(p.grad.clone() for p in model.parameters())]

    whole = run()
    tolerance = 1e-5 if dtype is torch.float32 else 1e-10
    for labels, kept in ((1, 0), (5, 0), (5, 2**30), (22, 0), (23, 0)):
        monkeypatch.setattr(gated, "CHUNK_ELEMENTS", labels * 8 * 512)
        monkeypatch.setattr(gated, "KEPT_ELEMENTS", kept)
        for ours, expected in zip(run(), whole, strict=True):
            torch.testing.assert_close(ours, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("training", [True, False])
def test_labels_permuted_with_their_constants_permute_the_logits(training):
    X, Y = problem(10, 9, 7)
    model = plain("clif", 9, Y).double()
    train(model, X.double(), Y.double(), steps=3)
    order = torch.randperm(7)
    other = copy.deepcopy(model)
    other.E0 = model.E0[order]
    other.A = model.A[order][:, order]
    other.classifier.weight.data = model.classifier.weight.data[order]
    other.classifier.bias.data = model.classifier.bias.data[order]
    model.train(training), other.train(training)
    ours, permuted = model(X.double()).logits, other(X.double()).logits
    torch.testing.assert_close(permuted, ours[:, order], atol=1e-10, rtol=0)


def test_graph_worked_by_hand():
    Y = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [0, 0, 1, 0]])
    ab, ac, bc = (2 / 3 + 1) / 2, (1 / 3 + 1 / 2) / 2, (1 / 2 + 1 / 2) / 2
    expected = torch.tensor(
        [[0, ab, ac, 0], [ab, 0, bc, 0], [ac, bc, 0, 0], [0, 0, 0, 0]], dtype=torch.float32
    )
    torch.testing.assert_close(label_graph(Y), expected)
    torch.testing.assert_close(label_graph(sp.csr_array(Y.numpy())), expected)
    assert torch.equal(CLIF(9, Y).A, label_graph(Y))
    assert torch.equal(CLIF(9, Y, graph="identity").A, torch.eye(4))


def test_graph_counts_beyond_a_byte():
    Y = torch.ones(1000, 2)
    Y[:500, 1] = 0
    assert label_graph(Y)[0, 1] == 0.75


def test_graph_loss_is_the_mean_over_all_pairs():
    A, E = torch.rand(6, 6), torch.randn(6, 4)
    expected = 0.0
    for i in range(6):
        for j in range(6):
            cosine = E[i] @ E[j] / ((E[i].norm() + 1e-6) * (E[j].norm() + 1e-6))
            expected += float((A[i, j] + (i == j) - cosine) ** 2) / 36
    assert graph_loss(A, E).item() == pytest.approx(expected, rel=1e-5)


def test_graph_loss_only_in_training_and_free_of_weights():
    X, Y = problem()
    model = CLIF(9, Y, lam=0.5)
    output = model(X)
    assert output.aux["label_embeddings"].shape == (5, 128)
    terms = model.loss(output, Y)
    expected = 0.5 * graph_loss(model.A, output.aux["label_embeddings"])
    torch.testing.assert_close(terms.parts["graph"], expected.detach())
    weighted = model.loss(output, Y, torch.full((len(Y),), 7.0))
    assert torch.equal(weighted.parts["graph"], terms.parts["graph"])
    model.eval()
    assert "graph" not in model.loss(model(X), Y).parts
    zero = torch.zeros(5, 4, requires_grad=True)
    graph_loss(model.A, zero).backward()
    assert torch.isfinite(zero.grad).all()


def test_constants_are_buffers():
    model = CLIF(9, problem()[1])
    assert {"E0", "A"} <= set(model.state_dict())
    assert not {"E0", "A"} & {name for name, _ in model.named_parameters()}


def test_initialisation():
    model = CLIF(300, problem(50, 300, 30)[1])
    assert model.gate.bias.abs().max() == 0
    for tensor, bound in [
        (model.gate.weight, math.sqrt(3 / 128)),
        (model.encoder.layers[0].weight, math.sqrt(6 / (1.01 * 300))),
        (model.specific.layers[0].weight, math.sqrt(6 / (1.01 * 512))),
        (model.classifier.weight, 1 / math.sqrt(512)),
    ]:
        assert 0.98 * bound < tensor.abs().max() <= bound
    bias = model.encoder.layers[0].bias
    assert 0 <= bias.min() < 0.01 < 0.09 < bias.max() <= 0.1
    assert all(gin.eps.item() == 0 for gin in model.label_encoder)
    assert abs(model.E0.std() - 1) < 0.1


def test_a_single_encoder_layer_has_no_dropout():
    X, Y = problem()
    model = CLIF(9, Y, L=1, p=0.5)
    assert torch.equal(model.encoder(X), model.encoder(X))
    deep = CLIF(9, Y, L=2, p=0.5)
    assert not torch.equal(deep.encoder(X), deep.encoder(X))


def test_labels_are_encoded_once_in_a_pass_of_unchanging_weights(monkeypatch):
    X, Y = problem()
    model = CLIF(9, Y)
    calls, original = [], model.encode_labels
    monkeypatch.setattr(model, "encode_labels", lambda: calls.append(1) or original())
    with model.unchanging():
        pieces = [model.predict_proba(x) for x in X.split(3)]
    assert len(calls) == 1
    again = [model.predict_proba(x) for x in X.split(3)]
    assert len(calls) == 1 + len(pieces) > 2
    assert torch.equal(torch.cat(pieces), torch.cat(again))
    with model.unchanging():
        model(X).logits.sum().backward()  # with gradients the label encoder belongs to the graph
    assert model.gate.weight.grad is not None


@pytest.mark.parametrize("change", ["load", "train", "step", "inplace", "data", "fused", "to"])
def test_predictions_are_of_the_weights_as_they_are(change):
    """Also where autograd does not see them written to: ``p.data``, a fused optimiser's step."""
    X, Y = problem()
    model, other = CLIF(9, Y).eval(), CLIF(9, Y).eval()
    with model.unchanging():
        model.predict_proba(X)
    stale = model.predict_proba(X)
    if change == "load":
        model.load_state_dict(other.state_dict())
    elif change == "train":
        model.train()
        train(model, X, Y, steps=1)
    elif change == "step":  # an optimiser step in evaluation mode
        train(model, X, Y, steps=1)
    elif change == "inplace":
        with torch.no_grad():
            model.gate.bias.add_(1.0)
    elif change == "data":
        model.gate.bias.data.add_(1.0)
    elif change == "fused":
        model.loss(model(X), Y).total.backward()
        torch.optim.AdamW(model.parameters(), 0.01, fused=True).step()
    else:
        X = X.double()
        model.double()
    now = model.predict_proba(X)
    fresh = CLIF(9, Y).to(X.dtype)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(now, fresh.predict_proba(X))
    if change != "to":
        assert not torch.equal(now, stale)


def test_prediction_in_the_middle_of_training_sees_the_newest_weights():
    X, Y = problem()
    model = CLIF(9, Y)
    for _ in range(2):
        train(model, X, Y, steps=1)
        seen = model.predict_proba(X)
        assert torch.equal(seen, torch.sigmoid(copy.deepcopy(model).eval()(X).logits))
