"""What metrics take, what they refuse, and what becomes of labels with one class."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from cases import case

from d2ace import evaluation
from d2ace.evaluation import METRICS, evaluate, macro_auc, mean_average_precision

TRUTH = np.array([[1, 0, 1], [0, 0, 1], [1, 0, 1]])  # label 1 has no positive, label 2 no negative
SCORES = np.array([[0.9, 0.1, 0.3], [0.5, 0.7, 0.2], [0.4, 0.6, 0.8]])

metrics = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())


LABEL_FORMS = {
    "bool": lambda y: y,
    "uint8": lambda y: y.astype(np.uint8),
    "float64": lambda y: y.astype(float),
    "fortran": np.asfortranarray,
    "list": lambda y: y.astype(int).tolist(),
    "torch bool": torch.from_numpy,
    "torch float": lambda y: torch.from_numpy(y).float(),
    "torch bfloat16": lambda y: torch.from_numpy(y).bfloat16(),
    "torch sparse": lambda y: torch.from_numpy(y).float().to_sparse(),
    "csr_matrix": lambda y: sp.csr_matrix(y.astype(float)),
    "csc_array": lambda y: sp.csc_array(y),
    "coo_array": lambda y: sp.coo_array(y.astype(np.int8)),
}


@pytest.mark.parametrize("form", LABEL_FORMS.values(), ids=LABEL_FORMS.keys())
def test_forms_of_labels(form: Any) -> None:
    for seed in range(12):
        truth, scores = case(seed)
        np.testing.assert_equal(evaluate(form(truth), scores), evaluate(truth, scores))


SCORE_FORMS = {
    "float64": lambda s: s.astype(np.float64),
    "float16": lambda s: s.astype(np.float16),
    "torch": torch.from_numpy,
    "torch half": lambda s: torch.from_numpy(s).half(),
    "torch bfloat16": lambda s: torch.from_numpy(s).bfloat16(),
    "torch float8": lambda s: torch.from_numpy(s).to(torch.float8_e4m3fn),
    "torch with a gradient": lambda s: torch.from_numpy(s).requires_grad_(),
    "reversed view": lambda s: np.ascontiguousarray(s[::-1, ::-1])[::-1, ::-1],
    "fortran": np.asfortranarray,
    "list": lambda s: s.tolist(),
    "csr_array": sp.csr_array,
}


@pytest.mark.parametrize("form", SCORE_FORMS.values(), ids=SCORE_FORMS.keys())
def test_forms_of_scores(form: Any) -> None:
    for seed in range(12):
        truth, scores = case(seed)
        scores = np.round(scores.clip(0, 1) * 16).astype(np.float32) / 16  # exact in every form
        np.testing.assert_equal(evaluate(truth, form(scores)), evaluate(truth, scores))


def test_inputs_are_left_alone() -> None:
    truth = sp.csr_array((np.array([1.0, 0.0, 1.0]), ([0, 1, 2], [0, 1, 2])), shape=(3, 3))
    unsorted = sp.csr_array((np.ones(2), np.array([2, 0]), np.array([0, 2, 2, 2])), shape=(3, 3))
    for labels in (truth, unsorted):
        before = labels.data.copy(), labels.indices.copy(), labels.indptr.copy()
        scores = SCORES.copy()
        evaluate(labels, scores)
        for kept, now in zip(before, (labels.data, labels.indices, labels.indptr), strict=True):
            np.testing.assert_array_equal(kept, now)
        np.testing.assert_array_equal(scores, SCORES)


REFUSED = {
    "other shape": (
        TRUTH,
        SCORES[:2],
        "Y_true has shape (3, 3) and scores has shape (2, 3); both must be [instances, labels] "
        "of the same size.",
    ),
    "transposed": (TRUTH[:2], SCORES[:2].T, "Y_true has shape (2, 3) and scores has shape (3, 2)"),
    "a vector": (TRUTH[0], SCORES[0], "Y_true must be a matrix [instances, labels]"),
    "scores a vector": (TRUTH, SCORES[0], "scores must be a matrix [instances, labels]"),
    "no rows": (TRUTH[:0], SCORES[:0], "got shape (0, 3)."),
    "no labels": (TRUTH[:, :0], SCORES[:, :0], "got shape (3, 0)."),
    "nan": (
        TRUTH,
        np.where(np.eye(3), [1, math.nan, 1], SCORES),
        "scores[1, 1] is nan, but scores must be finite",
    ),
    "inf": (TRUTH, torch.full((3, 3), math.inf), "scores[0, 0] is inf"),
    "label 2": (TRUTH * 2, SCORES, "Y_true[0, 0] is 2, but labels must be 0 or 1."),
    "label -1": (TRUTH * 2 - 1, SCORES, "Y_true[0, 1] is -1, but labels must be 0 or 1."),
    "label nan": (np.full((3, 3), math.nan), SCORES, "Y_true[0, 0] is nan"),
    "sparse 0.5": (sp.csr_array(np.eye(3) / 2), SCORES, "Y_true[0, 0] is 0.5"),
    "sparse twice": (
        sp.coo_array((np.ones(2), ([1, 1], [2, 2])), shape=(3, 3)),
        SCORES,
        "Y_true[1, 2] is 2.0",
    ),
    "sparse rows twice": (
        sp.csr_array((np.ones(2), np.array([2, 2]), np.array([0, 0, 2, 2])), shape=(3, 3)),
        SCORES,
        "Y_true[1, 2] is 2.0",
    ),
    "ragged": ([[1, 0], [1]], SCORES, "Y_true must be an array; its rows differ in length"),
    "words": (np.full((3, 3), "yes"), SCORES, "Y_true must hold real numbers, got dtype <U3."),
    "meta": (TRUTH, torch.zeros(3, 3, device="meta"), "scores is on the meta device and holds no"),
    "masked": (np.ma.masked_equal(TRUTH, 0), SCORES, "masked cells in Y_true; fill them"),
    "complex": (TRUTH, SCORES * 1j, "scores must hold real numbers, got dtype complex128."),
}


@metrics
@pytest.mark.parametrize(("truth", "scores", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(metric: evaluation.Metric, truth: Any, scores: Any, sentence: str) -> None:
    for refuse in (metric.function, evaluate):
        with pytest.raises((ValueError, TypeError)) as error:
            refuse(truth, scores)
        assert sentence in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("threshold", "sentence"),
    [
        (math.nan, "threshold must be finite, got nan."),
        (
            "0.5",
            "threshold must be a number, or one number for each of the 3 labels, got '0.5' (str).",
        ),
        (
            True,
            "threshold must be a number, or one number for each of the 3 labels, got True (bool).",
        ),
    ],
)
def test_refused_threshold(threshold: Any, sentence: str) -> None:
    with pytest.raises((ValueError, TypeError)) as error:
        evaluate(TRUTH, SCORES, threshold=threshold)
    assert str(error.value) == sentence


def test_a_score_at_the_threshold_is_predicted() -> None:
    for kind in (np.float16, np.float32, np.float64):
        scores = np.array([[0.3, 0.1]], dtype=kind)
        assert evaluation.subset_accuracy([[1, 0]], scores, threshold=0.3) == 1


def test_refused_policy() -> None:
    for metric in (macro_auc, mean_average_precision, evaluate):
        with pytest.raises(ValueError, match=r"one of 'skip', 'nan', 'half', 'error', got 'drop'"):
            metric(TRUTH, SCORES, undefined="drop")  # type: ignore[arg-type]


def test_undefined_labels() -> None:
    # Label 0: the positives 0.9 and 0.4 around the negative 0.5. Label 2: all positive, so its
    # average precision is 1.
    assert evaluation.label_auc(TRUTH, SCORES) == pytest.approx([0.5, math.nan, math.nan], nan_ok=1)
    first = (1 + 2 / 3) / 2
    precision = evaluation.label_average_precision(TRUTH, SCORES)
    assert precision == pytest.approx([first, math.nan, 1], nan_ok=True)
    # Label 1 is true nowhere: 0, predicted or not, as it counts in Macro-F1.
    for threshold in (0.5, 0.0, 2.0):
        f1 = evaluation.label_f1(TRUTH, SCORES, threshold)
        assert f1[1] == 0
        assert f1.mean() == evaluation.macro_f1(TRUTH, SCORES, threshold)
    assert macro_auc(TRUTH, SCORES) == 0.5
    assert mean_average_precision(TRUTH, SCORES) == pytest.approx((first + 1) / 2)
    assert math.isnan(macro_auc(TRUTH, SCORES, undefined="nan"))
    assert math.isnan(mean_average_precision(TRUTH, SCORES, undefined="nan"))
    assert macro_auc(TRUTH, 1 - SCORES**2, undefined="half") == pytest.approx((0.5 + 1) / 3)
    half = mean_average_precision(TRUTH, SCORES, undefined="half")
    assert half == pytest.approx((first + 0 + 1) / 3)
    assert evaluate(TRUTH, SCORES).undefined == 2


def test_nothing_is_defined() -> None:
    truth = np.zeros((3, 3))
    found = evaluate(truth, SCORES)
    assert found.undefined == 3
    assert math.isnan(found.values["macro_auc"])
    assert math.isnan(found.values["mean_average_precision"])
    half = evaluate(truth, SCORES, undefined="half").values
    assert (half["macro_auc"], half["mean_average_precision"]) == (0.5, 0.0)


@pytest.mark.parametrize("policy", ["skip", "nan", "half", "error"])
def test_policies_agree_where_all_is_defined(policy: Any) -> None:
    truth = np.eye(3)
    assert evaluate(truth, SCORES, undefined=policy) == evaluate(truth, SCORES)


def test_error_names_the_labels() -> None:
    with pytest.raises(ValueError, match="macro_auc is undefined") as error:
        macro_auc(TRUTH, SCORES, undefined="error")
    assert str(error.value) == (
        "macro_auc is undefined for 2 of 3 labels (one class only in the evaluated rows; columns "
        "1, 2); evaluate more rows, drop these labels or pass undefined='skip'."
    )
    with pytest.raises(ValueError, match=r"for 1 of 3 labels \(no positive instance .*columns 1\)"):
        mean_average_precision(TRUTH, SCORES, undefined="error")
    with pytest.raises(ValueError, match=r"for 9 of 9 labels .*columns 0, 1, 2, 3, 4, \.\.\.\)"):
        evaluate(np.zeros((2, 9)), np.zeros((2, 9)), undefined="error")


def test_import_is_light() -> None:
    heavy = "{'sklearn', 'pandas', 'matplotlib', 'rich', 'typer'}"
    code = f"import sys, d2ace.evaluation; print(sorted({heavy} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
