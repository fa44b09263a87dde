"""Where a model's authors' public code does something else: `preset="reference"` follows it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from imagery import head, images, small
from problems import problem
from sklearn.cluster import KMeans

from d2ace.models import make_model
from d2ace.models.hst_prototypes import CLUSTERINGS, kmeans

both_presets = pytest.mark.parametrize("preset", ["paper", "reference"])


# HST: evidence against learnt thresholds ----------------------------------------------------


def softplus(value: float) -> float:
    return math.log1p(math.exp(value))


def slow_margin_loss(evidence: list[list[float]], theta: float, y: torch.Tensor) -> float:
    losses = []
    for row, labels in zip(evidence, y.tolist(), strict=True):
        for value, label in zip(row, labels, strict=True):
            logit = min(max(value - theta, 0.0), 1.0)
            losses.append(softplus(-logit) if label else softplus(logit))
    return sum(losses) / len(losses)


def slow_pair_evidence(cooc: torch.Tensor, y: torch.Tensor) -> list[list[float]]:
    """For each label the mean of its pairs with the labels the image has, as a full matrix."""
    q = y.shape[1]
    table = []
    for logits, labels in zip(torch.sigmoid(cooc).tolist(), y.tolist(), strict=True):
        chance = [[1.0] * q for _ in range(q)]
        values = iter(logits)
        for i in range(q):
            for j in range(i + 1, q):
                chance[i][j] = chance[j][i] = next(values)
        present = [i for i in range(q) if labels[i]]
        table.append([sum(chance[j][i] for i in present) / max(1, len(present)) for j in range(q)])
    return table


def late_reference(**hparams):
    """An HST of the authors' settings in its sixth epoch, with its images and labels."""
    X, Y = images(10, 5, share=0.4)
    model = small("hst", Y, preset="reference", freeze="backbone", **hparams).double()
    X, Y = X.double(), Y.double()
    model.on_epoch_start(6, 1, [(X, Y)])
    return model, X, Y


@pytest.mark.parametrize(("intra", "cross"), [(1.0, 1.0), (0.45, 0.2), (0.0, 0.0)])
def test_hst_holds_evidence_against_its_thresholds(intra, cross):
    model, X, Y = late_reference(theta_intra=intra, theta_cross=cross)
    output = model(X)
    parts = model.loss(output, Y).parts
    expected = 0.1 * slow_margin_loss(
        slow_pair_evidence(output.aux["cooc"], Y), model.theta_intra.item(), Y
    )
    assert parts["intra"].item() == pytest.approx(expected, abs=1e-12)
    semantic = output.aux["semantic"].detach()
    directions = semantic / semantic.norm(dim=2, keepdim=True)
    cosines = (directions * model.prototypes).sum(2)
    expected = 0.1 * slow_margin_loss(cosines.tolist(), model.theta_cross.item(), Y)
    assert parts["cross"].item() == pytest.approx(expected, abs=1e-7)
    if intra == 1.0:  # nothing exceeds it
        assert parts["intra"].item() == pytest.approx(0.1 * math.log(2))


def test_hst_learns_a_threshold_from_images_with_a_single_label():
    model, X, Y = late_reference()
    Y[:3] = torch.eye(5, dtype=Y.dtype)[:3]
    single = (Y.sum(1) == 1).sum().item()
    model.loss(model(X), Y).total.backward()
    # There the label's own evidence is exactly 1, and cross-entropy at logit 0 has slope 1/2.
    assert model.theta_intra.grad.item() == pytest.approx(0.1 * 0.5 * single / Y.numel())
    assert model.theta_cross.grad.item() == 0


def test_weight_decay_moves_the_thresholds_of_hst_from_the_sixth_epoch_on():
    X, Y = images(10, 5, share=0.4)
    model = small("hst", Y, preset="reference")
    optimizer = torch.optim.Adam(model.param_groups(lr=1e-3), weight_decay=5e-4)
    for epoch, expected in ((1, 1.0), (5, 1.0), (6, 1 - 2e-3), (7, 1 - 4e-3)):
        model.on_epoch_start(epoch, 2, [(X, Y)])
        for step in range(2):
            loss = model.loss(model(X), Y)
            optimizer.zero_grad()
            loss.total.backward()
            optimizer.step()
            model.on_step(step)
            assert (loss.parts["cross"] > 0) == (epoch > 5)
        # Adam's steps have the size of the learning rate, however small the decay.
        assert model.theta_cross.item() == pytest.approx(expected, abs=1e-6)
        assert (model.theta_intra.item() < 1) == (epoch > 5)


