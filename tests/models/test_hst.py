"""HST: forward pass and losses against naive forms, its schedule, its prototypes."""

from __future__ import annotations

import io
import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from imagery import head, images, small
from problems import train

from d2ace.models import layers
from d2ace.models.hst_losses import cooccurrence_loss, instance_loss, prototype_loss, unit
from d2ace.models.hst_prototypes import CLUSTERINGS, Reservoir, kmeans, mean_centres

QUICK = CLUSTERINGS["quick"]


def naive_forward(model, X):
    """Section by section as the method is described, without any rewriting."""
    maps = model.norm(model.reduce(F.avg_pool2d(model.backbone(X), 2, 2)))
    B, h, height, width = maps.shape
    positions = maps.reshape(B, h, height * width).permute(0, 2, 1)
    attend = model.attention
    a, c = attend.of_image(positions), attend.of_label(model.Z)
    joint = torch.tanh(a[:, :, None, :] * c[None, None])  # [B, S, q, h/2]
    att = torch.softmax(attend.score(attend.mix(joint)), 1)  # [B, S, q, 1]
    semantic = (att * positions[:, :, None, :]).sum(1)
    V, gates = semantic, model.graph
    for _ in range(3):
        m = torch.cat(
            [
                torch.stack([model.G @ nodes for nodes in V]),
                torch.stack([model.G.T @ nodes for nodes in V]),
            ],
            2,
        )
        z = torch.sigmoid(gates.update.message(m) + gates.update.node(V))
        r = torch.sigmoid(gates.reset.message(m) + gates.reset.node(V))
        new = torch.tanh(gates.candidate.message(m) + gates.candidate.node(r * V))
        V = (1 - z) * V + z * new
    read = torch.tanh(model.read_out(torch.cat([V, semantic], 2)))
    logits = (read * model.classifier.weight).sum(2) + model.classifier.bias
    pair = model.pair_head
    reduced, cooc = pair.reduce(semantic), []
    for place, (i, j) in enumerate(itertools.combinations(range(len(model.Z)), 2)):
        o = pair.mix(torch.relu(pair.join(torch.cat([reduced[:, i], reduced[:, j]], 1))))
        cooc.append(o @ pair.classifier.weight[place] + pair.classifier.bias[place])
    return logits, semantic, torch.stack(cooc, 1)


@pytest.mark.parametrize("chunk", [None, 64])
@pytest.mark.parametrize("h", [16, 128])
def test_the_forward_pass_equals_the_naive_one(h, chunk, monkeypatch):
    if chunk:  # several chunks, each computed again in the backward pass
        monkeypatch.setattr(layers, "CHUNK_ELEMENTS", chunk)
        monkeypatch.setattr(layers, "KEPT_ELEMENTS", chunk)
    X, Y = torch.randn(4, 8, 6, 4), images(20, 6)[1]
    model = head("hst", Y, h=h)
    output = model(X)
    logits, semantic, cooc = naive_forward(model, X)
    found = (output.logits, output.aux["semantic"], output.aux["cooc"])
    for ours, naive in zip(found, (logits, semantic, cooc), strict=True):
        torch.testing.assert_close(ours, naive, atol=1e-6, rtol=0)
    model.eval()
    assert not model(X).aux
    torch.testing.assert_close(model(X).logits, naive_forward(model, X)[0], atol=1e-6, rtol=0)


def test_gradients_equal_the_naive_ones(monkeypatch):
    monkeypatch.setattr(layers, "CHUNK_ELEMENTS", 64)
    monkeypatch.setattr(layers, "KEPT_ELEMENTS", 64)
    X, Y = torch.randn(4, 8, 6, 4, dtype=torch.float64), images(20, 6)[1]
    model = head("hst", Y).double()
    output = model(X)
    found = (output.logits, output.aux["semantic"], output.aux["cooc"])
    names, weights = zip(*model.named_parameters(), strict=True)
    ours, naive = (
        torch.autograd.grad(sum(part.square().sum() for part in parts), weights)
        for parts in (found, naive_forward(model, X))
    )
    for name, one, other in zip(names, ours, naive, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-8, msg=name)


def test_the_graph_of_labels():
    Y = torch.tensor([[1.0, 1, 0], [1, 0, 0], [1, 1, 0], [1, 0, 0]])
    expected = torch.tensor([[1, 0.5, 0], [1, 1, 0], [0, 0, 1]])
    torch.testing.assert_close(head("hst", Y).G, expected)


