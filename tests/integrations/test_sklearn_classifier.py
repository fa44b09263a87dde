"""The classifier does what scikit-learn and its users expect of one."""

from __future__ import annotations

import pickle
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import check_estimator

import d2ace
from d2ace._util.errors import UserError
from d2ace.data import make_multilabel
from d2ace.integrations.sklearn import MultiLabelClassifier
from d2ace.training.config import RunConfig
from d2ace.training.split import make_problem

WEIGHTED = (
    "batches are drawn at random from the rows given, so that a row given twice meets another "
    "order of batches than one of weight 2; a weight of 0 does remove the row, which a test of "
    "our own shows"
)
NOT_MET = {
    "check_sample_weight_equivalence_on_dense_data": WEIGHTED,
    "check_sample_weight_equivalence_on_sparse_data": WEIGHTED,
}
"""Checks of scikit-learn that do not apply, each with the reason."""

SMALL: dict[str, Any] = {
    "model": "mlp",
    "model_options": {"h": 16, "L": 1},
    "warmup": 1,
    "batch_size": 16,
    "learning_rate": 3e-2,
    "device": "cpu",
}


def small(**changes: Any) -> MultiLabelClassifier:
    return MultiLabelClassifier(**(SMALL | {"epochs": 6, "random_state": 0} | changes))


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    data = make_multilabel(240, 12, 5, seed=3)
    return np.asarray(data.X, dtype=np.float32), np.asarray(data.Y, dtype=np.int64)


def test_tuned_thresholds_are_those_of_the_held_out_rows(
    table: tuple[np.ndarray, np.ndarray],
) -> None:
    X, Y = table
    classifier = small(early_stopping=True, thresholds="tuned").fit(X, Y)
    assert classifier.thresholds_.shape == (Y.shape[1],)
    assert not np.allclose(classifier.thresholds_, 0.5)
    above = classifier.predict_proba(X) > classifier.thresholds_
    assert (classifier.predict(X) == above).all()
    plain = small(early_stopping=True).fit(X, Y)
    assert (plain.predict_proba(X) == classifier.predict_proba(X)).all()
    assert (plain.thresholds_ == 0.5).all()
    low = small(early_stopping=True, thresholds=0.2).fit(X, Y)
    assert (low.predict(X) == (low.predict_proba(X) > 0.2)).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"thresholds": "tuned"}, "set early_stopping=True"),
        ({"thresholds": "best"}, "thresholds is 'best'"),
        ({"thresholds": 1.0}, "thresholds is 1.0"),
        ({"thresholds": True}, "thresholds is True"),
    ],
)
def test_thresholds_that_cannot_be_are_refused(
    table: tuple[np.ndarray, np.ndarray], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        small(**options).fit(*table)


def test_scikit_learns_own_checks():
    results = check_estimator(
        small(random_state=None), expected_failed_checks=NOT_MET, on_skip=None, on_fail=None
    )
    statuses = {result["check_name"]: result["status"] for result in results}
    failed = [str(result["exception"]) for result in results if result["status"] == "failed"]
    assert not failed
    assert {name for name, status in statuses.items() if status == "xfail"} == set(NOT_MET)
    assert sum(status == "passed" for status in statuses.values()) > 50


def test_it_learns(table):
    X, Y = table
    classifier = small(model="clif", model_options=None, epochs=15, learning_rate=1e-3)
    classifier.fit(X[:180], Y[:180])
    P = classifier.predict_proba(X[180:])
    assert P.shape == (60, 5)
    assert roc_auc_score(Y[180:], P, average="macro") > 0.7
    np.testing.assert_array_equal(classifier.predict(X[180:]), P > 0.5)
    np.testing.assert_allclose(
        torch.sigmoid(torch.from_numpy(classifier.decision_function(X[180:]))), P
    )


def test_numbers_are_those_of_a_run():
    """On the rows a run trains, with its seed and settings, every epoch's loss is the run's."""
    data = make_multilabel(240, 12, 5, seed=3)
    settings = {key: value for key, value in SMALL.items() if key != "device"} | {"epochs": 6}
    run = d2ace.train(data, selector="d2ace", accelerator="cpu", **settings)
    train = make_problem(RunConfig.from_dict(run.config), data).train
    classifier = small().fit(train.X, train.Y)
    losses = [entry["train_loss"] for entry in classifier.history_]
    assert losses == [entry["train_loss"] for entry in run.history]


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.coo_array])
def test_sparse_is_the_same_as_dense(table, form):
    X, Y = table
    dense = small().fit(X, Y).predict_proba(X)
    sparse = small().fit(form(X), sp.csr_matrix(Y)).predict_proba(form(X))
    np.testing.assert_array_equal(dense, sparse)