def test_without_these_losses_hst_has_no_thresholds_to_learn():
    X, Y = images(10, 5)
    losses = set()
    for theta in (0.0, 1.0):
        torch.manual_seed(3)
        model = small("hst", Y, theta_intra=theta, theta_cross=theta)
        assert not any("theta" in name for name in model.state_dict())
        model.on_epoch_start(6, 1, [(X, Y)])
        losses.add(model.loss(model(X), Y).total.item())
    assert len(losses) == 1


def test_evidence_of_prototypes_needs_prototypes():
    model = small("hst", images()[1], w_proto=0.0, w_cross=0.1)
    with pytest.raises(ValueError, match="or set w_proto and w_cross to 0"):
        model.on_epoch_start(6, 1)


# HST: odd maps and prototypes ---------------------------------------------------------------


@both_presets
def test_hst_pools_odd_maps(preset):
    _, Y = images()
    model = head("hst", Y, preset=preset)
    maps = torch.rand(4, 8, 7, 5)
    whole, cut = model.predict_proba(maps), model.predict_proba(maps[:, :, :6, :4])
    assert torch.equal(whole, cut) == (preset == "reference")
    assert model.predict_proba(maps[:, :, :1]).isfinite().all()  # where theirs fails
    even = head("hst", Y, preset=preset, pool="ceil")
    even.load_state_dict(model.state_dict())
    assert torch.equal(even.predict_proba(maps[:, :, :6, :4]), cut)


@both_presets
def test_hst_clusters_all_vectors_of_a_label_in_the_original(preset):
    rows = 5_300
    model = head("hst", torch.ones(rows, 1), channels=2, h=2, K=1, preset=preset)
    maps = torch.randn(rows, 2, 2, 2)
    model.make_prototypes([(maps, torch.ones(rows, 1))])
    with torch.no_grad():
        mean = model.eval().semantic(maps).mean((0, 1))
    near = torch.allclose(model.prototypes[0], mean / mean.norm(), atol=1e-5)
    assert near == (preset == "reference")


def test_thorough_clusters_are_as_good_as_those_of_scikit_learn():
    centres = 4 * torch.randn(10, 2)
    rows = (centres[:, None] + 0.3 * torch.randn(10, 20, 2)).flatten(0, 1)

    def spread(found):
        return torch.cdist(rows, found).min(1).values.square().sum().item()

    expected = KMeans(10, n_init=10, random_state=0).fit(rows.numpy()).inertia_
    generator = torch.Generator().manual_seed(0)
    thorough = kmeans(rows, 10, generator, CLUSTERINGS["thorough"])
    assert spread(thorough) < 1.01 * expected
    singles = [spread(kmeans(rows, 10, generator, CLUSTERINGS["quick"])) for _ in range(10)]
    assert sum(singles) / 10 > 1.2 * expected  # one start is often stuck


# DELA and PACA: log-variances ---------------------------------------------------------------


@both_presets
@pytest.mark.parametrize("extreme", [-20.0, 20.0])
@pytest.mark.parametrize("name", ["dela", "paca"])
def test_log_variances_beyond_fifteen(name, preset, extreme):
    X, Y = problem(16, 9, 5)
    model = make_model(name, 9, Y, preset=preset, p=0.0, p_dec=0.0).double()
    torch.nn.init.constant_(model.logvar.bias, extreme)
    X, Y = X.double(), Y.double()
    output = model(X)
    raw = model.logvar(model.encoder(X))
    clamped = raw.clamp(-15, 15)
    assert not torch.equal(raw, clamped)
    expected = raw if preset == "reference" else clamped
    torch.testing.assert_close(output.aux["logvar"], expected)
    model.loss(output, Y).total.backward()
    moved = model.logvar.bias.grad.abs().max() > 0
    assert moved == (preset == "reference")  # the divergence pulls back what is not clamped


