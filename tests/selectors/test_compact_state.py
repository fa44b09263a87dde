"""state="compact": less memory, and U, H and P within the distance that is promised."""

from __future__ import annotations

import math
import warnings

import numpy as np
import oracle
import pytest
import scipy.sparse as sp
import torch
import worked
from hypothesis import given
from hypothesis import strategies as st

import d2ace
from d2ace import testing
from d2ace.selectors import compact
from d2ace.selectors.probability import normalise

METHODS = ["d2ace", "ml_unc"]


@st.composite
def stories(draw):
    """Labels, options and visits; probabilities near 0 and 1 and on the boundary too."""
    n, q = draw(st.integers(2, 12)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    y = (rng.random((n, q)) < 0.4).astype(np.int64)
    options = {
        "window": draw(st.integers(2, 7)),
        "trade_off": draw(st.sampled_from([0.0, 0.5, 1.0])),
        "preset": draw(st.sampled_from(["paper", "reference"])),
        "warmup": 0,
    }
    spread = draw(st.sampled_from([0.01, 1.0, 6.0, 30.0]))
    visits = []
    for _ in range(draw(st.integers(1, 12))):
        rows = rng.permutation(n)[: rng.integers(1, n + 1)].tolist()
        probs = 1.0 / (1.0 + np.exp(-spread * rng.normal(size=(len(rows), q))))
        exact = rng.random(probs.shape) < 0.2
        probs[exact] = rng.choice([0.0, 0.5, 1.0], size=int(exact.sum()))
        visits.append((rows, probs))
    return y, options, visits


def observed(name, y, options, visits, **more):
    selector = d2ace.make_selector(name, y, **options, **more)
    for rows, probs in visits:
        selector.observe(rows, probs=torch.from_numpy(probs))
    selector.flush()
    return selector


def distance_of_log(one, other):
    return float((one.log() - other.log()).abs().max())


@given(stories(), st.sampled_from([0.1, 0.7, 1.0]), st.sampled_from([None, "prob"]))
def test_metrics_are_as_near_to_the_oracle_as_promised(story, smoothing, loss):
    y, options, visits = story
    options = {**options, "flip_smoothing": smoothing}
    if loss is not None:
        options["hardness_loss"] = loss
    fast = observed("d2ace", y, options, visits, dtype=torch.float64, state="compact")
    slow = oracle.D2ACEOracle(y, None, **options)
    for rows, probs in visits:
        slow.observe(rows, probs)
    found = slow.metrics()
    u = np.abs(fast.metric("uncertainty").numpy() - found["uncertainty"]).max()
    assert u <= compact.uncertainty_bound(options["trade_off"])
    h = np.abs(fast.metric("hardness").numpy() - found["hardness"]).max()
    assert h <= compact.hardness_bound(smoothing)


@given(stories(), st.sampled_from([1.0, 8.0, 100.0]))
def test_probabilities_move_by_the_factor_promised(story, pressure):
    y, options, visits = story
    options = {**options, "preset": "paper", "pressure": pressure}
    full = observed("d2ace", y, options, visits)
    small = observed("d2ace", y, options, visits, state="compact")
    shift = max(
        float((normalise(w) - normalise(small.weights[name])).abs().max())
        for name, w in full.weights.items()
    )
    bound = 2 * math.log(full.selection_pressure(full.next_epoch)) * (shift + 1 / full.n)
    assert distance_of_log(full.probabilities, small.probabilities) <= bound + 1e-9


@pytest.mark.parametrize("name", ["uncertainty", "hardness"])
def test_the_worked_example(name):
    full, small = worked.visited("d2ace"), worked.visited("d2ace", state="compact")
    bound = {
        "uncertainty": compact.uncertainty_bound(0.5),
        "hardness": compact.hardness_bound(0.7),
    }[name]
    torch.testing.assert_close(
        worked.metric(full, name), worked.metric(small, name), rtol=0, atol=bound
    )
    # -ln 0.1 = 2.302585 is kept as the logit -ln 9 = -2.197225 in steps of 17/32767: 4235 of them
    assert round(-math.log(9) / compact.STEP) == -4235
    kept = math.log1p(math.exp(-4235 * compact.STEP))
    assert abs(kept - 0.105361) < compact.STEP


def test_weights_made_by_blocks_are_those_of_the_whole_matrix():
    n, q = 700, 1000  # two blocks, the second one shorter
    generator = torch.Generator().manual_seed(0)
    y = torch.rand(n, q, generator=generator) < 0.01
    s = d2ace.D2ACE(y, warmup=0, batch_size=n, state="compact")
    for _ in range(3):
        s.observe(torch.arange(n), logits=3.0 * torch.randn(n, q, generator=generator))
    ones = y.numpy().astype(float)  # and Z, as there are no neighbours
    for name, found in s.weights.items():
        a = s.metric(name).numpy().astype(float)
        v = np.exp((a.mean(axis=0) + a.std(axis=0)) / 2)
        m = ones * a
        norm = np.sqrt((m**2).sum(axis=0))
        c = m.T @ m / np.maximum(np.outer(norm, norm), 1e-300)
        expected = a @ v + (m * (ones @ c)).sum(axis=1)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_stated_distances_with_default_options():
    assert compact.uncertainty_bound(0.5) <= 0.0022
    assert compact.hardness_bound(0.7) <= 0.0009


@pytest.mark.parametrize("name", ["d2ace", pytest.param("ml_unc", marks=pytest.mark.slow)])
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
def test_promises_of_every_selector_hold(check, name):
    """Resuming in mid-epoch, invalid predictions, replacement, a full pass, devices."""
    check(d2ace.SELECTORS[name], **testing.SETTINGS[name], state="compact")


@pytest.mark.parametrize("name", METHODS)
def test_memory_and_checkpoint_take_at_most_8_bytes_a_pair(name):
    n, q = 300, 200
    y = (torch.rand(n, q, generator=torch.Generator().manual_seed(0)) < 0.1).int()
    sizes = {}
    for state in ("full", "compact"):
        saved = d2ace.make_selector(name, y, state=state).state_dict()
        sizes[state] = sum(v.numel() * v.element_size() for v in saved["memory"].values())
    per_row = 8 * n  # visits
    assert sizes["compact"] <= 8 * n * q + per_row
    assert sizes["full"] <= 24 * n * q + per_row


@pytest.mark.parametrize("probability", [0.0, 1e-6, 0.3, 0.5, 0.5000001, 0.9999, 1.0 - 6e-8, 1.0])
def test_a_pair_passed_over_keeps_its_decision_and_has_no_difference(probability):
    y = torch.tensor([[1, 0], [0, 1]])
    s = d2ace.D2ACE(y, warmup=0, state="compact", on_invalid="skip")
    probs = torch.full((2, 2), probability)
    for _ in range(6):
        s.observe([0, 1], probs=probs)
    s.flush()
    before = {name: s.metric(name).clone() for name in ("uncertainty", "hardness")}
    for _ in range(4):
        s.observe([0, 1], probs=torch.full((2, 2), math.nan))
    s.flush()
    for name, value in before.items():
        torch.testing.assert_close(s.metric(name), value, rtol=0, atol=2 * compact.STEP)
    assert not bool(s.memory.changes.any())
    assert not bool(s.memory.averages.any())


@pytest.mark.parametrize("name", METHODS)
def test_states_of_the_other_kind_are_refused(name):
    y = torch.tensor([[1, 0], [0, 1]])
    full, small = d2ace.make_selector(name, y), d2ace.make_selector(name, y, state="compact")
    for one, other in ((full, small), (small, full)):
        with pytest.raises(ValueError, match=r"saved with state '.*', but this one has"):
            one.load_state_dict(other.state_dict())
    with pytest.raises(ValueError, match="state must be one of 'full', 'compact', got 'small'"):
        d2ace.make_selector(name, y, state="small")


@pytest.mark.parametrize("name", METHODS)
def test_it_is_automatic_from_a_size_on_and_said_once(name):
    n, q = (1 << 18) + 1, 1 << 10
    y = sp.csr_array((np.ones(1, np.uint8), ([0], [3])), shape=(n, q))
    with pytest.warns(UserWarning, match="in 16 and 8 bits") as said:
        assert d2ace.make_selector(name, y).state == "compact"
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert d2ace.make_selector(name, y, state="full").state == "full"
        assert d2ace.make_selector(name, y, state="compact").state == "compact"
        assert d2ace.make_selector(name, y[:-1]).state == "full"
        assert d2ace.make_selector("recent", y).state == "full"  # one byte a pair anyway


def test_insights_have_the_same_state_unless_given():
    y = torch.tensor([[1, 0], [0, 1]])
    assert d2ace.D2ACE(y, insights=True).insights.state == "full"
    assert d2ace.D2ACE(y, insights=True, state="compact").insights.state == "compact"
    assert d2ace.D2ACE(y, insights=d2ace.Insights(y), state="compact").insights.state == "full"


@pytest.mark.parametrize("name", METHODS)
def test_a_real_training_is_followed_closely(real, name):
    """Emotions with a small network: the same predictions are told to both."""
    data = real("emotions")
    x = torch.as_tensor(np.asarray(data.X), dtype=torch.float32)
    x = (x - x.mean(0)) / x.std(0).clamp_min(1e-6)
    y = torch.as_tensor(np.asarray(data.Y), dtype=torch.float32)
    options = {"epochs": 20, "warmup": 3}
    full = d2ace.make_selector(name, y, x, **options)
    small = d2ace.make_selector(name, y, x, **options, state="compact")
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(x.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, y.shape[1])
    )
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(1, 21):
        small.set_epoch(epoch)
        distance = float((full.probabilities - small.probabilities).abs().sum()) / 2
        assert distance <= 0.01, f"epoch {epoch}"
        for batch in full:
            logits = model(x[batch])
            full.loss(logits, y[batch], batch).backward()
            optimizer.step()
            optimizer.zero_grad()
            full.observe(batch, logits=logits)
            small.observe(batch, logits=logits)
