"""What insights refuse, what they define, and how they are saved, copied and written."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import d2ace

LABELS = np.array([[1, 0], [0, 1], [1, 1], [0, 0]])


def trained(labels=LABELS, **options):
    insights = d2ace.Insights(labels, **options)
    rng = np.random.default_rng(1)
    for _ in range(3):
        insights.observe(range(len(labels)), logits=rng.normal(size=np.shape(labels)))
    return insights


@pytest.mark.parametrize("ask", ["suspicion", "label_issues", "rows", "labels"])
def test_nothing_observed_is_said(ask):
    with pytest.raises(ValueError, match=r"^Nothing was observed yet; call observe.*\.$"):
        getattr(d2ace.Insights(LABELS), ask)()


def test_rows_never_observed_are_undefined_and_listed():
    insights = d2ace.Insights(LABELS)
    insights.observe([0, 2], logits=torch.zeros(2, 2))
    assert insights.unobserved.tolist() == [1, 3]
    assert insights.suspicion().isnan().all(dim=1).tolist() == [False, True, False, True]
    assert set(insights.label_issues(above=-9)["row"]) == {0, 2}
    assert np.isnan(insights.rows()["confidence"]).tolist() == [False, True, False, True]
    assert np.isfinite(insights.labels()["hardness"]).all()


@pytest.mark.parametrize("value", [0, 1])
def test_labels_of_one_class_have_a_defined_report(value):
    insights = trained(np.full((5, 1), value))
    assert insights.suspicion().isfinite().all()
    (label,) = insights.labels(above=9)
    assert np.isnan(label["learnt"])
    assert label["positives"] == 5 * value


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"label_names": ["a"]}, "label_names must have 2 names, got 1."),
        ({"row_names": "abcd"}, "row_names must be a sequence of 4 names, got the text 'abcd'."),
        ({"label_names": 5}, "label_names must be a sequence of 2 names, got 5."),
        ({"state": "tiny"}, "state must be one of 'full', 'compact', got 'tiny'."),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises((ValueError, TypeError)) as refusal:
        d2ace.Insights(LABELS, **options)
    assert str(refusal.value) == words


def test_a_refused_batch_changes_nothing():
    insights = trained()
    before = insights.suspicion()
    bad = torch.zeros(4, 2)
    bad[2, 1] = torch.nan
    for index, logits in [(range(4), bad), ([4], bad[:1]), ([0], bad)]:
        with pytest.raises(ValueError, match=r"\.$"):
            insights.observe(index, logits=logits)
    assert torch.equal(insights.suspicion(), before)


@pytest.mark.parametrize("where", ["logits", "index"])
def test_what_holds_no_numbers_is_refused(where):
    given = {"index": torch.arange(4), "logits": torch.zeros(4, 2)}
    given[where] = given[where].to("meta")
    with pytest.raises(TypeError, match=r"on the meta device.*\.$"):
        trained().observe(given["index"], logits=given["logits"])


@pytest.mark.parametrize("above", [np.nan, np.inf])
def test_a_limit_is_a_finite_number(above):
    with pytest.raises(ValueError, match=r"^above must be finite, got"):
        trained().label_issues(above)


def test_a_skipped_pair_keeps_its_mean():
    insights = trained(on_invalid="skip")
    issues = {(r["row"], r["label"]): r["probability"] for r in insights.label_issues(above=-9)}
    insights.observe([2], logits=torch.tensor([[0.0, torch.nan]]))
    after = {(r["row"], r["label"]): r["probability"] for r in insights.label_issues(above=-9)}
    assert after[2, 1] == pytest.approx(issues[2, 1], abs=1e-6)
    assert after[2, 0] != pytest.approx(issues[2, 0], abs=1e-6)


@pytest.mark.parametrize(("state", "bytes_per_pair"), [("full", 8), ("compact", 4)])
def test_state_has_the_bytes_that_it_says(state, bytes_per_pair):
    sums = d2ace.Insights(np.zeros((7, 5)), state=state).state_dict()["sums"]
    assert sum(v.nbytes for v in sums.values() if v.ndim == 2) == 35 * bytes_per_pair


@pytest.mark.parametrize("state", ["full", "compact"])
def test_a_saved_state_goes_on(state):
    one = trained(state=state)
    file = io.BytesIO()
    torch.save(one.state_dict(), file)
    file.seek(0)
    other = d2ace.Insights(LABELS, state=state)
    other.load_state_dict(torch.load(file, weights_only=True))
    for insights in (one, other):
        insights.observe([1, 3], logits=torch.ones(2, 2))
    assert torch.equal(one.suspicion(), other.suspicion())
    assert one.rows()["flips"].tolist() == other.rows()["flips"].tolist()


def test_a_state_of_other_labels_or_a_damaged_one_is_refused_and_changes_nothing():
    insights = trained()
    before, before_state = insights.suspicion(), insights.state_dict()
    damaged = insights.state_dict()
    damaged["sums"]["loss"][0, 0] += 1
    lacking = insights.state_dict()
    del lacking["sums"]["visits"]
    odd = insights.state_dict()
    del odd["labels"]
    others = [trained(1 - LABELS).state_dict(), trained(state="compact").state_dict()]
    unknown = {key: value for key, value in before_state.items() if key != "format"}
    for state in [damaged, lacking, odd, unknown, {}, None, *others]:
        with pytest.raises(ValueError, match=r"\.$"):
            insights.load_state_dict(state)
    assert torch.equal(insights.suspicion(), before)


@pytest.mark.parametrize(
    "twin",
    [copy.copy, copy.deepcopy, lambda i: pickle.loads(pickle.dumps(i))],  # noqa: S301
)
def test_a_copy_goes_its_own_way(twin):
    one = trained()
    other = twin(one)
    before = one.suspicion()
    assert torch.equal(other.suspicion(), before)
    other.observe([0], logits=torch.ones(1, 2))
    assert torch.equal(one.suspicion(), before)
    assert not torch.equal(other.suspicion(), before)


@pytest.mark.parametrize(
    "kind", [np.array, torch.tensor, sp.csr_array, sp.csr_matrix, sp.coo_array, sp.lil_matrix]
)
def test_apply_gives_a_corrected_copy_of_the_same_kind(kind):
    labels = kind(LABELS)
    fixed, changed = trained().apply(labels, above=0.3)
    dense = fixed.toarray() if sp.issparse(fixed) else np.asarray(fixed)
    assert type(fixed) is type(labels)
    expected = LABELS.copy()
    for record in changed:
        expected[record["row"], record["label"]] = record["suggested"]
    assert 0 < len(changed) < 8
    assert dense.tolist() == expected.tolist()
    kept = labels.toarray() if sp.issparse(labels) else np.asarray(labels)
    assert kept.tolist() == LABELS.tolist()


def test_apply_gives_weights_and_refuses_other_labels():
    insights = trained()
    weights, changed = insights.apply(LABELS, above=0.3, as_weights=True)
    assert (weights == 0).sum() == len(changed)
    with pytest.raises(ValueError, match=r"differ from those that the insights were made with"):
        insights.apply(1 - LABELS)


def test_tables_are_written_whole_and_replace_only_their_like(tmp_path):
    issues = trained(label_names=["a, b", 'c"']).label_issues(above=-9)
    path = tmp_path / "issues.csv"
    issues.to_csv(path)
    issues.to_csv(path)
    pandas = pytest.importorskip("pandas")
    pandas.testing.assert_frame_equal(
        pandas.read_csv(path), issues.to_pandas(), check_dtype=False, atol=1e-6
    )
    other = tmp_path / "mine.csv"
    other.write_text("row,label\n1,2\n")
    with pytest.raises(ValueError, match=r"mine\.csv .* it was not replaced; name another file"):
        issues.to_csv(other)
    assert other.read_text() == "row,label\n1,2\n"
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(KeyError, match="did you mean"):
        issues["suspicon"]
    with pytest.raises(KeyError, match="There is no column slice"):
        issues[:3]
