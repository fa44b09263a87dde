"""What the cards of the methods, and the guide to writing one, say in passing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import d2ace

N, Q, EPOCHS = 40, 4, 6
QUANTISED = ["active", "recent", "hard_imb", "ml_unc", "d2ace", "online_batch", "ada_boundary"]
NEIGHBOURS = ["hard_imb", "d2ace"]


def problem(n: int = N, q: int = Q) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(n, q, generator=generator) < 0.3).float()
    return labels, torch.randn(n, 5, generator=generator)


def make(name: str, labels: Tensor, features: Tensor | None = None, **options: Any) -> Any:
    given = {"batch_size": 8, "epochs": EPOCHS, "warmup": 2}
    return d2ace.make_selector(name, labels, features, **(given | options))


def trained(selector: d2ace.Selector, epochs: int = EPOCHS) -> list[list[int]]:
    """The batches of a training whose predictions depend on nothing but row and epoch."""
    batches = []
    for _ in range(epochs):
        generator = torch.Generator().manual_seed(selector.epoch)
        predicted = torch.rand(selector.n, selector.q, generator=generator)
        for batch in selector:
            batches.append(list(batch))
            selector.loss_weight(torch.tensor(batch))  # asked for, so that nobody is warned
            selector.observe(torch.tensor(batch), probs=predicted[batch])
        selector.validated(0.5)
    return batches


@pytest.mark.parametrize("name", ["active", "ml_unc", "ada_boundary"])
def test_labels_do_not_enter_these_scores(name: str) -> None:
    labels, _ = problem()
    assert trained(make(name, labels)) == trained(make(name, 1 - labels))


@pytest.mark.parametrize("name", [name for name in d2ace.SELECTORS if name not in NEIGHBOURS])
def test_features_do_not_matter_to_methods_that_need_none(name: str) -> None:
    labels, features = problem()
    assert trained(make(name, labels, features)) == trained(make(name, labels))


@pytest.mark.parametrize("option", ["warmup", "replacement", "importance_weighting"])
@pytest.mark.parametrize("name", ["random", "balance"])
def test_options_that_have_no_effect_on_plain_shuffles(name: str, option: str) -> None:
    labels, _ = problem()
    value = 0 if option == "warmup" else True
    assert trained(make(name, labels)) == trained(make(name, labels, **{option: value}))


@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in QUANTISED), ("balance", {"mode": "sample"})]
)
def test_pressure_falls_to_one_in_the_last_epoch(name: str, options: dict[str, Any]) -> None:
    labels, features = problem()
    selector = make(name, labels, features, **options)
    ratios = []
    for epoch in range(1, EPOCHS + 1):
        trained(selector, 1)
        p = selector.drawn_probabilities
        if epoch > selector.warmup:
            ratios.append(float(p.max() / p.min()))
    assert 1 < ratios[0] <= 100.0001
    assert ratios[-1] == pytest.approx(1)
    for _ in range(2):  # and stays there
        trained(selector, 1)
        assert torch.allclose(selector.drawn_probabilities, torch.tensor(1 / N).double())


def test_hard_imb_without_neighbours_or_rare_labels_follows_the_loss_alone() -> None:
    labels, features = problem()
    equal = torch.zeros(N, Q)
    equal[torch.arange(N), torch.arange(N) % Q] = 1  # every label as often as the others
    for given in ((labels, None), (equal, features)):
        selector = make("hard_imb", *given, warmup=0)
        probs = torch.rand(N, Q, generator=torch.Generator().manual_seed(2))
        list(selector)
        selector.observe(torch.arange(N), probs=probs)
        loss = torch.nn.functional.binary_cross_entropy(probs, given[0], reduction="none").sum(1)
        (weight,) = selector.weights.values()
        torch.testing.assert_close(weight.float(), loss)


@pytest.mark.parametrize(
    ("name", "options", "pair", "row"),
    [
        ("random", {}, 0, 0),
        ("active", {}, 8, 8),
        ("recent", {"window": 8}, 1, 8),
        ("recent", {"window": 15}, 2, 8),
        ("recent", {"window": 16}, 8, 8),
        ("dihcl", {}, 4, 24),
        ("balance", {}, 0, 0),
        ("hard_imb", {}, 0, 16),
        ("ml_unc", {}, 20, 8),
        ("ml_unc", {"window": 3}, 12, 8),
        ("d2ace", {}, 24, 8),
        ("d2ace", {"window": 3}, 16, 8),
        ("online_batch", {}, 0, 8),
        ("ada_boundary", {}, 0, 8),
        ("info_batch", {}, 0, 8),
        ("trim", {}, 5, 16),
        ("trim", {"rows": "d2ace"}, 29, 24),
    ],
)
def test_state_has_the_bytes_that_its_card_says(
    name: str, options: dict[str, Any], pair: int, row: int
) -> None:
    def size(n: int, q: int) -> int:
        labels, _ = problem(n, q)
        selector = make(name, labels, warmup=0, **options)
        memory = selector.state_dict()["memory"]
        return sum(value.numel() * value.element_size() for value in memory.values())

    assert size(50, 30) - size(50, 10) == pair * 50 * 20
    assert size(90, 10) - size(50, 10) == (pair * 10 + row) * 40


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        *((name, "pressure", 37.0) for name in QUANTISED),
        ("d2ace", "mix_epochs", (3, 9)),
        ("hard_imb", "warmup", 4),
        ("balance", "mode", "mask"),
    ],
)
def test_an_option_that_is_given_wins_over_the_preset(name: str, option: str, value: Any) -> None:
    labels, features = problem()
    common: dict[str, Any] = {"preset": "reference", "batch_size": 8, "epochs": 16}
    if option != "warmup":
        common["warmup"] = 2
    by_preset, given = (
        d2ace.make_selector(name, labels, features, **(common | options))
        for options in ({}, {option: value})
    )
    batches = [trained(selector, 16) for selector in (by_preset, given)]
    weights = [selector.loss_weight(torch.arange(8)) for selector in (by_preset, given)]
    assert getattr(given, option) == value
    assert batches[0] != batches[1] or (weights[0] is None) != (weights[1] is None)


class Given(d2ace.Selector):
    """Returns the distribution that the test says, and notes when it is asked."""

    name = "given"
    value: Any = None

    def __init__(self, labels: Any, features: Any = None, **common: Any) -> None:
        super().__init__(labels, features, **common)
        self.asked: list[int] = []

    def instance_weights(self) -> dict[str, Tensor]:
        return {"none": torch.zeros(self.n)}

    def distribution(self, epoch: int) -> Any:
        self.asked.append(epoch)
        return self.value


UNIFORM = torch.full((N,), 1 / N, dtype=torch.float64)


def test_a_distribution_is_asked_for_once_per_selective_epoch() -> None:
    selector = Given(problem()[0], batch_size=8, epochs=EPOCHS, warmup=2)
    selector.value = UNIFORM
    trained(selector)
    assert selector.asked == [3, 4, 5, 6]


@pytest.mark.parametrize(
    "value",
    [UNIFORM * 2, UNIFORM * 1.001, UNIFORM * float("nan"), -UNIFORM, UNIFORM[1:], UNIFORM[None]],
)
def test_an_invalid_distribution_is_refused(value: Tensor) -> None:
    selector = Given(problem()[0], batch_size=8, warmup=0)
    selector.value = value
    with pytest.raises(ValueError, match=r"Given\.distribution must return 40 positive"):
        next(iter(selector))


@pytest.mark.parametrize("value", [None, UNIFORM.tolist(), UNIFORM.numpy()])
def test_a_distribution_that_is_no_tensor_is_refused_in_words(value: Any) -> None:
    selector = Given(problem()[0], batch_size=8, warmup=0)
    selector.value = value
    with pytest.raises(TypeError, match=r"Given\.distribution must return a tensor .*as_tensor"):
        next(iter(selector))
