"""Every label's scores on the test rows, which means over labels hide."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from d2ace.evaluation import label_auc, label_average_precision, label_f1

from .problem import Problem

__all__ = ["LABEL_COUNTS", "LABEL_SCORES", "label_scores"]

LABEL_COUNTS = ("train_positives", "test_positives")
LABEL_SCORES = ("auc", "average_precision", "f1", "f1_tuned")


def label_scores(problem: Problem, scores: Any, thresholds: Any) -> dict[str, list[Any]]:
    """A table in columns, a row per label: its name, its positives, its scores on the test rows.

    A score that the label does not have there is NaN. Scores keep seven digits, so that the
    table of a thousand labels takes less than 100 kB.
    """
    test = problem.test.Y
    columns = (
        label_auc(test, scores),
        label_average_precision(test, scores),
        label_f1(test, scores),
        label_f1(test, scores, thresholds),
    )
    return {
        "label": list(problem.label_names),
        "train_positives": _positives(problem.train.Y),
        "test_positives": _positives(test),
        **{
            name: [float(f"{value:.7g}") for value in column]
            for name, column in zip(LABEL_SCORES, columns, strict=True)
        },
    }


def _positives(labels: sp.csr_matrix) -> list[int]:
    return [int(count) for count in np.asarray((labels != 0).sum(axis=0)).ravel()]
