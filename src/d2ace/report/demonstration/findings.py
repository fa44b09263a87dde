"""What the demo's runs show, in numbers and in sentences that say no more than these."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from d2ace._util.errors import UserError
from d2ace.data import AnnotatedData, MultiLabelData
from d2ace.evaluation import METRICS, Interval, confidence_interval
from d2ace.insights import Insights
from d2ace.report.inspection.certainty import headline, percent
from d2ace.report.wording import counted, ranging
from d2ace.training import RunResult, SavedRun, load_run

from .known_errors import FoundErrors, KnownErrors

SHOWN = ("macro_auc", "macro_f1", "macro_f1_tuned", "ranking_loss")
METRIC = "macro_auc"
"""By which methods are compared."""


@dataclass(frozen=True)
class MethodRuns:
    """The runs of one method, one for each seed."""

    method: str
    results: list[RunResult]
    test: list[dict[str, float]]
    """Metric -> score on the test rows, for each seed."""

    def scores(self, metric: str) -> list[float]:
        """The test scores, seed by seed."""
        return [one[metric] for one in self.test]

    @property
    def curves(self) -> list[list[float]]:
        """The validation score after every epoch, for each seed."""
        return [[epoch["validation"][METRIC] for epoch in one.history] for one in self.results]


@dataclass(frozen=True)
class Difference:
    """Between the scores of two methods, seed by seed, and how sure it is."""

    seeds: int
    mean: float
    interval: Interval | None
    """None of a single seed."""

    @classmethod
    def between(cls, first: MethodRuns, second: MethodRuns, metric: str = METRIC) -> Difference:
        """First minus second."""
        pairs = zip(first.scores(metric), second.scores(metric), strict=True)
        values = [one - two for one, two in pairs]
        known = len(values) > 1 and all(math.isfinite(value) for value in values)
        return cls(len(values), fmean(values), confidence_interval(values) if known else None)

    @property
    def shown(self) -> bool:
        """Whether it is more than noise."""
        return self.interval is not None and not self.interval.low <= 0 <= self.interval.high

    def numbers(self, metric: str, against: str) -> str:
        """Mean and interval in words."""
        title = METRICS[metric].title
        if self.interval is None:
            return f"{title} {self.mean:+.4f} against {against}"
        return (
            f"{title} {self.mean:+.4f} against {against}, 95 % interval {self.interval.low:+.4f} "
            f"to {self.interval.high:+.4f} over {counted(self.seeds, 'seed')}"
        )


def verdict(better: MethodRuns, plain: MethodRuns, metric: str = METRIC) -> str:
    """In words, whether the first method's scores differ from the second's by more than noise."""
    found = Difference.between(better, plain, metric)
    numbers = found.numbers(metric, plain.method)
    if better.scores(metric) == plain.scores(metric):
        return f"{better.method} and {plain.method} have the same scores here."
    if found.interval is None:
        return f"One seed cannot show noise: {better.method} has {numbers}."
    if not found.shown:
        return f"{better.method} and {plain.method} are within noise here: {numbers}."
    word = "better" if (found.mean > 0) == METRICS[metric].higher_is_better else "worse"
    return f"{better.method} is {word} here: {numbers}."


def cost_of_errors(plain: MethodRuns, true: MethodRuns) -> str:
    """In words, what training on the given labels costs against training on the true ones."""
    found = Difference.between(plain, true)
    numbers = found.numbers(METRIC, "the same training on the true labels")
    if found.interval is None:
        return f"One seed cannot show noise: with the wrong labels, {numbers}."
    if not found.shown:
        return f"The cost of the wrong labels is within noise here: {numbers}."
    if found.mean > 0:
        return f"The wrong labels cost nothing here: {numbers}."
    return f"The wrong labels make {plain.method} worse here: {numbers}."


def won_back(method: MethodRuns, plain: MethodRuns, true: MethodRuns) -> str:
    """In words, what a method wins back of that cost; a share only where both are shown."""
    cost, gain = Difference.between(true, plain), Difference.between(method, plain)
    said = verdict(method, plain)
    if cost.shown and gain.shown and min(cost.mean, gain.mean) > 0:
        share = percent(gain.mean / cost.mean)
        said += f" That is {share} of what the wrong labels cost {plain.method}."
    return said


@dataclass(frozen=True)
class ScoreRow:
    """A method's line in the table of scores."""

    method: str
    scores: dict[str, str]
    """Title of a column -> what is printed in it."""