# Losses -------------------------------------------------------------------------------------


def test_loss_of_label_pairs_by_hand():
    cooc = torch.tensor([[0.3, -2.0, 4.0, -60.0, 60.0]], dtype=torch.float64, requires_grad=True)
    together = torch.tensor([[1.0, 0, 0, 1, 0]], dtype=torch.float64)
    expected = []
    for logit, positive in zip(cooc[0].tolist(), together[0].tolist(), strict=True):
        s = 1 / (1 + math.exp(-logit))
        pi = s if positive else min(1 - s + 0.05, 1)
        expected.append(-math.log(max(pi, 1e-8)) * (1 - pi) ** (1 if positive else 2))
    loss = cooccurrence_loss(cooc, together)
    assert loss.item() == pytest.approx(sum(expected) / 5, abs=1e-12)
    loss.sum().backward()
    assert cooc.grad.isfinite().all()
    assert torch.autograd.gradcheck(
        cooccurrence_loss, (cooc[:, :3].detach().requires_grad_(), together[:, :3])
    )


def naive_instance_loss(semantic, y):
    """Only where nothing is drawn: 2k reaches the size of both sets, or k = 0."""
    both, mixed, neither = [], [], []
    for a, b in itertools.combinations(range(len(y)), 2):
        for j in range(y.shape[1]):
            cosine = F.cosine_similarity(semantic[a, j], semantic[b, j], 0, 1e-9)
            if y[a, j] and y[b, j]:
                both.append(1 - cosine)
            else:
                (mixed if y[a, j] or y[b, j] else neither).append(1 + cosine)
    k = len(both)
    entries = list(both)
    for members in (mixed, neither):
        entries += members
        if k and members:
            assert len(members) <= 2 * k
            entries += sorted(members, key=float, reverse=True)[:k]
    return sum(entries) / len(entries)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.8, 1.0])
def test_loss_of_image_pairs_equals_the_naive_one(share):
    semantic = torch.randn(5, 3, 7)
    y = torch.zeros(5, 3)
    y[: round(5 * share)] = 1
    if share == 0.5:  # no pair of positives, but mixed ones
        y = torch.eye(5)[:, :3]
    expected = naive_instance_loss(semantic, y)
    torch.testing.assert_close(instance_loss(semantic, y), expected, atol=1e-6, rtol=0)


def test_loss_of_image_pairs_draws_as_many_as_it_should():
    torch.manual_seed(2)
    semantic, y = torch.randn(12, 4, 6), torch.zeros(12, 4)
    y[:2, 0] = 1  # k = 1: 1 + (2 + 1) mixed + (2 + 1) negative entries
    losses = []
    for _ in range(400):
        losses.append(float(instance_loss(semantic, y)))
    directions = unit(semantic)
    cosines = torch.einsum("aqd,bqd->qab", directions, directions)
    first, second = torch.triu_indices(12, 12, 1)
    numbers = (y[first] + y[second]).T
    values = 1 + cosines[:, first, second]
    mixed, neither = values[numbers == 1], values[numbers == 0]
    top = (2 - values[numbers == 2]).sum() + mixed.max() + neither.max()
    expected = (top + 2 * mixed.mean() + 2 * neither.mean()) / 7
    assert sum(losses) / 400 == pytest.approx(float(expected), abs=0.02)
    assert len(set(losses)) > 300
    assert min(losses) >= float(top + 2 * mixed.min() + 2 * neither.min()) / 7 - 1e-6


def test_loss_of_image_pairs_where_there_are_none():
    semantic = torch.randn(1, 3, 7, requires_grad=True)
    loss = instance_loss(semantic, torch.ones(1, 3))
    loss.backward()
    assert loss == 0
    assert torch.equal(semantic.grad, torch.zeros_like(semantic))
    zero = torch.zeros(4, 3, 7, requires_grad=True)
    loss = instance_loss(zero, torch.ones(4, 3))
    loss.backward()
    assert loss == 1
    assert torch.equal(zero.grad, torch.zeros_like(zero))


