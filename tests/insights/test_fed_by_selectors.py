"""Insights that a selector keeps: what it observes, saves, loads, copies and shares."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import torch

import d2ace
from d2ace.testing import SETTINGS, check_selector

N, Q, BATCH, EPOCHS = 41, 3, 8, 4


def labels():
    return (torch.rand(N, Q, generator=torch.Generator().manual_seed(0)) < 0.4).numpy()


def predictions(rows, epoch):
    """A function of row, label and epoch."""
    angle = torch.as_tensor(rows).double()[:, None] * 0.7 * torch.arange(1, Q + 1) + epoch
    return (3 * angle.sin()).float()


def make(name="d2ace", given=None, **options):
    features = np.random.default_rng(0).random((N, 2))
    chosen = {"batch_size": BATCH, "epochs": EPOCHS, "warmup": 1} | SETTINGS[name] | options
    return d2ace.make_selector(name, labels() if given is None else given, features, **chosen)


def train(selector, epochs=EPOCHS, steps=None, told=None):
    """Batches drawn and observed; ``told`` are insights that are told the same."""
    drawn = []
    for _ in range(epochs):
        epoch = selector.epoch
        for batch in selector:
            drawn.append(batch)
            selector.loss_weight(batch)
            logits = predictions(batch, epoch)
            selector.observe(batch, logits=logits)
            if told is not None:
                told.observe(batch, logits=logits)
            if len(drawn) == steps:
                return drawn
        selector.validated(0.4 + 0.1 * epoch)
    return drawn


def same(one, other):
    assert np.array_equal(one.suspicion(), other.suspicion(), equal_nan=True)
    for name in ("visits", "confidence", "variability", "flips", "hardness"):
        assert np.array_equal(one.rows()[name], other.rows()[name], equal_nan=True)


@pytest.mark.parametrize("name", list(d2ace.SELECTORS))
def test_every_method_feeds_them_what_it_observes_and_draws_as_without(name):
    alone = d2ace.Insights(labels())
    selector = make(name, insights=True)
    assert make(name).insights is None
    assert train(selector, told=alone) == train(make(name))
    same(selector.insights, alone)


@pytest.mark.parametrize("name", ["random", "dihcl", "d2ace"])  # learns not, at once, in blocks
def test_the_conformance_kit_holds_with_insights(name):
    check_selector(d2ace.SELECTORS[name], insights=True, **SETTINGS[name])


def test_whoever_holds_them_sees_the_latest_observation():
    selector = make(insights=True)
    held = selector.insights
    with pytest.raises(ValueError, match=r"^Nothing was observed yet; call observe.*\.$"):
        held.suspicion()
    selector.observe([3], logits=torch.ones(1, Q))
    assert held.rows()["visits"].sum() == 1
    selector.observe([3, 5], logits=torch.ones(2, Q))
    assert held.rows()["visits"].sum() == 3
    assert 3 not in held.unobserved
    assert len(held.unobserved) == N - 2


@pytest.mark.parametrize("steps", [1, 9, 12])
@pytest.mark.parametrize("name", ["d2ace", "balance"])
def test_a_state_taken_in_the_middle_of_an_epoch_goes_on_bit_for_bit(name, steps):
    whole = make(name, insights=True)
    train(whole)
    first = make(name, insights=True)
    train(first, steps=steps)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = make(name, insights=True)
    second.load_state_dict(torch.load(file, weights_only=True))
    train(second, EPOCHS - (second.epoch - 1))
    same(second.insights, whole.insights)


def test_a_full_pass_reaches_them():
    selector = make(insights=True, predictions="full_pass")
    alone = d2ace.Insights(labels())
    for epoch in range(1, EPOCHS + 1):
        list(selector)
        probs = predictions(range(N), epoch).sigmoid()
        selector.observe(np.arange(N), probs=probs)
        alone.observe(np.arange(N), probs=probs)
    same(selector.insights, alone)


def test_loader_workers_do_not_matter():
    found = []
    for workers in (0, 2):
        selector = make(insights=True)
        data = d2ace.IndexedDataset(torch.utils.data.TensorDataset(torch.zeros(N, 1)))
        loader = torch.utils.data.DataLoader(data, batch_sampler=selector, num_workers=workers)
        for epoch in range(1, 4):
            for index, _ in loader:
                selector.observe(index, logits=predictions(index, epoch))
        found.append(selector.insights)
    same(*found)


def test_a_skipped_pair_counts_as_it_does_without_a_selector():
    selector = make(insights=True, on_invalid="skip")
    alone = d2ace.Insights(labels(), on_invalid="skip")
    for bad in (0, 1):
        logits = predictions(range(4), bad)
        logits[bad, bad] = torch.nan
        for each in (selector, alone):
            each.observe(range(4), logits=logits)
    same(selector.insights, alone)


def test_rows_drawn_twice_in_a_batch_count_once():
    selector = make(insights=True, replacement=True)
    selector.observe([4, 4, 2], logits=torch.ones(3, Q))
    assert selector.insights.rows()["visits"].tolist() == [
        1 if row in (2, 4) else 0 for row in range(N)
    ]


def test_a_refused_batch_changes_nothing():
    selector = make(insights=True)
    train(selector, 1)
    before = selector.insights.suspicion()
    bad = torch.zeros(2, Q)
    bad[1, 1] = torch.inf
    with pytest.raises(ValueError, match="instance 7, label 1"):
        selector.observe([3, 7], logits=bad)
    assert torch.equal(selector.insights.suspicion(), before)


@pytest.mark.parametrize(
    "twin",
    [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))],  # noqa: S301
)
def test_a_copy_of_a_selector_keeps_its_own(twin):
    one = make(insights=True)
    train(one, 1)
    one.observe([0], logits=torch.ones(1, Q))  # waits in a block
    other = twin(one)
    before = one.insights.suspicion()
    assert torch.equal(other.insights.suspicion(), before)
    other.observe([0], logits=-torch.ones(1, Q))
    assert torch.equal(one.insights.suspicion(), before)
    assert not torch.equal(other.insights.suspicion(), before)


def test_a_copy_of_the_insights_alone_leaves_the_selector_behind():
    selector = make(insights=True)
    train(selector, 1)
    kept = copy.deepcopy(selector.insights)
    before = kept.suspicion()
    train(selector, 1)
    assert torch.equal(kept.suspicion(), before)
    kept.observe([0], logits=torch.ones(1, Q))  # nobody feeds it now
    assert len(pickle.dumps(selector.insights)) < 20 * N * Q + 8000


def test_a_reset_forgets_them():
    selector = make(insights=True)
    train(selector, 2)
    selector.reset()
    assert len(selector.insights.unobserved) == N
    fresh = make(insights=True)
    train(selector)
    train(fresh)
    same(selector.insights, fresh.insights)


def test_what_waits_is_forgotten_with_the_rest():
    """A method that is told in blocks still holds the last batches."""
    for forget in (
        lambda selector: selector.insights.reset(),
        lambda selector: selector.insights.load_state_dict(d2ace.Insights(labels()).state_dict()),
        lambda selector: selector.reset(),
        lambda selector: selector.load_state_dict(make(insights=True).state_dict()),
    ):
        selector = make(insights=True)
        selector.observe([1, 2], logits=torch.ones(2, Q))
        forget(selector)
        selector.observe([5], logits=torch.ones(1, Q))
        assert selector.insights.rows()["visits"].nonzero()[0].tolist() == [5]


def test_two_selectors_may_feed_the_same():
    both = d2ace.Insights(labels())
    one, other = make(insights=both), make(insights=both)
    for row, selector in enumerate([one, other, one]):
        selector.observe([row], logits=torch.ones(1, Q))
    assert both.rows()["visits"][:4].tolist() == [1, 1, 1, 0]


class TestStates:
    def test_one_without_insights_is_as_it_always_was(self):
        with_them, without = make(insights=True), make()
        for selector in (with_them, without):
            train(selector, 2)
        one, other = with_them.state_dict(), without.state_dict()
        assert one.keys() - other.keys() == {"insights"}
        assert "insights" not in other["options"]
        assert one["options"] == other["options"]

    @pytest.mark.parametrize("kept", [True, False])
    def test_one_of_the_other_kind_is_refused_and_changes_nothing(self, kept):
        one, other = make(insights=kept), make(insights=not kept)
        train(one, 2)
        train(other, 1)
        before = other.state_dict()
        words = ("with", "without") if kept else ("without", "with")
        with pytest.raises(ValueError, match="saved {} insights.*made {} them".format(*words)):
            other.load_state_dict(one.state_dict())
        assert other.state_dict()["checksum"] == before["checksum"]

    def test_a_damaged_one_changes_nothing(self):
        selector = make(insights=True)
        train(selector, 2)
        before = selector.state_dict()
        changed = copy.deepcopy(before)
        changed["insights"]["sums"]["loss"][0, 0] += 1
        lacking = copy.deepcopy(before)
        del lacking["insights"]["sums"]["visits"]
        for state in (changed, lacking, before | {"insights": None}, before | {"more": 1}):
            with pytest.raises(ValueError, match=r"\.$"):
                selector.load_state_dict(state)
            assert selector.state_dict()["checksum"] == before["checksum"]

    def test_a_compact_one_does_not_fit_a_full_one(self):
        compact = make(insights=d2ace.Insights(labels(), state="compact"))
        full = make(insights=True)
        train(compact, 2)
        train(full, 1)
        before = full.state_dict()
        with pytest.raises(ValueError, match="saved with state 'compact'"):
            full.load_state_dict(compact.state_dict())
        assert full.state_dict()["checksum"] == before["checksum"]
        assert full.epoch == 2


class TestGivenOnes:
    def test_names_and_a_compact_state_are_kept(self):
        mine = d2ace.Insights(labels(), label_names=list("abc"), state="compact")
        selector = make(insights=mine)
        train(selector, 2)
        assert selector.insights is mine
        assert set(mine.label_issues(above=-9)["label_name"]) == set("abc")

    def test_other_labels_are_refused(self):
        for other in (~labels(), labels()[:-1]):
            with pytest.raises(ValueError, match=r"^These labels \(41 x 3\) differ from"):
                make(insights=d2ace.Insights(other))

    def test_what_is_neither_is_refused(self):
        with pytest.raises(TypeError, match="insights must be True or False"):
            make(insights="yes")

    def test_telling_them_beside_the_selector_is_refused(self):
        selector = make(insights=True)
        selector.observe([0], logits=torch.ones(1, Q))
        with pytest.raises(ValueError, match=r"call only selector\.observe, or each batch counts"):
            selector.insights.observe([0], logits=torch.ones(1, Q))
        assert selector.insights.rows()["visits"].sum() == 1


@pytest.mark.parametrize("value", [0, 1])
def test_one_label_of_one_class_has_a_defined_report(value):
    given = np.full((N, 1), value)
    selector = make("random", given, insights=True)
    for batch in selector:
        selector.observe(batch, logits=torch.ones(len(batch), 1))
    assert selector.insights.suspicion().isfinite().all()
    (label,) = selector.insights.labels()
    assert np.isnan(label["learnt"])
    assert label["positives"] == N * value


class TestAmong:
    """Insights of some rows, in the numbers of all."""

    def test_rows_have_the_numbers_of_the_larger_data(self):
        every, rows = labels(), np.array([30, 2, 17, 9])
        part = d2ace.Insights(every[rows])
        part.observe(range(4), logits=predictions(rows, 0))
        whole = part.among(every, rows, label_names=list("abc"))
        assert torch.equal(whole.suspicion()[rows], part.suspicion())
        assert whole.unobserved.tolist() == sorted(set(range(N)) - set(rows.tolist()))
        found = {(r["row"], r["label_name"]) for r in whole.label_issues(above=-9)}
        assert found == {(row, name) for row in rows.tolist() for name in "abc"}
        fixed, _ = whole.apply(every, above=-9)
        assert (fixed != every).any(axis=1).nonzero()[0].tolist() == sorted(rows.tolist())

    def test_other_rows_are_refused(self):
        part = d2ace.Insights(labels()[:4])
        with pytest.raises(ValueError, match="differ from those that the insights were made with"):
            part.among(labels(), [5, 6, 7, 8])
