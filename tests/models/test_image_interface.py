"""What every image model promises, on a small backbone and on stored feature maps."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from imagery import IMAGE_NAMES, head, images, small
from problems import count, train
from promises import (
    DEGENERATE,
    bfloat16_is_close,
    degenerate,
    follows_the_global_generator,
    runs_in_bfloat16,
    state_goes_round,
    stays_finite,
)

from d2ace.models import MODELS, make_model
from d2ace.models.finding import hparams_of

every_model = pytest.mark.parametrize("name", IMAGE_NAMES)
every_preset = pytest.mark.parametrize("preset", ["paper", "reference"])


@every_model
@every_preset
@pytest.mark.parametrize("training", [True, False])
def test_probabilities_are_those_of_the_evaluation_forward(name, preset, training):
    X, Y = images()
    model = small(name, Y, preset=preset)
    train(model, X, Y, steps=2)
    model.eval()
    expected = torch.sigmoid(model(X).logits)
    model.train(training)
    before = [module.training for module in model.modules()]
    first, second = model.predict_proba(X), model.predict_proba(X)
    assert first.shape == Y.shape
    assert not first.requires_grad
    assert torch.equal(first, second)
    torch.testing.assert_close(first, expected, atol=1e-6, rtol=1e-5)
    assert [module.training for module in model.modules()] == before


@every_model
@pytest.mark.parametrize("training", [True, False])
def test_loss_matrix_and_parts(name, training):
    X, Y = images()
    model = small(name, Y).train(training)
    output = model(X)
    terms = model.loss(output, Y)
    pairs = F.binary_cross_entropy_with_logits(output.logits, Y, reduction="none")
    torch.testing.assert_close(terms.per_pair, pairs.detach())
    assert not terms.per_pair.requires_grad
    assert not any(part.requires_grad for part in terms.parts.values())
    torch.testing.assert_close(terms.total.detach(), sum(terms.parts.values()))
    torch.testing.assert_close(terms.parts["classification"], terms.per_pair.mean())
    if not training:
        assert set(terms.parts) == {"classification"}


@every_model
def test_weights_scale_instances_and_leave_the_loss_matrix(name):
    X, Y = images()
    model = small(name, Y)
    output, weight = model(X), torch.rand(len(X))
    found = []
    for w in (None, torch.ones(len(X)), weight, weight[:, None], weight[:, None].expand_as(Y)):
        torch.manual_seed(1)
        found.append(model.loss(output, Y, w))
    bare, ones, by_instance, column, by_pair = found
    torch.testing.assert_close(ones.total, bare.total)
    assert torch.equal(by_instance.per_pair, bare.per_pair)
    assert torch.equal(by_instance.total, column.total)
    expected = (bare.per_pair.mean(1) * weight).mean()
    torch.testing.assert_close(by_instance.parts["classification"], expected)
    torch.testing.assert_close(by_pair.parts["classification"], expected)


@every_model
@every_preset
def test_state_goes_round_exactly(name, preset):
    X, Y = images()
    model = small(name, Y, preset=preset)
    model.on_epoch_start(6, 4, [(X, Y)])
    train(model, X, Y, steps=2)
    model.on_step(0)
    state_goes_round(model, small(name, 1 - Y, preset=preset), X, Y)


@every_model
def test_copies_and_pickles(name):
    X, Y = images()
    model = small(name, Y, freeze="early").eval()
    expected = model.predict_proba(X)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        assert torch.equal(twin.predict_proba(X), expected)
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.mul_(1.5)
        assert not torch.equal(twin.predict_proba(X), expected)
        assert torch.equal(model.predict_proba(X), expected)
        twin.train()
        assert not twin.backbone[0].training  # still frozen


@every_model
@every_preset
def test_state_is_contiguous(name, preset):
    """Or NCCL refuses to send it to other processes, and safetensors to write it."""
    X, Y = images()
    model = small(name, Y, preset=preset)
    model.on_epoch_start(6, 4, [(X, Y)])
    assert [key for key, value in model.state_dict().items() if not value.is_contiguous()] == []


@every_model
def test_an_image_alone_is_trained_on_even_if_its_map_is_one_pixel(name):
    X, Y = images(n=1, size=8)
    model = small(name, Y)
    before = [module.training for module in model.modules()]
    output = model(X)
    model.loss(output, Y).total.backward()
    assert torch.isfinite(output.logits).all()
    assert list(model.backbone.parameters())[-1].grad is not None  # HST freezes the first stages
    assert [module.training for module in model.modules()] == before


@every_model
def test_weights_may_be_bfloat16(name):
    X, Y = images()
    runs_in_bfloat16(small(name, Y), X, Y)


@every_model
def test_construction_follows_the_global_generator_and_does_not_reseed_it(name):
    _, Y = images()
    follows_the_global_generator(lambda: small(name, Y))


@every_model
@pytest.mark.parametrize("freeze", ["none", "early", "backbone"])
def test_parameter_groups_hold_each_trainable_parameter_once(name, freeze):
    _, Y = images()
    model = small(name, Y, freeze=freeze)
    groups = model.param_groups(0.5)
    listed = [parameter for group in groups for parameter in group["params"]]
    assert len({id(parameter) for parameter in listed}) == len(listed)
    assert sum(parameter.numel() for parameter in listed) == count(model)
    assert {group["lr"] for group in groups} == {0.5}


@every_model
def test_frozen_parts_change_neither_weights_nor_statistics(name):
    X, Y = images()
    model = small(name, Y, freeze="early")
    before = copy.deepcopy(model.backbone.state_dict())
    model.train()
    train(model, X, Y, steps=2, lr=0.01)
    after = model.backbone.state_dict()
    for key, value in before.items():
        assert torch.equal(value, after[key]) == (not key.startswith("2.")), key
    whole = small(name, Y, freeze="backbone")
    whole.train()
    assert not any(module.training for module in whole.backbone.modules())
    assert whole.training
    assert torch.equal(whole.feature_map(X), whole.feature_map(X))


@every_model
def test_stored_feature_maps_give_what_the_whole_network_gives(name):
    X, Y = images()
    whole = small(name, Y, freeze="backbone").eval()
    maps = whole.feature_map(X)
    alone = head(name, Y, channels=whole.channels).eval()
    state = {k: v for k, v in whole.state_dict().items() if not k.startswith("backbone.")}
    alone.load_state_dict(state)
    assert torch.equal(alone.predict_proba(maps), whole.predict_proba(X))
    half = alone.predict_proba(maps.half())
    torch.testing.assert_close(half, whole.predict_proba(X), atol=1e-3, rtol=0)


@every_model
@every_preset
@pytest.mark.parametrize("kind", [*DEGENERATE, "one label", "two labels"])
def test_losses_and_gradients_stay_finite(name, preset, kind):
    X, Y = images(8, {"one label": 1, "two labels": 2}.get(kind, 5))
    X, Y = degenerate(X, Y, kind)
    model = small(name, Y, preset=preset)
    train(model, X, Y, steps=2)
    model.on_epoch_start(6, 1, [(X, Y)])
    train(model, X, Y, steps=2)
    stays_finite(model, X, Y)


@every_model
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 5), (2, 2)])
def test_feature_maps_of_any_size_in_batches_of_any_size(name, shape):
    _, Y = images()
    model = head(name, Y)
    for rows in (12, 2, 1):
        train(model, torch.rand(rows, 8, *shape), Y[:rows], steps=1)
        assert model.predict_proba(torch.rand(rows, 8, *shape)).isfinite().all()


@every_model
def test_bfloat16_autocast_is_close_to_float32(name):
    X, Y = images()
    model = small(name, Y, **({"p": 0.0} if name == "image_mlp" else {}))
    model.on_epoch_start(6, 1, [(X, Y)])
    bfloat16_is_close(model, X, Y)


@every_model
def test_double_precision_throughout(name):
    X, Y = images()
    model = small(name, Y).double()
    model.on_epoch_start(6, 1, [(X, Y)])
    train(model, X.double(), Y.double(), steps=2)
    assert model(X).logits.dtype is torch.float64
    assert model.loss(model(X), Y).total.dtype is torch.float64


@every_model
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, lambda Y: Y.bool()])
def test_labels_in_every_container_give_the_same_model(name, kind):
    X, Y = images()
    torch.manual_seed(1)
    expected = small(name, Y).predict_proba(X)
    torch.manual_seed(1)
    assert torch.equal(small(name, kind(Y)).predict_proba(X), expected)


@every_model
def test_wrong_shapes_are_refused_in_one_sentence(name):
    X, Y = images()
    model = small(name, Y)
    with pytest.raises(ValueError, match=r"images \[batch, 3, height, width\], got shape \[3, 24"):
        model(X[0])
    with pytest.raises(ValueError, match=r"got shape \[12, 2, 24, 24\]"):
        model.predict_proba(X[:, :2])
    assert model.training
    with pytest.raises(ValueError, match=r"reads images of 3 channels, but n_features is 103"):
        make_model(name, 103, Y)


@every_model
def test_hyperparameters_are_listed_and_plain(name):
    _, Y = images()
    has_vectors = "label_vectors" in MODELS[name].presets["paper"]
    vectors = {"label_vectors": np.ones((5, 7))} if has_vectors else {}
    model = small(name, Y, preset="reference", **vectors)
    assert set(hparams_of(MODELS[name])) == {"preset", *model.hparams}
    assert all(isinstance(value, str | int | float) for value in model.hparams.values())
    assert model.hparams["backbone"] == "TinyNet"
    assert "backbone='TinyNet'" in repr(model)


@every_model
def test_a_saved_model_is_made_again_without_its_files(name):
    X, Y = images()
    hparams = {"weights": "gone.pth", "freeze": "early"}
    has_vectors = "label_vectors" in MODELS[name].presets["paper"]
    vectors = {"label_vectors": torch.randn(5, 20)} if has_vectors else {}
    model = small(name, Y, freeze="early", **vectors)
    state = model.state_dict()
    again = MODELS[name].restoring(hparams, state)
    assert again["weights"] == "none"
    other = small(name, torch.zeros(1, 5), **again)
    other.load_state_dict(state)
    assert torch.equal(other.predict_proba(X), model.predict_proba(X))


def test_tables_have_nothing_to_restore():
    assert MODELS["clif"].restoring({"h": 3}, {}) == {"h": 3}
    assert MODELS["clif"].clip_norm is None
    assert MODELS["ml_gcn"].clip_norm == 10.0
    assert MODELS["hst"].clip_norm is None