@pytest.mark.parametrize("sign", [1, -1])
def test_loss_of_prototypes_equals_the_naive_one(sign):
    semantic, centres, y = torch.randn(5, 3, 7), torch.randn(3, 4, 7), images(5, 3)[1]
    cosines = F.cosine_similarity(semantic[:, :, None], centres[None], 3).mean(2)
    expected = (1 - sign * (2 * y - 1) * cosines).mean(1)
    mean = unit(centres).mean(1)
    found = prototype_loss(semantic, mean, y, sign)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_weights_reach_what_belongs_to_an_image():
    X, Y = images()
    model = small("hst", Y)
    model.on_epoch_start(6, 1, [(X, Y)])
    output = model(X)
    weight = torch.zeros(len(X))
    terms = model.loss(output, Y, weight)
    assert terms.parts["classification"] == terms.parts["cooccurrence"] == 0
    assert terms.parts["prototypes"] == 0
    assert terms.parts["instances"] > 0


# The schedule -------------------------------------------------------------------------------


def parts(model, X, Y):
    torch.manual_seed(0)
    return model.loss(model(X), Y).parts


def test_terms_come_in_one_after_the_other():
    X, Y = images()
    model = small(
        "hst", Y, w_co=2.0, w_inst=0.5, w_proto=0.25, bce_weight_late=4.0, freeze="backbone"
    )
    full = parts(model, X, Y)
    assert set(full) == {"classification", "cooccurrence", "instances"}
    for done in range(4):  # i/N in the first epoch
        if not done:
            model.on_epoch_start(1, 4)
        found = parts(model, X, Y)
        torch.testing.assert_close(found["cooccurrence"], full["cooccurrence"] * done / 4)
        torch.testing.assert_close(found["instances"], full["instances"] * done / 4)
        torch.testing.assert_close(found["classification"], full["classification"])
        model.on_step(done)
    for epoch in range(2, 6):
        model.on_epoch_start(epoch, 4)
        assert parts(model, X, Y).keys() == full.keys()
        torch.testing.assert_close(parts(model, X, Y)["cooccurrence"], full["cooccurrence"])
    model.on_epoch_start(6, 4, [(X, Y)])
    late = parts(model, X, Y)
    torch.testing.assert_close(late["classification"], 4 * full["classification"])
    output = model(X)
    expected = prototype_loss(output.aux["semantic"], model.prototypes, Y).mean()
    torch.testing.assert_close(late["prototypes"], 0.25 * expected.detach())
    model.eval()
    evaluated = model.loss(model(X), Y)
    assert set(evaluated.parts) == {"classification"}
    torch.testing.assert_close(evaluated.total.detach(), evaluated.per_pair.mean())


class Counted:
    """A loader that knows how often it was read."""

    def __init__(self, *batches) -> None:
        self.batches, self.passes = batches, 0

    def __iter__(self):
        self.passes += 1
        return iter(self.batches)


@pytest.mark.parametrize(("again", "expected"), [(False, [6]), (True, [6, 11, 16])])
def test_when_prototypes_are_made(again, expected):
    X, Y = images()
    model = small("hst", Y, recompute_prototypes=again)
    loader = Counted((torch.arange(12), X, Y))
    made = []
    for epoch in range(1, 21):
        before = loader.passes
        model.on_epoch_start(epoch, 3, loader)
        made += [epoch] * (loader.passes - before)
    assert made == expected


def test_prototypes_are_made_without_touching_the_model():
    X, Y = images()
    Y[:, 2] = 0
    model = small("hst", Y)
    modes = [module.training for module in model.modules()]
    before = {k: v.clone() for k, v in model.state_dict().items()}
    torch.manual_seed(4)
    model.make_prototypes([(X[:5], Y[:5]), (X[5:], Y[5:])])
    after = torch.rand(3)
    assert [module.training for module in model.modules()] == modes
    changed = {k for k, v in model.state_dict().items() if not torch.equal(v, before[k])}
    assert changed == {"prototypes"}
    torch.manual_seed(4)
    assert torch.equal(torch.rand(3), after)
    assert model.prototypes[2].abs().max() == 0
    first = model.prototypes.clone()
    model.make_prototypes([(X, Y)])
    torch.testing.assert_close(model.prototypes, first, atol=1e-5, rtol=0)