def test_names_are_kept(table):
    X, Y = table
    features = pd.DataFrame(X, columns=[f"f{k}" for k in range(12)])
    labels = pd.DataFrame(Y, columns=["sun", "sea", "sand", "snow", "sky"])
    classifier = small().fit(features, labels)
    assert list(classifier.feature_names_in_) == list(features.columns)
    assert list(classifier.label_names_) == list(labels.columns)
    with pytest.raises(ValueError, match="feature names should match"):
        classifier.predict(features[features.columns[::-1]])
    classifier.fit(features, Y)
    assert not hasattr(classifier, "label_names_")


def test_weights_of_rows_count(table):
    X, Y = table
    weight = np.ones(len(X))
    same = small().fit(X, Y).decision_function(X)
    np.testing.assert_array_equal(small().fit(X, Y, weight * 3).decision_function(X), same)
    weight[:100] = 0
    left_out = small().fit(X, Y, weight).decision_function(X)
    np.testing.assert_array_equal(left_out, small().fit(X[100:], Y[100:]).decision_function(X))
    with pytest.raises(ValueError, match="at least one non-zero"):
        small().fit(X, Y, np.zeros(len(X)))


class TestInsights:
    def test_rows_and_names_are_those_that_were_given(self, table):
        X, Y = table
        weight = np.ones(len(X))
        weight[:40] = 0
        names = ["sun", "sea", "sand", "snow", "sky"]
        classifier = small(insights=True, early_stopping=True, n_iter_no_change=9)
        classifier.fit(X, pd.DataFrame(Y, columns=names), weight)
        insights = classifier.insights_
        assert (insights.n, insights.label_names) == (len(X), names)
        unobserved = set(insights.unobserved.tolist())
        assert set(range(40)) < unobserved
        assert len(unobserved) == 40 + 20  # those of weight 0, and a tenth of the others
        for issue in insights.label_issues(above=-9):
            assert Y[issue["row"], issue["label"]] == issue["given"]

    def test_the_weights_are_the_same_with_them(self, table):
        X, Y = table
        same = small().fit(X, Y)
        classifier = small(insights=True).fit(X, Y)
        np.testing.assert_array_equal(classifier.decision_function(X), same.decision_function(X))
        assert not hasattr(same, "insights_")
        assert len(classifier.insights_.unobserved) == 0

    def test_they_are_pickled_and_refitted(self, table):
        X, Y = table
        classifier = small(insights=True).fit(X, Y)
        restored = pickle.loads(pickle.dumps(classifier))  # noqa: S301 - our own
        assert torch.equal(restored.insights_.suspicion(), classifier.insights_.suspicion())
        classifier.set_params(insights=False).fit(X, Y)
        assert not hasattr(classifier, "insights_")

    def test_of_one_binary_target(self, table):
        X, Y = table
        classifier = small(insights=True).fit(X, np.where(Y[:, 0] == 1, "yes", "no"))
        assert classifier.insights_.suspicion().shape == (len(X), 1)

    def test_what_is_neither_true_nor_false_is_reported(self, table):
        with pytest.raises(ValueError, match="insights is 'yes'; it must be True or False"):
            small(insights="yes").fit(*table)


def test_weights_of_rows_meet_those_of_the_selector(table):
    X, Y = table
    weight = np.random.default_rng(0).uniform(0.5, 2, len(X))
    for selector, options in (("balance", None), ("d2ace", {"importance_weighting": True})):
        weighed = small(selector=selector, selector_options=options)
        plain = clone(weighed).fit(X, Y).decision_function(X)
        assert not np.allclose(weighed.fit(X, Y, weight).decision_function(X), plain)