@dataclass(frozen=True)
class Demonstration:
    """Everything that the page shows."""

    data: MultiLabelData
    methods: list[MethodRuns]
    """The first is what all are compared with."""
    true: MethodRuns | None
    """The first method on the true labels, where they are known."""
    errors: list[FoundErrors]
    """For each seed of the first method, where wrong labels are known."""
    insights: Insights
    """Of the first run of the first method."""
    run: Path
    """Its folder."""

    @property
    def seeds(self) -> int:
        """Runs of each method."""
        return len(self.methods[0].results)

    def found(self) -> list[str]:
        """In words, how many suspects are truly wrong, or how many there are."""
        if not self.errors:
            trained = self.insights.n - len(self.insights.unobserved)
            return [headline(len(self.insights.label_issues()), trained * self.insights.q)]
        shares = [one.precision for one in self.errors]
        among = ranging([one.wrong for one in self.errors], "most suspicious label")
        said = [
            f"Of the {among}, {percent(fmean(shares))} are truly wrong; of labels picked at "
            f"random, {percent(fmean(one.chance for one in self.errors))} would be."
        ]
        if len(shares) > 1:
            said.append(
                f"Over {counted(len(shares), 'run')}, that share ranges from "
                f"{percent(min(shares))} to {percent(max(shares))}."
            )
        flagged = sum(one.flagged for one in self.errors)
        runs = counted(len(self.errors), "run")
        if not flagged:
            said.append(f"No label is above the default limit of d2ace inspect, in {runs}.")
        else:
            share = percent(sum(one.flagged_hits for one in self.errors) / flagged)
            were = "label is" if flagged == 1 else "labels are"
            said.append(
                f"{flagged:,} {were} above the default limit of d2ace inspect, in {runs}; {share} "
                "of them truly wrong."
            )
        return said

    def compared(self) -> list[str]:
        """In words, how the methods compare, and what wrong labels cost."""
        plain, *others = self.methods
        if self.true is None:
            return [verdict(one, plain) for one in others]
        said = [cost_of_errors(plain, self.true)]
        return said + [won_back(one, plain, self.true) for one in others]

    @property
    def every(self) -> list[MethodRuns]:
        """The methods, then the one on true labels."""
        return [*self.methods, *([] if self.true is None else [self.true])]

    @property
    def tested(self) -> str:
        """What the table of scores holds, in words."""
        labels = "given" if self.true is None else "true"
        return (
            f"Mean ± standard deviation over {counted(self.seeds, 'seed')}, on the same test rows "
            f"for all, by their {labels} labels."
        )

    def rows(self) -> list[ScoreRow]:
        """The table of scores."""
        return [
            ScoreRow(
                one.method,
                {
                    **{_title(metric): _spread(one.scores(metric)) for metric in SHOWN},
                    "Seconds": f"{fmean(result.seconds['total'] for result in one.results):.1f}",
                },
            )
            for one in self.every
        ]

    def summary(self) -> dict[str, Any]:
        """The numbers, as plain values."""
        return {
            "methods": [
                {
                    "method": one.method,
                    "test": {metric: one.scores(metric) for metric in SHOWN},
                    "best_epoch": [result.best_epoch for result in one.results],
                    "seconds": [result.seconds["total"] for result in one.results],
                }
                for one in self.every
            ],
            "suspects": [
                {
                    "wrong": one.wrong,
                    "labels": one.pairs,
                    "found": int(one.hits.sum()),
                    "precision": one.precision,
                    "chance": one.chance,
                    "flagged": one.flagged,
                    "flagged_wrong": one.flagged_hits,
                }
                for one in self.errors
            ],
            "found": self.found(),
            "compared": self.compared(),
        }


def demonstrate(
    runs: Mapping[str, Sequence[Path]], data: MultiLabelData, *, true: str | None = None
) -> Demonstration:
    """What the runs in these folders show; all were trained on ``data``, with insights.

    If the data record their errors, scores are by the true labels of the test rows; ``true`` is the
    method that was trained on the true labels.
    """
    saved = {method: [load_run(folder) for folder in folders] for method, folders in runs.items()}
    (plain, folders), *_ = runs.items()
    insights = [_insights(run, place) for run, place in zip(saved[plain], folders, strict=True)]
    errors = KnownErrors(data) if isinstance(data, AnnotatedData) else None
    tests = {
        method: [run.result.test for run in own] if errors is None else errors.test_scores(own)
        for method, own in saved.items()
    }
    found = [
        MethodRuns(method, [run.result for run in own], tests[method])
        for method, own in saved.items()
    ]
    return Demonstration(
        data=data,
        methods=[one for one in found if one.method != true],
        true=next((one for one in found if one.method == true), None),
        errors=[] if errors is None else [errors.found(own) for own in insights],
        insights=insights[0],
        run=folders[0],
    )


def _insights(run: SavedRun, folder: Path) -> Insights:
    if run.insights is None:
        raise UserError(f"{folder} was trained without insights; train it with them.")
    return run.insights


def _title(metric: str) -> str:
    return f"{METRICS[metric].title} {'↑' if METRICS[metric].higher_is_better else '↓'}"


def _spread(values: list[float]) -> str:
    """Mean and standard deviation; a single value alone."""
    return f"{fmean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")