def test_a_run_resumed_in_the_middle_of_an_epoch_goes_on_as_it_would_have():
    X, Y = images()
    loader = Counted((X, Y))
    for epoch in (1, 6):
        model = small("hst", Y)
        model.on_epoch_start(epoch, 4, loader)
        train(model, X, Y, steps=1)
        model.on_step(0)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        passes = loader.passes
        other = small("hst", Y)
        other.load_state_dict(torch.load(file, weights_only=True))
        other.on_epoch_start(epoch, 4, loader)
        assert loader.passes == passes
        expected, found = parts(model, X, Y), parts(other, X, Y)
        assert expected.keys() == found.keys()
        assert all(torch.equal(expected[key], found[key]) for key in expected)


def test_a_model_trained_a_second_time_makes_its_prototypes_again():
    X, Y = images()
    model, loader = small("hst", Y), Counted((X, Y))
    for _ in range(2):
        for epoch in range(1, 8):
            model.on_epoch_start(epoch, 1, loader)
    assert loader.passes == 2


def test_a_first_epoch_trained_again_brings_its_losses_in_again():
    X, Y = images()
    model = small("hst", Y, w_co=2.0, freeze="backbone")
    full = parts(model, X, Y)["cooccurrence"]
    for _ in range(2):
        model.on_epoch_start(1, 2)
        for share in (0.0, 0.5, 1.0, 1.0):  # more steps than were said bring no more than all
            torch.testing.assert_close(parts(model, X, Y)["cooccurrence"], full * share)
            model.on_step(0)


def test_prototypes_need_images():
    _, Y = images()
    model = small("hst", Y)
    with pytest.raises(ValueError, match="HST makes its prototypes before epoch 6 and needs"):
        model.on_epoch_start(6, 4)
    small("hst", Y, w_proto=0.0).on_epoch_start(6, 4)


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ({"h": 7}, "h must be even, got 7"),
        ({"K": 0}, "K must be at least 1, got 0"),
        ({"w_co": -1}, "w_co must be at least 0, got -1"),
        ({"proto_sign": 0}, "proto_sign must be 1 or -1, got 0"),
        ({"w_cross": -1}, "w_cross must be at least 0, got -1"),
        ({"pool": "up"}, "pool must be one of 'ceil', 'floor', got 'up'"),
        ({"clustering": "best"}, "clustering must be one of 'quick', 'thorough', got 'best'"),
        ({"theta_intra": 2}, r"theta_intra must be in \[0, 1\], got 2"),
    ],
)
def test_hyperparameters_out_of_range(hparams, message):
    with pytest.raises(ValueError, match=message):
        small("hst", images()[1], **hparams)


# Prototypes ---------------------------------------------------------------------------------


def test_clusters_are_found():
    centres = torch.tensor([[10.0, 0], [0, 10], [-10, -10], [20, 20]])
    rows = (centres[:, None] + 0.1 * torch.randn(4, 30, 2)).flatten(0, 1)
    found = kmeans(rows, 4, torch.Generator().manual_seed(0), QUICK)
    nearest = torch.cdist(centres, found).min(1).values
    assert nearest.max() < 0.2
    again = kmeans(rows, 4, torch.Generator().manual_seed(0), QUICK)
    assert torch.equal(found, again)


def test_clusters_of_few_or_equal_rows():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(3, 2)
    assert torch.equal(kmeans(rows, 5, generator, QUICK), rows)
    equal = torch.ones(9, 2)
    torch.testing.assert_close(kmeans(equal, 4, generator, QUICK), torch.ones(4, 2))


def test_the_reservoir_is_fair_and_bounded():
    kept = torch.zeros(60)
    for seed in range(200):
        reservoir = Reservoir(2, seed, limit=10)
        values = torch.arange(60.0)[:, None, None].expand(-1, 2, 1)
        y = torch.ones(60, 2)
        y[:, 1] = 0
        for start in range(0, 60, 7):
            reservoir.add(values[start : start + 7], y[start : start + 7])
        rows = reservoir.rows(0)
        assert rows.shape == (10, 1)
        assert len(reservoir.rows(1)) == 0
        kept[rows[:, 0].long()] += 1
    assert kept.min() > 15  # 33 expected for each
    assert kept.max() < 55


def test_mean_centres_average_directions():
    reservoir = Reservoir(2, 0)
    reservoir.add(
        torch.tensor([[[3.0, 0], [1, 1]], [[0, 5.0], [1, 1]]]), torch.tensor([[1, 0], [1, 0]])
    )
    expected = torch.tensor([[0.5, 0.5], [0, 0]])
    torch.testing.assert_close(mean_centres(reservoir, 2, 2, 50, QUICK), expected)