def test_stopping_early_keeps_the_best_epoch(table):
    X, Y = table
    classifier = small(early_stopping=True, epochs=60, n_iter_no_change=3).fit(X, Y)
    scores = [entry["macro_auc"] for entry in classifier.history_]
    assert classifier.n_iter_ == len(scores) < 60
    assert classifier.best_iter_ == int(np.argmax(scores)) + 1 == classifier.n_iter_ - 3
    lower = small(early_stopping=True, epochs=60, n_iter_no_change=3, monitor="ranking_loss")
    scores = [entry["ranking_loss"] for entry in lower.fit(X, Y).history_]
    assert lower.best_iter_ == int(np.argmin(scores)) + 1


def test_a_monitor_that_cannot_be_scored_is_refused(table):
    X, _ = table
    rare = np.zeros((40, 2), dtype=int)
    rare[0, 0] = rare[1, 1] = 1  # too few for the validation rows to have any
    sentence = r"macro_auc is undefined on the 4 .* another monitor or a larger validation_fraction"
    with pytest.raises(UserError, match=sentence):
        small(early_stopping=True, random_state=1).fit(X[:40], rare)
    other = small(early_stopping=True, monitor="hamming_loss", random_state=1).fit(X[:40], rare)
    assert all(0 <= entry["hamming_loss"] < 1 for entry in other.history_)


def test_the_same_seed_gives_the_same_weights(table):
    X, Y = table
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = small(random_state=np.random.RandomState(5)).fit(X, Y).decision_function(X)
    again = small(random_state=np.random.RandomState(5)).fit(X, Y).decision_function(X)
    other = small(random_state=1).fit(X, Y).decision_function(X)
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_pickled_and_cloned(table):
    X, Y = table
    classifier = small().fit(X, Y)
    restored = pickle.loads(pickle.dumps(classifier))  # noqa: S301 - our own
    np.testing.assert_array_equal(restored.predict_proba(X), classifier.predict_proba(X))
    fresh = clone(classifier)
    assert fresh.get_params() == classifier.get_params()
    assert not hasattr(fresh, "model_")


def test_in_pipelines_searches_and_cross_validation(table):
    X, Y = table
    pipeline = make_pipeline(MinMaxScaler(), small(epochs=2))
    search = GridSearchCV(
        pipeline,
        {"multilabelclassifier__selector": ["random", "d2ace"]},
        scoring="roc_auc",
        cv=2,
    )
    search.fit(X, Y)
    assert search.predict(X).shape == Y.shape
    P = cross_val_predict(pipeline, X, Y, cv=2, method="predict_proba")
    assert P.shape == Y.shape
    assert ((P > 0) & (P < 1)).all()


def test_one_binary_target(table):
    X, Y = table
    words = np.where(Y[:, 0] == 1, "yes", "no")
    classifier = small().fit(X, words)
    assert list(classifier.classes_) == ["no", "yes"]
    assert classifier.predict_proba(X).shape == (240, 2)
    assert classifier.decision_function(X).shape == (240,)
    assert set(classifier.predict(X)) <= {"no", "yes"}


def test_a_column_of_zeros_and_ones_is_scored_the_right_way_round(table):
    X, Y = table
    flat = cross_val_score(small(), X, Y[:, 0], scoring="roc_auc", cv=2)
    with pytest.warns(DataConversionWarning, match="1d array was expected"):
        column = cross_val_score(small(), X, Y[:, :1], scoring="roc_auc", cv=2)
    np.testing.assert_array_equal(column, flat)


def test_a_column_of_two_words_is_one_binary_target(table):
    X, Y = table
    words = pd.DataFrame({"answer": np.where(Y[:, 0] == 1, "y", "n")})
    with pytest.warns(DataConversionWarning, match="1d array was expected"):
        classifier = small().fit(X, words)
    flat = small().fit(X, words["answer"])
    assert list(classifier.classes_) == ["n", "y"]
    assert not hasattr(classifier, "label_names_")
    np.testing.assert_array_equal(classifier.predict_proba(X), flat.predict_proba(X))


