"""Metrics for multi-label scores, and statistics that compare methods over datasets."""

from .metrics import (
    METRICS,
    Evaluation,
    Metric,
    coverage,
    evaluate,
    hamming_loss,
    label_auc,
    label_average_precision,
    macro_auc,
    macro_f1,
    mean_average_precision,
    micro_f1,
    one_error,
    ranking_loss,
    subset_accuracy,
)

__all__ = [
    "METRICS",
    "Evaluation",
    "Metric",
    "coverage",
    "evaluate",
    "hamming_loss",
    "label_auc",
    "label_average_precision",
    "macro_auc",
    "macro_f1",
    "mean_average_precision",
    "micro_f1",
    "one_error",
    "ranking_loss",
    "subset_accuracy",
]
