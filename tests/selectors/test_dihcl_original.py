"""DIHCL as its authors' public code has it: hardness, episodes and subsets, in plain arithmetic."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from worked import VISITS, Y, equal

import d2ace
from d2ace._util.checksum import checksum

# So few rows, or so small a rate, that it does: each test that expects it looks for itself.
pytestmark = pytest.mark.filterwarnings("ignore:A visit in the warm-up")

STARTS = [11, 13, 15, 16, 19, 22, 28, 37, 53, 74]  # of the ten episodes, T = 100 and T_w = 10
SIZES = [900, 810, 729, 656, 590, 531, 478, 430, 387, 348]  # of 1000 rows: floor(0.9^episode n)


def seen(visits: int = 3, **options) -> d2ace.DIHCL:
    """A selector of four rows after epochs of one step each, at a learning rate of 0.001."""
    options = {"preset": "original", "dtype": torch.float64, "batch_size": 4, **options}
    selector = d2ace.DIHCL(Y, **options)
    selector.learning_rate = 1e-3
    for probs in VISITS[:visits]:
        list(selector)
        selector.observe(range(4), probs=probs)
    return selector


def drawn(epoch: int, **options) -> tuple[d2ace.DIHCL, torch.Tensor]:
    """The selector in the middle of a selective epoch, and the P of that epoch."""
    selector = seen(**options)
    selector.set_epoch(epoch)
    p = selector.probabilities
    next(iter(selector))
    return selector, p


@pytest.mark.parametrize(
    ("metric", "second", "third", "p"),
    [
        # changes of loss .606136 .352221 .474458 .357674, then .451985 .641512 .272756 .241162
        (
            "dloss",
            "606.135804 352.220594 474.457980 357.674444",
            "1058.120927 993.732658 747.214402 598.836501",
            ".768987 .228677 .002201 .000135",
        ),
        ("flip", "1000 1000 0 0", "2000 2000 0 1000", ".499999 .499999 0 .000001"),
        # losses 1.177655 1.396345 1.597015 1.762589, then 1.127012 1.703749 1.324259 1.521427
        (
            "loss",
            "1177.655496 1396.344697 1597.015392 1762.589092",
            "2304.667259 3100.093289 2921.274363 3284.016127",
            ".003010 .241437 .090096 .665458",
        ),
    ],
)
def test_the_warm_start_adds_up_feedback_per_learning_rate(metric, second, third, p):
    equal(seen(1, metric=metric).weights["hardness"], "0 0 0 0")
    equal(seen(2, metric=metric).weights["hardness"], second)
    selector = seen(3, metric=metric)
    equal(selector.weights["hardness"], third)
    selector.set_epoch(11)
    equal(selector.probabilities, p)  # softmax of 16 r / mean(r)


def test_a_selective_epoch_divides_by_pace_and_chance():
    selector, p = drawn(11)
    probs = VISITS[2][[1]].clone()
    probs[0, 0] *= math.exp(-0.5)  # the loss of a positive label rises by .5
    selector.observe([1], probs=probs)
    chance = 0.2286772797 + 1e-8
    assert float(p[1]) == pytest.approx(0.2286772797, abs=1e-9)
    more = 0.5 / (1e4 * 0.001**0.01 * chance)  # 0.000234283
    gained = selector.weights["hardness"][1] - seen().weights["hardness"][1]
    # in the first episode r has lost a tenth, so that what is new weighs 1/0.9
    assert float(gained) == pytest.approx(more / 0.9, rel=1e-6)


def test_the_loss_as_feedback_is_divided_by_the_chance_alone():
    selector, p = drawn(11, metric="loss")
    selector.observe([1], probs=VISITS[2][[1]])
    expected = 3100.093289 + 1.703749 / (float(p[1]) + 1e-8) / 0.9
    assert float(selector.weights["hardness"][1]) == pytest.approx(expected, abs=1e-5)


def test_a_change_counts_ten_at_most():
    sure = torch.full((4, 3), 1.0 - 1e-6, dtype=torch.float64)
    selector = d2ace.DIHCL(Y, preset="original", dtype=torch.float64)
    for probs in (sure, 1.0 - sure):  # every loss moves by 13.8
        list(selector)
        selector.observe(range(4), probs=probs)
    equal(selector.weights["hardness"], "30 30 30 30")


def test_the_pace_is_that_of_whole_epochs():
    """However near the end of one epoch and the start of the next two visits are."""
    selector = d2ace.DIHCL(Y, preset="original", dtype=torch.float64, batch_size=1, warmup=5)
    orders = [[0, 1, 2, 3], [3, 2, 1, 0]]
    for order, probs in zip(orders, VISITS, strict=False):
        list(selector)
        for row in order:
            selector.observe([row], probs=probs[[row]])
    changes = [0.606135804, 0.352220594, 0.47445798, 0.357674444]
    equal(selector.weights["hardness"], " ".join(str(change / 4) for change in changes))
    before = selector.weights["hardness"]
    selector.observe([0], probs=VISITS[2][[0]])  # a second time in the epoch
    assert torch.equal(selector.weights["hardness"], before)


def test_later_episodes_discount_what_was_before():
    """0.9 times as much at the start of each: all that counts is the ratio of old and new."""
    first, _ = drawn(74, warmup=10)
    rise = VISITS[2].clone()
    rise[0, 0] *= math.exp(-0.5)
    before = first.weights["hardness"][0]
    p = float(first.drawn_probabilities[0])
    first.observe([0], probs=rise[[0]])
    gained = float(first.weights["hardness"][0] - before)
    expected = 0.5 / (1e4 * 0.001**0.01 * (p + 1e-8)) / 0.9**10
    assert gained == pytest.approx(expected, rel=1e-6)


def test_episodes_begin_in_the_proportions_of_the_source():
    """5, 10, 15, 20, 30, .. 300 of 300 epochs: fewer rows, and a flatter softmax."""
    labels = np.eye(1000, 3, dtype=int)
    selector = d2ace.DIHCL(labels, preset="original", batch_size=100)
    rows = {}
    for epoch in range(1, 103):
        selector.set_epoch(epoch)
        rows[epoch] = selector.rows_per_epoch
        assert len(selector) == -(-rows[epoch] // 100)
    changes = [epoch for epoch in range(2, 103) if rows[epoch] != rows[epoch - 1]]
    assert changes == STARTS
    assert [rows[epoch] for epoch in STARTS] == SIZES
    assert (rows[10], rows[102]) == (1000, 348)


@pytest.mark.parametrize(("epoch", "times"), [(11, 16.0), (13, 12.8), (74, 2.147483648)])
def test_the_softmax_flattens_from_episode_to_episode(epoch, times):
    selector = seen()
    selector.set_epoch(epoch)
    ratio = torch.log(selector.probabilities[0] / selector.probabilities[1])
    assert float(ratio) == pytest.approx(times * (1.245616 - 1.169818), abs=1e-4)


def test_a_short_run_passes_several_episodes_at_once():
    selector = d2ace.DIHCL(np.eye(100, 3, dtype=int), preset="original", epochs=4, warmup=1)
    sizes = []
    for epoch in range(1, 5):
        selector.set_epoch(epoch)
        sizes.append(selector.rows_per_epoch)
    # a third of 295 epochs is past the ends after 5, 10, 15, 25, 35, 55 and 85; two thirds: 135
    assert sizes == [100, 90, 43, 38]


def test_an_epoch_trains_each_of_its_rows_once_however_peaked():
    y = torch.eye(200, 4)
    selector = d2ace.DIHCL(y, preset="original", batch_size=16, epochs=6, warmup=2)
    source = torch.Generator().manual_seed(0)
    for epoch in range(1, 7):
        rows, batches = selector.rows_per_epoch, []
        for batch in selector:
            moves = torch.rand(len(batch), 4, generator=source)
            calm = torch.tensor(batch) >= 10  # all but ten rows hardly move
            moves[calm] = 0.2 + 1e-4 * moves[calm]
            selector.observe(batch, probs=moves)
            batches += batch
        assert len(batches) == len(set(batches)) == rows, f"epoch {epoch}"
    assert rows == 69  # floor(0.9^10 n): three quarters of 295 epochs are past 205
    assert selector.diagnostics()["effective_rows"] < rows


def test_explicit_options_override_the_preset():
    chosen = d2ace.DIHCL(Y, preset="original")
    assert (chosen.draw, chosen.gamma, chosen.gamma_on) == ("once", 0.9, "episode")
    mine = d2ace.DIHCL(
        Y, preset="original", draw="batch", rows_per_epoch=1.0, gamma=0.5, gamma_on="old"
    )
    assert (mine.draw, mine.gamma, mine.gamma_on) == ("batch", 0.5, "old")
    mine.set_epoch(74)
    assert mine.rows_per_epoch == 4
    paper = d2ace.DIHCL(Y)
    assert (paper.preset, paper.draw, paper.gamma, paper.gamma_on) == (
        "paper",
        "batch",
        0.95,
        "new",
    )


def test_states_of_other_presets_and_sizes_are_refused():
    state = seen().state_dict()
    for other, word in [
        ({"preset": "paper"}, "draw 'once'"),
        ({"rows_per_epoch": 1.0}, "rows_per_epoch 'by episode'"),
        ({"draw": "batch"}, "draw 'once'"),
        ({"gamma": 0.5}, r"gamma 0\.9"),
    ]:
        with pytest.raises(ValueError, match=word):
            seen(0, **other).load_state_dict(state)


@pytest.mark.parametrize("gamma", [0.0, 0.001])
def test_a_discount_by_episode_must_leave_something(gamma):
    with pytest.raises(ValueError, match=r"gamma must be in \[0\.01, 1\], got 0"):
        d2ace.DIHCL(Y, preset="original", gamma=gamma)


def test_counted_steps_are_rates_of_one():
    counted = seen(pace="steps")  # at a learning rate of 0.001, which it does not look at
    at_one = d2ace.DIHCL(Y, preset="original", dtype=torch.float64, batch_size=4)
    for probs in VISITS[:3]:
        list(at_one)
        at_one.observe(range(4), probs=probs)
    hardness = at_one.weights["hardness"]
    torch.testing.assert_close(counted.weights["hardness"], hardness, rtol=1e-12, atol=0)
    torch.testing.assert_close(seen().weights["hardness"], 1000 * hardness, rtol=1e-12, atol=0)


@pytest.mark.parametrize("pace", ["rate", "steps"])
def test_at_small_rates_the_warm_up_decides_unless_steps_are_counted(pace):
    y = np.random.default_rng(0).integers(0, 2, (640, 5))
    options = {"preset": "original", "batch_size": 64, "epochs": 20, "warmup": 10}
    selector = d2ace.DIHCL(y, pace=pace, **options)
    selector.learning_rate = 1e-4
    generator = torch.Generator().manual_seed(0)
    hardness = []
    for _ in range(20):
        for rows in selector:
            selector.observe(rows, probs=torch.rand(len(rows), 5, generator=generator))
        hardness.append(selector.weights["hardness"].clone())
    alike = float(np.corrcoef(hardness[9], hardness[19])[0, 1])
    assert alike > 0.95 if pace == "rate" else alike < 0.5


@pytest.mark.parametrize(
    ("rate", "options", "warns"),
    [
        (1e-4, {}, True),
        (1e-4, {"metric": "flip"}, True),
        (1e-4, {"metric": "loss"}, False),
        (1e-6, {"metric": "loss"}, True),
        (1e-4, {"pace": "steps"}, False),
        (0.5, {}, False),
        (1e-4, {"preset": "paper"}, False),
    ],
)
def test_a_warm_up_that_outweighs_later_visits_is_warned_of(rate, options, warns):
    y = np.random.default_rng(0).integers(0, 2, (640, 5))
    options = {"preset": "original", **options}
    selector = d2ace.DIHCL(y, batch_size=64, epochs=6, warmup=3, **options)
    selector.learning_rate = rate
    said = []
    for epoch in range(1, 6):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for rows in selector:
                selector.observe(rows, probs=torch.full((len(rows), 5), 0.1 * epoch))
        said += [(epoch, str(one.message)) for one in caught]
    assert [epoch for epoch, _ in said] == ([4] if warns else [])
    assert all('pass pace="steps"' in sentence for _, sentence in said)


@pytest.mark.parametrize("preset", ["paper", "original"])
def test_a_state_of_before_there_was_pace_counts_rates(preset):
    made = {"preset": preset, "dtype": torch.float64, "batch_size": 4}
    before = seen(**made)
    state = before.state_dict()
    del state["options"]["pace"]
    state["checksum"] = checksum({key: state[key] for key in state if key != "checksum"})
    after = d2ace.DIHCL(Y, **made)
    after.load_state_dict(state)
    assert torch.equal(after.probabilities, before.probabilities)
    with pytest.raises(ValueError, match="saved with pace 'rate', but this one has 'steps'"):
        d2ace.DIHCL(Y, pace="steps", **made).load_state_dict(state)
