"""The numbers of insights: worked by hand, by a slow version, and under changes of order."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from helpers.insight_oracle import InsightOracle
from hypothesis import given, settings
from hypothesis import strategies as st

import d2ace


def told(labels, visits, **options):
    insights = d2ace.Insights(labels, **options)
    for index, probs in visits:
        insights.observe(index, probs=np.asarray(probs, dtype=np.float32))
    return insights


class TestByHand:
    """Two rows of either value, visited twice: probabilities .8 and .6, .4, .2, .2."""

    LABELS = ((1,), (1,), (0,), (0,))
    VISITS = (
        ([0, 1, 2, 3], [[0.9], [0.4], [0.3], [0.2]]),
        ([0, 1, 2, 3], [[0.7], [0.8], [0.1], [0.2]]),
    )
    LEARNT = (0.8 + 0.6) / 2 - (0.2 + 0.2) / 2

    @pytest.mark.parametrize("state", ["full", "compact"])
    def test_suspicion_is_the_log_odds_beyond_what_is_usual(self, state):
        """One label: no other label tells anything."""
        odds = [-math.log(4), -math.log(1.5), -math.log(4), -math.log(4)]
        positive, negative = (odds[0] + odds[1]) / 2, (odds[2] + odds[3]) / 2
        expected = [
            odds[0] - 0.5 * positive,
            odds[1] - 0.5 * positive,
            odds[2] - 0.5 * negative,
            odds[3] - 0.5 * negative,
        ]
        found = told(self.LABELS, self.VISITS, state=state).suspicion()
        assert found.flatten().tolist() == pytest.approx(expected, abs=1e-6)

    def test_rows_and_labels(self):
        insights = told(self.LABELS, self.VISITS)
        second = list(insights.rows())[1]
        assert second["visits"] == 2
        assert second["confidence"] == pytest.approx(0.6)
        assert second["variability"] == pytest.approx(0.2)
        assert second["flips"] == 1.0
        (label,) = insights.labels()
        assert label["learnt"] == pytest.approx(self.LEARNT)
        assert label["positives"] == 2

    def test_flagged_pairs_come_most_suspicious_first(self):
        insights = told(self.LABELS, self.VISITS, label_names=["cat"], row_names=list("abcd"))
        issues = insights.label_issues(above=-0.7)
        assert issues["row_name"].tolist() == ["b", "c", "d"]
        assert issues["label_name"].tolist() == ["cat"] * 3
        assert issues["suggested"].tolist() == [0, 1, 1]
        assert issues["probability"].tolist() == pytest.approx([0.6, 0.2, 0.2])
        assert all(a >= b for a, b in pairwise(issues["suspicion"]))
        assert len(insights.label_issues()) == 0

    def test_shares_of_missing_and_spurious_come_from_flagged_pairs(self):
        (label,) = told(self.LABELS, self.VISITS).labels(above=-0.7)
        assert label["spurious"] == 1 / 2
        assert label["missing"] == 2 / 3  # one positive stays, two negatives should be


shapes = st.tuples(st.integers(1, 6), st.integers(1, 3))


@st.composite
def histories(draw):
    n, q = draw(shapes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = (rng.random((n, q)) < draw(st.sampled_from([0.0, 0.3, 0.5, 1.0]))).astype(int)
    visits = [
        (rng.integers(0, n, size).tolist(), rng.random((size, q), dtype=np.float32))
        for size in draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    ]
    return labels, visits


@settings(max_examples=60, deadline=None)
@given(histories(), st.sampled_from(["full", "compact"]))
def test_the_slow_version_agrees(history, state):
    labels, visits = history
    insights = told(labels, visits, state=state)
    slow = InsightOracle(labels)
    for index, probs in visits:
        slow.observe(index, probs)
    np.testing.assert_allclose(insights.suspicion().numpy(), slow.suspicion(), atol=2e-5)
    rows = insights.rows()
    for row, found in enumerate(rows):
        sure = slow.confidence(row)
        assert found["visits"] == len(sure)
        if sure:
            assert found["confidence"] == pytest.approx(np.mean(sure), abs=1e-5)
        if len(sure) > 1:
            assert found["variability"] == pytest.approx(np.std(sure), abs=1e-3)
            assert found["flips"] == pytest.approx(slow.flips(row))
    learnt = [slow.learnt(label) for label in range(labels.shape[1])]
    np.testing.assert_allclose(insights.labels()["learnt"], learnt, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_order_and_size_of_batches_do_not_matter(history, random):
    labels, visits = history
    whole = told(labels, visits).suspicion().numpy()
    parts = []
    for index, probs in visits:
        first = sorted({row: at for at, row in reversed(list(enumerate(index)))}.values())
        parts += [([index[at]], probs[[at]]) for at in first]
    random.shuffle(parts)
    np.testing.assert_allclose(told(labels, parts).suspicion().numpy(), whole, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(histories(), st.integers(0, 100))
def test_rows_and_labels_may_be_renumbered(history, seed):
    labels, visits = history
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(labels.shape[0]), rng.permutation(labels.shape[1])
    place = np.argsort(rows)
    moved = [(place[index].tolist(), probs[:, columns]) for index, probs in visits]
    found = told(labels[rows][:, columns], moved).suspicion().numpy()
    before = told(labels, visits).suspicion().numpy()
    np.testing.assert_allclose(found, before[rows][:, columns], atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(histories(), st.integers(0, 5), st.integers(2, 9))
def test_how_often_a_row_is_visited_does_not_matter(history, row, times):
    """A row whose predictions do not change keeps its suspicion, and so do all others."""
    labels, visits = history
    n, q = labels.shape
    row %= n
    steady = ([row], np.full((1, q), 0.3, dtype=np.float32))
    others = [([i], p[None]) for ix, ps in visits for i, p in zip(ix, ps, strict=True) if i != row]
    once = told(labels, [*others, steady]).suspicion().numpy()
    often = told(labels, [*others, *[steady] * times]).suspicion().numpy()
    np.testing.assert_allclose(often, once, atol=1e-5)


def test_logits_and_probabilities_say_the_same():
    logits = torch.linspace(-8, 8, 12).reshape(4, 3)
    labels = np.eye(4, 3, dtype=int)
    one, other = d2ace.Insights(labels), d2ace.Insights(sp.csr_array(labels))
    one.observe(torch.arange(4), logits=logits)
    other.observe(range(4), probs=logits.sigmoid())
    torch.testing.assert_close(one.suspicion(), other.suspicion())


class TestOtherLabels:
    """Two labels that go together in all rows but the last, of which the network knows nothing."""

    LABELS = np.array([[1, 1]] * 10 + [[0, 0]] * 10 + [[1, 0]])

    def suspicion(self, labels):
        return told(labels, [(range(21), np.full((21, 2), 0.5))]).suspicion().numpy()

    def test_a_label_that_lacks_its_companion_is_suspected(self):
        first, second = self.suspicion(self.LABELS).T
        assert second[-1] > second[:-1].max() + 1.0
        assert first[-1] > first[:-1].max() + 1.0

    def test_without_companions_nothing_stands_out(self):
        labels = self.LABELS.copy()
        labels[:, 0] = 1  # a label of one class tells nothing
        found = self.suspicion(labels)
        np.testing.assert_allclose(found, 0.0, atol=1e-6)

    def test_other_labels_excuse_nothing(self):
        """A row that is predicted the wrong way round stays as suspicious as each pair alone."""
        labels = np.array([[1, 0]] * 10 + [[0, 1]] * 10)
        probs = np.where(labels == 1, 0.9, 0.1)
        probs[0] = 0.1, 0.9
        alone = [told(labels[:, [k]], [(range(20), probs[:, [k]])]).suspicion() for k in (0, 1)]
        both = told(labels, [(range(20), probs)]).suspicion()
        assert (both[0] >= torch.cat(alone, dim=1)[0] - 0.1).all()


def test_wrong_labels_are_found():
    """A network that knows the truth: what was changed is flagged."""
    rng = np.random.default_rng(0)
    truth = rng.random((300, 5)) < [0.5, 0.3, 0.2, 0.1, 0.05]
    changed = np.zeros_like(truth)
    changed[rng.integers(0, 300, 40), rng.integers(0, 5, 40)] = True
    insights = d2ace.Insights(truth ^ changed)
    for _ in range(6):
        logits = np.where(truth, 2.5, -2.5) + rng.normal(size=truth.shape)
        insights.observe(np.arange(300), logits=logits)
    issues = insights.label_issues()
    flagged = np.zeros_like(truth)
    flagged[issues["row"], issues["label"]] = True
    assert (flagged & changed).sum() >= 0.9 * changed.sum()
    assert (flagged & changed).sum() >= 0.9 * flagged.sum()