def test_a_line_for_every_epoch_on_request(table, capsys):
    X, Y = table
    small(verbose=True).fit(X, Y)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == [f"{epoch}/6" for epoch in range(1, 7)]
    small().fit(X, Y)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": "clif2"}, r"did you mean 'clif'"),
        ({"selector": "d2ac"}, "d2ac"),
        ({"epochs": 0}, "epochs is 0"),
        ({"n_iter_no_change": 0}, "n_iter_no_change is 0"),
        ({"validation_fraction": 1.5}, "validation_fraction is 1.5"),
        ({"random_state": -1}, "random_state is -1"),
        ({"monitor": "auc"}, "monitor is 'auc'"),
        ({"early_stopping": "no"}, "early_stopping must be True or False, got 'no'"),
        ({"device": "gpu"}, "'gpu'"),
        ({"selector_options": {"seed": 1}}, "seed is a setting of the run"),
    ],
)
def test_settings_that_do_not_fit_are_reported_by_fit(table, changes, sentence):
    classifier = small(**changes)
    with pytest.raises(UserError, match=sentence):
        classifier.fit(*table)


def test_labels_that_do_not_fit_are_reported(table):
    X, Y = table
    with pytest.raises(UserError, match="zeros and ones"):
        small().fit(X, Y * 256 + 1)
    signs = np.ones_like(Y)
    signs[0, 2] = -1
    with pytest.raises(UserError, match=r"y\[0, 2\] is -1, but labels must be 0 or 1"):
        small().fit(X, signs)
    with pytest.raises(UserError, match=r"y\[0, 0\] is '\d', but labels must be 0 or 1"):
        small().fit(X, Y.astype(str))
    with pytest.raises(UserError, match="Only binary classification is supported"):
        small().fit(X, np.arange(240) % 3)
    with pytest.raises(UserError, match="rows of one class only"):
        small().fit(X, np.ones(240, dtype=int))
    names = [["sun"], ["sun", "sea"]] * 120
    for sets in (names, pd.Series(names), [set(row) for row in names]):
        with pytest.raises(UserError, match=r"y has .*MultiLabelBinarizer"):
            small().fit(X, sets)


def test_a_fit_that_is_refused_leaves_the_fitted_classifier_as_it_was(table):
    X, Y = table
    classifier = small().fit(X, Y)
    before = classifier.predict_proba(X)
    for features, labels in ((X, np.ones(240, dtype=int)), (X[:, :2], Y + 1)):
        with pytest.raises(UserError):
            classifier.fit(features, labels)
        np.testing.assert_array_equal(classifier.predict_proba(X), before)


def test_numbers_that_a_search_draws_are_numbers(table):
    X, Y = table
    drawn = small(epochs=np.int64(2), batch_size=np.int64(16), learning_rate=np.float32(0.03))
    same = small(epochs=2, learning_rate=float(np.float32(0.03)))
    np.testing.assert_array_equal(
        drawn.fit(X, Y).decision_function(X), same.fit(X, Y).decision_function(X)
    )


def test_single_options_are_reported():
    with pytest.raises(UserError, match="give selector_options as a whole"):
        small().set_params(selector_options__neighbors=5)


def test_nothing_but_warm_up_is_reported(table):
    with pytest.warns(UserWarning, match="All 3 epochs are warm-up"):
        small(epochs=3, warmup=3).fit(*table)
    small(selector="random", epochs=3, warmup=3).fit(*table)


def test_threads_give_the_scores_of_one_after_the_other(
    table: tuple[np.ndarray, np.ndarray],
) -> None:
    """Also several classifiers at once, and none of them touches the caller's random state."""

    def fitted(seed: int) -> np.ndarray:
        return small(random_state=seed).fit(*table).predict_proba(table[0])

    before = torch.get_rng_state()
    serial = cross_val_score(small(), *table, cv=4, scoring="f1_macro")
    with joblib.parallel_backend("threading", n_jobs=4):
        threaded = cross_val_score(small(), *table, cv=4, scoring="f1_macro", n_jobs=4)
        seeds = joblib.Parallel()(joblib.delayed(fitted)(seed) for seed in range(4))
    assert threaded.tolist() == serial.tolist()
    for seed, probabilities in enumerate(seeds):
        assert np.array_equal(probabilities, fitted(seed))
    assert torch.equal(torch.get_rng_state(), before)
