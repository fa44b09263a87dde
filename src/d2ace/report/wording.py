"""Words of the report that several parts use, and those for each verdict."""

from __future__ import annotations

from d2ace.evaluation import METRICS

from .method_names import BASELINE
from .verdicts import Outcome, Verdict

SINGLE_PAIR = "a single pair of runs"
WITHIN_NOISE = "within noise"

OUTCOMES = {
    Outcome.BETTER: "better",
    Outcome.NOT_SIGNIFICANT: "not significant",
    Outcome.TOO_FEW_DATASETS: "too few datasets",
    Outcome.VARIANT: "a variant, not counted",
}
"""What the signed-rank test says -> in a word or two."""


def in_short(verdict: Verdict, enough: bool) -> str:
    """The verdict on the method with the best rank; ``enough`` datasets for the test or not."""
    # A rank counts wins, however small, and not the size of losses.
    worse = "best rank, worse on average"
    untested = "better, too few datasets to test"
    words = {
        Verdict.ALONE: "nothing to compare",
        Verdict.BASELINE: f"{BASELINE} is best",
        Verdict.NO_BASELINE: f"no {BASELINE} to compare",
        Verdict.SINGLE_PAIR: SINGLE_PAIR,
        Verdict.NOISE: WITHIN_NOISE,
        Verdict.BETTER: "better, significant" if enough else untested,
        Verdict.BETTER_NOT_SHOWN: "better, not significant" if enough else untested,
        Verdict.WORSE: worse,
        Verdict.WORSE_NOT_SHOWN: worse,
    }
    return words[verdict]


def counted(count: int, noun: str) -> str:
    """One fold is "1 fold", five are "5 folds", a thousand rows "1,000 rows"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def ranging(counts: list[int], noun: str) -> str:
    """Unequal counts are "2 to 5 folds"."""
    most = counted(max(counts), noun)
    return most if min(counts) == max(counts) else f"{min(counts)} to {most}"


def metric_title(metric: str) -> str:
    """A metric's name as printed, and which way is better."""
    one = METRICS[metric]
    return f"{one.title} ({'higher' if one.higher_is_better else 'lower'} is better)"


def listed(names: list[str]) -> str:
    """Names in a sentence: "A, B and C"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
