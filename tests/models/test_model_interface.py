"""What every model promises, whatever is inside."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from problems import NAMES, count, plain, problem, train
from promises import follows_the_global_generator, state_goes_round

from d2ace.models import MODELS, LossTerms, ModelOutput, make_model

every_model = pytest.mark.parametrize("name", NAMES)
every_preset = pytest.mark.parametrize("preset", ["paper", "reference"])


@every_model
@every_preset
@pytest.mark.parametrize("training", [True, False])
def test_probabilities_are_those_of_the_evaluation_forward(name, preset, training):
    X, Y = problem()
    model = make_model(name, X.shape[1], Y, preset=preset)
    train(model, X, Y, steps=2)
    model.eval()
    expected = torch.sigmoid(model(X).logits)
    model.train(training)
    first, second = model.predict_proba(X), model.predict_proba(X)
    assert first.shape == Y.shape
    assert not first.requires_grad
    assert torch.equal(first, second)
    torch.testing.assert_close(first, expected, atol=1e-6, rtol=1e-5)
    assert {module.training for module in model.modules()} == {training}


@every_model
@every_preset
def test_state_is_contiguous(name, preset):
    """Or NCCL refuses to send it to other processes, and safetensors to write it."""
    X, Y = problem()
    state = make_model(name, X.shape[1], Y, preset=preset).state_dict()
    assert [key for key, value in state.items() if not value.is_contiguous()] == []


@every_model
def test_prediction_restores_the_mode_of_each_module(name):
    X, Y = problem()
    model = make_model(name, X.shape[1], Y)
    next(model.children()).eval()
    before = [module.training for module in model.modules()]
    model.predict_proba(X)
    assert [module.training for module in model.modules()] == before
    with pytest.raises(ValueError, match="was made for instances"):
        model.predict_proba(X[:, :-1])
    assert [module.training for module in model.modules()] == before


@every_model
@pytest.mark.parametrize("training", [True, False])
def test_loss_matrix_and_parts(name, training):
    X, Y = problem()
    model = make_model(name, X.shape[1], Y).train(training)
    output = model(X)
    assert isinstance(output, ModelOutput)
    terms = model.loss(output, Y)
    assert isinstance(terms, LossTerms)
    assert terms.per_pair.shape == Y.shape
    assert not terms.per_pair.requires_grad
    pairs = F.binary_cross_entropy_with_logits(output.logits, Y, reduction="none")
    torch.testing.assert_close(terms.per_pair, pairs.detach())
    assert terms.total.shape == ()
    assert terms.total.requires_grad
    assert not any(part.requires_grad for part in terms.parts.values())
    torch.testing.assert_close(terms.total.detach(), sum(terms.parts.values()))


@pytest.mark.parametrize(
    ("name", "over_labels"), [("mlp", "mean"), ("clif", "mean"), ("dela", "sum")]
)
def test_classification_part_is_the_loss_matrix_reduced(name, over_labels):
    X, Y = problem()
    model = make_model(name, X.shape[1], Y)
    terms = model.loss(model(X), Y)
    expected = getattr(terms.per_pair, over_labels)(1).mean()
    torch.testing.assert_close(terms.parts["classification"], expected)


@every_model
def test_weights_scale_instances_and_leave_the_loss_matrix(name):
    X, Y = problem()
    model = make_model(name, X.shape[1], Y)
    weight = torch.rand(len(X))
    output = model(X)
    torch.manual_seed(1)
    bare = model.loss(output, Y)
    torch.manual_seed(1)
    ones = model.loss(output, Y, torch.ones(len(X)))
    torch.manual_seed(1)
    weighted = model.loss(output, Y, weight)
    torch.manual_seed(1)
    column = model.loss(output, Y, weight[:, None])
    torch.testing.assert_close(ones.total, bare.total)
    assert torch.equal(weighted.per_pair, bare.per_pair)
    assert torch.equal(weighted.total, column.total)
    assert not torch.equal(weighted.total, bare.total)


@pytest.mark.parametrize("name", ["mlp", "clif", "dela"])
def test_weights_of_instances_and_of_pairs_multiply_the_cross_entropy(name):
    X, Y = problem()
    model = make_model(name, X.shape[1], Y)
    output = model(X)
    weight = torch.rand(len(X))
    by_instance = model.loss(output, Y, weight)
    by_pair = model.loss(output, Y, weight[:, None].expand_as(Y))
    reduced = by_instance.per_pair.sum(1) if name == "dela" else by_instance.per_pair.mean(1)
    expected = (reduced * weight).mean()
    torch.testing.assert_close(by_instance.parts["classification"], expected)
    torch.testing.assert_close(by_pair.parts["classification"], expected)


@every_model
def test_evaluation_loss_has_only_terms_without_chance(name):
    X, Y = problem()
    model = make_model(name, X.shape[1], Y).eval()
    with torch.no_grad():
        first, second = model.loss(model(X), Y), model.loss(model(X), Y)
    assert torch.equal(first.total, second.total)
    assert first.parts["classification"].isfinite()
    if name in ("mlp", "clif", "dela"):
        assert set(first.parts) == {"classification"}


@every_model
@every_preset
def test_state_goes_round_exactly(name, preset):
    X, Y = problem()
    model = make_model(name, X.shape[1], Y, preset=preset)
    train(model, X, Y, steps=2)
    state_goes_round(model, make_model(name, X.shape[1], 1 - Y, preset=preset), X, Y)


@every_model
def test_copies_and_pickles(name):
    X, Y = problem()
    model = make_model(name, X.shape[1], Y).eval()
    expected = model.predict_proba(X)
    assert torch.equal(copy.deepcopy(model).predict_proba(X), expected)
    assert torch.equal(pickle.loads(pickle.dumps(model)).predict_proba(X), expected)  # noqa: S301


@every_model
def test_construction_follows_the_global_generator_and_does_not_reseed_it(name):
    X, Y = problem()
    follows_the_global_generator(lambda: make_model(name, X.shape[1], Y))


@every_model
def test_parameter_groups_hold_each_trainable_parameter_once(name):
    X, Y = problem()
    model = make_model(name, X.shape[1], Y)
    frozen = next(model.parameters()).requires_grad_(False)
    groups = model.param_groups(0.5)
    listed = [parameter for group in groups for parameter in group["params"]]
    assert len({id(parameter) for parameter in listed}) == len(listed)
    assert all(parameter is not frozen for parameter in listed)
    assert sum(parameter.numel() for parameter in listed) == count(model)
    assert {group["lr"] for group in groups} == {0.5}


@every_model
def test_hooks_of_the_training_loop_do_nothing(name):
    X, Y = problem()
    model = make_model(name, X.shape[1], Y)
    before = copy.deepcopy(model.state_dict())
    model.on_epoch_start(1, 10, [])
    model.on_step(0)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name == "paca" else []) for name in NAMES],
)
def test_overfits_64_random_instances(name):
    X, Y = problem(64, 103, 14)
    model = plain(name, 103, Y)
    optimiser = torch.optim.Adam(model.param_groups(1e-3))
    for _ in range(250):
        terms = model.loss(model(X), Y)
        if terms.per_pair.mean() < 0.05:
            return
        optimiser.zero_grad()
        terms.total.backward()
        optimiser.step()
    pytest.fail(f"mean cross-entropy is {terms.per_pair.mean():.3f} after 250 steps")


@every_model
def test_no_rows_have_no_probabilities(name):
    X, Y = problem()
    assert make_model(name, X.shape[1], Y).predict_proba(X[:0]).shape == (0, Y.shape[1])


@every_model
def test_wrong_shapes_are_refused_in_one_sentence(name):
    X, Y = problem()
    model = make_model(name, X.shape[1], Y)
    with pytest.raises(ValueError, match=r"was made for instances \[batch, 9\], got shape \[9\]"):
        model(X[0])
    output = model(X)
    with pytest.raises(ValueError, match=r"y must have the shape of the logits \[12, 5\]"):
        model.loss(output, Y[:, :-1])
    with pytest.raises(ValueError, match=r"weight must have shape \[12\] .* got \[3\]"):
        model.loss(output, Y, torch.ones(3))


@every_model
def test_labels_of_any_type(name):
    X, Y = problem()
    model = make_model(name, X.shape[1], Y).eval()
    output = model(X)
    expected = model.loss(output, Y).total
    assert torch.equal(model.loss(output, Y.bool()).total, expected)
    assert torch.equal(model.loss(output, Y.long()).total, expected)


def test_presets_are_complete():
    for name, model in MODELS.items():
        assert set(model.presets) == {"paper", "reference"}, name
        assert model.presets["paper"].keys() == model.presets["reference"].keys(), name
