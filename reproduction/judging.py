"""Verdicts on claims, the numbers in their evidence, and the runs that they look at."""

from __future__ import annotations

from d2ace.report.collect import Laboratory
from d2ace.report.intervals import PairedInterval, plus
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.method_names import CANDIDATE, METHODS
from d2ace.report.tables.table import signed

REPRODUCED, IN_PART, NOT = "reproduced", "in part", "not reproduced"
UNDECIDED, UNTESTABLE = "undecided", "not testable here"
Finding = tuple[str, str]
"""A verdict and its evidence."""

PAPER_METHODS = METHODS[: METHODS.index(CANDIDATE) + 1]
"""The eight that the paper compares; what the library has beside them stands after D2ACE."""

COMPARED = {
    "CLIF (reference)": ("emotions", "birds", "scene", "yeast", "cal500", "enron"),
    "DELA": ("emotions", "birds", "scene"),
    "PACA": ("emotions", "birds", "scene"),
}
"""Models and datasets of steps 1 and 3."""
FIRST = "CLIF (reference)"
"""The model of step 1."""
RANKED = ("macro_auc", "macro_f1", "ranking_loss")
"""The paper's metrics for tabular data."""
SCORE = RANKED[0]
"""Macro-AUC, which the studies of D2ACE's parts are judged by."""
LEVEL = 0.05
HUNDREDTH = 0.01
"""A difference in a score that matters: of one that overfits, or that is not flat."""


def verdict(holds: bool) -> str:
    """A rule that holds or does not."""
    return REPRODUCED if holds else NOT


def most(holds: list[bool]) -> str:
    """A rule that must hold on most datasets."""
    return verdict(2 * sum(holds) > len(holds))


def in_part(holds: list[bool]) -> str:
    """All, some or none of them hold."""
    return IN_PART if any(holds) and not all(holds) else verdict(all(holds))


def decided(*, holds: bool, against: bool) -> str:
    """A rule on one dataset whose noise may hide both."""
    return REPRODUCED if holds else NOT if against else UNDECIDED


def joined(verdicts: list[str]) -> str:
    """The verdict over datasets: noise on one of them does not decide against a claim."""
    there = [each == REPRODUCED for each in verdicts]
    if any(there):
        return in_part(there)
    return NOT if NOT in verdicts else UNDECIDED


def better(gap: PairedInterval) -> bool:
    """Clearly above zero."""
    return gap.mean > 0 and not gap.noise


def worse(gap: PairedInterval) -> bool:
    """Clearly below zero."""
    return gap.mean < 0 and not gap.noise


def words(gap: PairedInterval) -> str:
    """As in the text of the page: mean (low to high)."""
    return f"{difference(gap.mean)} ({difference(gap.low)} to {difference(gap.high)})"


def difference(value: float) -> str:
    """A difference of scores as printed."""
    return signed(plus(value))


def main_study(laboratory: Laboratory, model: str) -> MethodComparison:
    """The eight methods on the datasets of steps 1 and 3; variants are left out."""
    one = next(
        each for each in laboratory.comparisons if (each.study, each.model) == ("main", model)
    )
    cells = {
        (dataset, method): runs
        for (dataset, method), runs in one.cells.items()
        if dataset in COMPARED[model] and method in PAPER_METHODS
    }
    return MethodComparison(one.study, one.model, cells)


def side_study(laboratory: Laboratory, name: str) -> MethodComparison:
    """A study with a name of its own."""
    return next(one for one in laboratory.comparisons if one.study == name)