@both_presets
def test_the_label_side_of_paca_beyond_fifteen(preset):
    X, Y = problem(16, 9, 5)
    model = make_model("paca", 9, Y, preset=preset, p=0.0, p_dec=0.0).double().eval()
    torch.nn.init.constant_(model.label_logvar.bias, -20.0)
    X, Y = X.double(), Y.double()
    output = model(X)
    hidden = model.label_encoder(Y)
    mu, logvar = model.label_mu(hidden), model.label_logvar(hidden)
    if preset == "paper":
        logvar = logvar.clamp(-15, 15)
    divergence = 0.0
    for b in range(16):
        for k in range(mu.shape[1]):
            own, other = output.aux["logvar"][b, k].item(), logvar[b, k].item()
            distance = (mu[b, k] - output.aux["mu"][b, k]).item() ** 2
            divergence += 0.5 * (
                other - own - 1 + math.exp(own - other) + distance / (math.exp(other) + 1e-8)
            )
    found = model.loss(output, Y).parts["divergence"].item()
    assert found == pytest.approx(10 * divergence / 16, rel=1e-9)


# ML-GCN: pooling ----------------------------------------------------------------------------


@pytest.mark.parametrize("pixels", [448, 512, 576])
def test_ml_gcn_pools_a_window_of_fourteen_in_the_original(pixels):
    side = pixels // 32
    _, Y = images()
    maps = torch.rand(3, 8, side, side)
    maps[:, :, -1, -1] = 2.0  # an object in the corner, which the window of larger maps misses
    probabilities = {}
    for preset, pooled in (
        ("paper", maps.amax((2, 3))),
        ("reference", F.max_pool2d(maps, 14, 14).flatten(1)),
    ):
        torch.manual_seed(1)
        model = head("ml_gcn", Y, preset=preset)
        probabilities[preset] = model.predict_proba(maps)
        expected = torch.sigmoid(pooled @ model.label_classifiers().T)
        torch.testing.assert_close(probabilities[preset], expected)
    assert torch.equal(*probabilities.values()) == (pixels == 448)


@pytest.mark.parametrize("shape", [(7, 7), (13, 16), (28, 28), (14, 30)])
def test_ml_gcn_pools_globally_where_the_original_fails(shape):
    _, Y = images()
    maps = torch.rand(3, 8, *shape)
    model = head("ml_gcn", Y, preset="reference")
    expected = torch.sigmoid(maps.amax((2, 3)) @ model.label_classifiers().T)
    torch.testing.assert_close(model.predict_proba(maps), expected)


def test_a_pooling_that_does_not_exist():
    with pytest.raises(ValueError, match="pool must be one of 'global', '14x14', got 'mean'"):
        head("ml_gcn", images()[1], pool="mean")


# Labels without positives -------------------------------------------------------------------


def original_hst_graph(Y):
    counts = Y.T @ Y
    with np.errstate(invalid="ignore"):
        return counts / counts.diagonal()[:, None]


def original_ml_gcn_graph(Y, threshold=0.4):
    together = Y.T @ Y
    positives = together.diagonal().copy()
    np.fill_diagonal(together, 0)
    with np.errstate(invalid="ignore"):
        chance = together / positives[:, None]
    chance[chance < threshold] = 0
    chance[chance >= threshold] = 1
    graph = chance * 0.25 / (chance.sum(0, keepdims=True) + 1e-6) + np.eye(len(chance))
    scale = np.diag(graph.sum(1) ** -0.5)
    return (graph @ scale).T @ scale


@both_presets
@pytest.mark.parametrize(
    ("name", "original", "buffer"),
    [("hst", original_hst_graph, "G"), ("ml_gcn", original_ml_gcn_graph, "M")],
)
def test_a_label_without_positives_is_no_nan(name, original, buffer, preset):
    Y = images(40, 6, share=0.5)[1]
    Y[:, 2] = 0
    seen = [0, 1, 3, 4, 5]
    assert np.isnan(original(Y.numpy().astype(float))).any()
    model = head(name, Y, preset=preset)
    graph = getattr(model, buffer)
    torch.testing.assert_close(graph[2], torch.eye(6)[2])
    # The others are linked as if it were not there, as in the original.
    expected = torch.from_numpy(original(Y.numpy().astype(float)[:, seen])).float()
    torch.testing.assert_close(graph[seen][:, seen], expected)
    assert model.predict_proba(torch.rand(4, 8, 6, 6)).isfinite().all()
