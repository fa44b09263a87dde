"""Metrics for multi-label scores, and statistics that compare methods over datasets."""

from typing import TYPE_CHECKING

from . import metrics as _metrics
from .inputs import checked_threshold as checked_threshold
from .metrics import *  # noqa: F403 - every metric; type checkers read it there
from .scored import decided as decided
from .statistics import Comparison as Comparison
from .statistics import Equivalence as Equivalence
from .statistics import Friedman as Friedman
from .statistics import Interval as Interval
from .statistics import average_ranks as average_ranks
from .statistics import confidence_interval as confidence_interval
from .statistics import critical_difference as critical_difference
from .statistics import equivalence as equivalence
from .statistics import friedman as friedman
from .statistics import holm as holm
from .statistics import ranks as ranks
from .statistics import similar_methods as similar_methods
from .statistics import student_interval as student_interval
from .statistics import wilcoxon as wilcoxon
from .thresholds import tune_thresholds as tune_thresholds

if not TYPE_CHECKING:  # type checkers read the imports
    __all__ = [
        *_metrics.__all__,
        *("Comparison", "Equivalence", "Friedman", "Interval"),
        *("average_ranks", "confidence_interval"),
        *(
            "critical_difference",
            "equivalence",
            "friedman",
            "holm",
            "ranks",
            "similar_methods",
        ),
        *("tune_thresholds", "wilcoxon"),
    ]
