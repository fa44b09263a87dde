"""What a group of the page is about: tables and figures are made from it (`registry`)."""

from __future__ import annotations

from dataclasses import dataclass

from .collect import Laboratory
from .figures.style import Look
from .judgement import Judgement
from .layout import Names
from .method_comparison import MethodComparison
from .method_names import CANDIDATE
from .published import Published
from .run_values import Recording
from .sweeps import Sweep


@dataclass(frozen=True)
class Topic:
    """What all groups have."""

    names: Names
    published: Published
    looks: dict[str, Look]
    """How each method is drawn."""

    def name(self, *words: str) -> str:
        """A name for a table or figure and its files, made of words, that no other has."""
        return self.names(*words)


@dataclass(frozen=True)
class StoreTopic(Topic):
    """The whole store: sections "summary" and "runs"."""

    laboratory: Laboratory
    findings: list[Judgement]


@dataclass(frozen=True)
class ComparisonTopic(Topic):
    """The methods with one model: sections "scores", "ranks", "convergence", "time", "selection".

    And its variants in section "ablation".
    """

    comparison: MethodComparison
    judged: dict[str, Judgement]
    """Metric -> judgement, where there are scores; of an ablation there is none."""

    @property
    def heading(self) -> str:
        """What is compared, as the page calls it."""
        return self.comparison.heading


@dataclass(frozen=True)
class SweepTopic(Topic):
    """Values of options of a method: section "sweeps"."""

    sweep: Sweep

    @property
    def place(self) -> tuple[str, ...]:
        """The words of its files' names."""
        one = self.sweep
        whose = () if one.method == CANDIDATE else (one.method,)  # names of files stay as they were
        return (" and ".join(one.options), *whose, one.model, one.dataset)


@dataclass(frozen=True)
class CaseTopic(Topic):
    """What runs on one dataset recorded: section "cases"."""

    place: str
    recorded: dict[str, list[Recording]]
    """Method -> recordings of its runs."""

    @property
    def epochs(self) -> list[int]:
        """Epochs whose probabilities were recorded."""
        recordings = [one for several in self.recorded.values() for one in several]
        return sorted({int(epoch) for one in recordings for epoch in one["epochs"]})
