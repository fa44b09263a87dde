"""The verdicts of a report, as values; `wording` has their words."""

from __future__ import annotations

import enum


class Verdict(enum.Enum):
    """A method beside the baseline, in one metric of a comparison.

    Better or worse is shown if the interval of the mean difference excludes zero and the
    signed-rank test over datasets agrees, corrected for the number of rivals.
    """

    ALONE = enum.auto()
    """There is no second method."""
    BASELINE = enum.auto()
    """It is the baseline itself."""
    NO_BASELINE = enum.auto()
    """The baseline has no run of the same fold and seed."""
    SINGLE_PAIR = enum.auto()
    """A single pair of runs: nothing is known about noise."""
    NOISE = enum.auto()
    """No difference at all is plausible too."""
    BETTER = enum.auto()
    BETTER_NOT_SHOWN = enum.auto()
    """Clear of zero, but the test does not agree or has too few datasets."""
    WORSE = enum.auto()
    WORSE_NOT_SHOWN = enum.auto()


class Outcome(enum.Enum):
    """The reference beside a method, by the signed-rank test."""

    BETTER = enum.auto()
    NOT_SIGNIFICANT = enum.auto()
    TOO_FEW_DATASETS = enum.auto()
    VARIANT = enum.auto()
    """The method is a variant of the reference, and no rival."""
