"""A loop that forgets to tell or to ask is warned, once it matters; no other loop is."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import d2ace

Y = (np.random.default_rng(0).random((20, 3)) < 0.4).astype(np.uint8)
LEARN = [name for name in d2ace.SELECTORS if name not in ("random", "balance")]


def make(name, **options):
    if name == "trim":
        options = {"start": 3, **options}  # without it, it waits for validation losses
    return d2ace.make_selector(name, Y, batch_size=8, epochs=6, warmup=2, **options)


def epoch(selector, *, tell=True, ask=True):
    for batch in selector:
        if ask:
            selector.loss_weight(batch)
        if tell:
            selector.observe(batch, probs=np.full((len(batch), 3), 0.5))


@pytest.mark.parametrize("name", LEARN)
def test_a_selector_that_learns_warns_without_predictions(name):
    selector = make(name)
    epoch(selector, tell=False)
    epoch(selector, tell=False)  # warm-up: nothing is lost yet
    with pytest.warns(UserWarning, match=r"a single prediction: call observe\(index"):
        epoch(selector, tell=False)


@pytest.mark.parametrize("name", ["random", "balance"])
def test_a_selector_that_does_not_learn_needs_no_predictions(name):
    selector = make(name)
    for _ in range(4):
        epoch(selector, tell=False)


@pytest.mark.parametrize(
    ("name", "options"), [("balance", {}), ("d2ace", {"importance_weighting": True}), ("trim", {})]
)
def test_a_selector_that_weighs_the_loss_warns_if_not_asked(name, options):
    selector = make(name, **options)
    for _ in range(3):  # the third is the first that would have weighed
        epoch(selector, ask=False)
    with pytest.warns(UserWarning, match=r"multiply the loss of every batch by loss_weight"):
        epoch(selector, ask=False)


@pytest.mark.parametrize("preset", ["paper", "reference"])
@pytest.mark.parametrize("name", list(d2ace.SELECTORS))
def test_a_whole_loop_is_not_warned(name, preset):
    selector = make(name, preset=preset)
    for _ in range(5):
        epoch(selector)


@pytest.mark.parametrize("name", [*LEARN, "balance"])
def test_nothing_but_warm_up_is_reported_once(name):
    selector = d2ace.make_selector(name, Y, batch_size=8, epochs=5, warmup=10)
    with pytest.warns(UserWarning, match=r"All 5 epochs are warm-up \(warmup=10\)") as told:
        epoch(selector)
    assert [one.filename for one in told] == [__file__]
    epoch(selector)


def test_a_selector_that_never_selects_may_have_any_warm_up():
    for selector in (
        d2ace.Random(Y, batch_size=8, epochs=5),
        d2ace.Balance(Y, batch_size=8, epochs=5, preset="reference"),
    ):
        epoch(selector)


def test_a_run_that_goes_on_is_believed():
    first, second = make("d2ace"), make("d2ace")
    for _ in range(3):
        epoch(first)
    second.load_state_dict(first.state_dict())
    epoch(second, tell=False, ask=False)
    with pytest.warns(UserWarning, match="Epoch 4 of D2ACE was drawn, but none of its batches"):
        epoch(second, tell=False, ask=False)


def test_the_warning_points_at_the_loop():
    selector = make("active")
    for _ in range(2):
        epoch(selector, tell=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        epoch(selector, tell=False)
    assert [one.filename for one in caught] == [__file__]


def test_trim_says_once_that_it_waits_for_a_validation_loss():
    selector = make("trim", start=None)
    epoch(selector)
    epoch(selector)
    with pytest.warns(UserWarning, match=r"Trim waits for a validation loss, .* start=\.$") as told:
        epoch(selector)
    assert [one.filename for one in told] == [__file__]
    epoch(selector)
    selector = make("trim", start=None)
    for _ in range(4):
        epoch(selector)
        selector.validated(0.5)
