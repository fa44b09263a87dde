"""ML-GCN: its graph against the published counts, its layers against the equations."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from imagery import TinyNet, head, images, small
from problems import train

from d2ace.models import MLGCN
from d2ace.models.image import make_label_vectors
from d2ace.models.ml_gcn import correlation, propagation


@pytest.fixture
def counts(data_root):
    def read(name: str) -> tuple[np.ndarray, np.ndarray]:
        file = data_root / "ml-gcn" / f"{name}_adj.json"
        if not file.is_file():
            pytest.skip(f"no published label counts: {file} is absent")
        found = json.loads(file.read_text())
        return np.array(found["adj"], float), np.array(found["nums"], float)

    return read


def test_the_graph_of_voc(counts):
    A = correlation(*counts("voc"), tau=0.4, p=0.2)
    edges = {(int(i), int(j)) for i, j in np.argwhere((A > 0) & ~np.eye(20, dtype=bool))}
    bicycle, bottle, chair, table, horse, motorbike, person = 1, 4, 8, 10, 12, 13, 14
    to_person = {(label, person) for label in (bicycle, bottle, table, horse, motorbike)}
    assert edges == to_person | {(table, chair)}
    linked = {label for edge in edges for label in edge}
    assert 20 - len(linked) == 13
    assert propagation(A).sum() == pytest.approx(20.037052, abs=5e-7)


def test_the_graph_of_coco(counts):
    A = correlation(*counts("coco"), tau=0.4, p=0.2)
    assert np.count_nonzero(A - np.eye(80)) == 111


def test_the_graph_by_hand():
    # Label 0 in rows 0-4, label 1 in rows 0-1 and 5, label 2 never: P(1|0) = 0.4, P(0|1) = 2/3.
    Y = torch.zeros(7, 3)
    Y[:5, 0], Y[:2, 1], Y[5, 1] = 1, 1, 1
    model = head("ml_gcn", Y)
    A = np.array([[1, 0.25 / (1 + 1e-6), 0], [0.25 / (1 + 1e-6), 1, 0], [0, 0, 1]])
    r = A.sum(1)
    expected = np.diag(r**-0.5) @ A.T @ np.diag(r**-0.5)
    np.testing.assert_allclose(model.M, expected, atol=1e-7)
    one_way = head("ml_gcn", Y, tau=0.5).M  # only 1 -> 0 is left: 0 collects from 1
    assert one_way[0, 1] > 0
    assert one_way[1, 0] == 0


def test_the_scale_of_the_graph_does_not_matter():
    _, Y = images(50, 8)
    counts = (Y.T @ Y).double().numpy()
    A = correlation(counts, counts.diagonal(), 0.3, 0.2)
    np.testing.assert_allclose(propagation(0.8 * A), propagation(A), rtol=1e-12)


def test_logits_follow_the_equations():
    X, Y = images()
    model = small("ml_gcn", Y).eval()
    phi = model.backbone(X).amax((2, 3))
    H = F.leaky_relu(model.M @ (model.Z @ model.W_1), 0.2)
    Q = model.M @ (H @ model.W_2)
    torch.testing.assert_close(model(X).logits, phi @ Q.T, atol=5e-6, rtol=0)
    assert model(X).aux == {}


def test_initialisation_and_constants():
    _, Y = images()
    model = MLGCN(3, Y, backbone=TinyNet(64))
    assert model.W_1.shape == (300, 1024)
    assert model.W_2.shape == (1024, 64)
    assert 0.98 / 32 < model.W_1.abs().max() <= 1 / 32
    assert 0.98 / 8 < model.W_2.abs().max() <= 1 / 8
    assert {"Z", "M"} <= {name for name, _ in model.named_buffers()}
    assert {name for name, _ in model.named_parameters() if "backbone" not in name} == {
        "W_1",
        "W_2",
    }


def test_the_learning_rate_of_the_backbone():
    _, Y = images()
    model = small("ml_gcn", Y, preset="reference")
    heads, backbone = model.param_groups(0.1)
    assert heads["lr"] == 0.1
    assert backbone["lr"] == pytest.approx(0.01)
    assert {id(p) for p in heads["params"]} == {id(model.W_1), id(model.W_2)}


@pytest.mark.parametrize("change", ["load", "step", "inplace", "data", "to"])
def test_predictions_are_of_the_weights_as_they_are(change):
    X, Y = images()
    model, other = small("ml_gcn", Y).eval(), small("ml_gcn", Y).eval()
    with model.unchanging():
        model.predict_proba(X)
    stale = model.predict_proba(X)
    if change == "load":
        model.load_state_dict(other.state_dict())
    elif change == "step":
        train(model, X, Y, steps=1)
    elif change == "inplace":
        with torch.no_grad():
            model.W_2.add_(1.0)
    elif change == "data":  # as weights are swapped for their moving average
        model.W_2.data.add_(1.0)
    else:
        X = X.double()
        model.double()
    fresh = small("ml_gcn", Y).to(X.dtype)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(model.predict_proba(X), fresh.predict_proba(X))
    if change != "to":
        assert not torch.equal(model.predict_proba(X), stale)


def test_classifiers_are_made_once_in_a_pass_of_unchanging_weights(monkeypatch):
    X, Y = images()
    model = small("ml_gcn", Y)
    calls, original = [], model.label_classifiers
    monkeypatch.setattr(model, "label_classifiers", lambda: calls.append(1) or original())
    with model.unchanging():
        for _ in range(3):
            model.predict_proba(X)
    assert len(calls) == 1


def test_label_vectors_without_a_source_are_the_same_in_every_run():
    first, source = make_label_vectors("random", 80)
    torch.manual_seed(9)
    assert torch.equal(make_label_vectors("random", 80)[0], first)
    assert source == "random"
    assert first.shape == (80, 300)
    assert first.std() == pytest.approx(0.38, abs=0.01)
    assert torch.equal(make_label_vectors("random", 20)[0], first[:20])


def test_label_vectors_of_another_width_and_wrong_ones():
    X, Y = images()
    model = small("ml_gcn", Y, label_vectors=np.eye(5))
    assert model.W_1.shape == (5, 32)
    assert model.hparams["label_vectors"] == "array [5, 5]"
    assert model.predict_proba(X).shape == Y.shape
    with pytest.raises(ValueError, match=r"'glove.csv', but a model takes 'random' or an array"):
        small("ml_gcn", Y, label_vectors="glove.csv")
    with pytest.raises(ValueError, match=r"has 4 rows, but there are 5 labels; give one row"):
        small("ml_gcn", Y, label_vectors=np.eye(4))
    with pytest.raises(ValueError, match="label_vectors holds NaN or infinite values"):
        small("ml_gcn", Y, label_vectors=np.full((5, 3), np.nan))
    with pytest.raises(ValueError, match=r"matrix of numbers \[labels, width\], got shape \[5\]"):
        small("ml_gcn", Y, label_vectors=np.ones(5))


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ({"tau": 0.0}, r"tau must be in \(0, 1\], got 0.0"),
        ({"p": 1.0}, r"p must be in \[0, 0.999\], got 1.0"),
        ({"h": 0}, "h must be at least 1, got 0"),
        ({"backbone_lr_factor": -1}, "backbone_lr_factor must be at least 0, got -1"),
    ],
)
def test_hyperparameters_out_of_range(hparams, message):
    with pytest.raises(ValueError, match=message):
        small("ml_gcn", images()[1], **hparams)
