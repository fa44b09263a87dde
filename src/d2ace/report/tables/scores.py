"""Tables of the comparison: scores, ranks, tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from d2ace import evaluation
from d2ace.evaluation import METRICS
from d2ace.report.judgement import Judgement, comparable
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.method_names import CANDIDATE
from d2ace.report.published import Published
from d2ace.report.registry import register_table
from d2ace.report.run_values import mean_score, was_improving
from d2ace.report.topics import ComparisonTopic
from d2ace.report.wording import OUTCOMES, counted, metric_title
from d2ace.training import STILL_IMPROVING

from .table import Cell, ReportTable, Value, figure, p_equals, p_text, word

LEFT_OUT = "The paper's numbers stand only beside runs with the paper's settings."
MARK = "†"
MARKED = (
    f"{MARK} half of the runs or more were still improving: their best epoch is within the last "
    f"5 % of their epochs, so that {STILL_IMPROVING}."
)


def scores(
    name: str, comparison: MethodComparison, metric: str, judgement: Judgement, published: Published
) -> ReportTable:
    """Mean and standard deviation of every method on every dataset, beside what was published."""
    methods, means = comparison.methods, comparison.means(metric)
    rows: list[list[Cell]] = []
    data: list[dict[str, Value]] = []
    unmarked = told = left_out = early = False
    for dataset in comparison.datasets:
        fair = comparison.fair(metric, dataset)
        places = _places(means[dataset], METRICS[metric].higher_is_better) if fair else {}
        unmarked = unmarked or not fair
        most = max(comparison.values(metric, dataset, method).size for method in methods)
        beside = Beside(published, comparison, metric, dataset)
        row = [Cell(dataset, dataset, note=beside.note)]
        for method in methods:
            values = comparison.values(metric, dataset, method)
            printed, why = beside.score(method)
            told = told or printed is not None
            left_out = left_out or bool(beside.note or why)
            notes = []
            if 0 < values.size < most:
                notes.append(f"{values.size} of {counted(most, 'run')}")
            if printed is not None:
                notes.append(f"paper {printed:.4f}")
            elif why and not beside.note:
                notes.append(f"no paper value: {why}")
            if not values.size:
                row.append(Cell("–", None, note="\n".join(notes)))
                continue
            runs = comparison.runs(dataset, method)
            mean = mean_score(runs, metric)
            deviation = float(values.std(ddof=1)) if values.size > 1 else None
            place = places.get(method)
            improving = sum(map(was_improving, runs))
            mark = MARK if 2 * improving >= len(runs) else ""
            early = early or bool(mark)
            row.append(
                Cell(
                    f"{mean:.4f}{mark}",
                    mean,
                    spread="" if deviation is None else f"±{deviation:.4f}",
                    place=place if place is not None and place <= 3 else 0,
                    note="\n".join(notes),
                )
            )
            data.append(
                {
                    "dataset": dataset,
                    "method": method,
                    "mean": mean,
                    "sd": deviation,
                    "runs": int(values.size),
                    "rank": place,
                    "published": printed,
                    "published_missing": why or ("" if printed is not None else "not published"),
                    "still_improving": improving,
                }
            )
        rows.append(row)
    return ReportTable(
        name=name,
        title=f"{METRICS[metric].title}, {comparison.heading}",
        caption=(
            f"{metric_title(metric)}: mean ± standard deviation on the test folds, over "
            f"{comparison.spread()}. 1, 2 and 3 mark the best three of a row"
            + (", unless its methods have different folds or seeds." if unmarked else ".")
            + (" “paper” is the published score." if told else "")
            + (f" {LEFT_OUT}" if left_out else "")
            + (f" {MARKED}" if early else "")
        ),
        columns=["Dataset", *methods],
        rows=rows,
        foot=[_average_ranks("Average rank", comparison, metric, judgement, published).cells],
        data=data,
    )


def ranks(
    name: str, comparison: MethodComparison, judged: dict[str, Judgement], published: Published
) -> ReportTable:
    """Average rank of every method in every metric."""
    found: list[_RankRow] = []
    data: list[dict[str, Value]] = []
    for metric, judgement in judged.items():
        heading = METRICS[metric].title
        found.append(_average_ranks(heading, comparison, metric, judgement, published))
        if len(judgement.average_ranks) > 1:
            every = evaluation.ranks(judgement.table, METRICS[metric].higher_is_better)
            data += [
                {"metric": metric, "dataset": str(dataset), "method": str(method), "rank": rank}
                for dataset, own in every.items()
                for method, rank in own.items()
            ]
    counts = sorted({judgement.datasets for judgement in judged.values()})
    over = " or ".join(str(count) for count in counts)
    left = sorted({name for judgement in judged.values() for name in judgement.left_out})
    gaps = f" Left out because of gaps: {', '.join(left)}." if left else ""
    return ReportTable(
        name=name,
        title=f"Average ranks, {comparison.heading}",
        caption=(
            f"Mean over {over} dataset{'' if counts == [1] else 's'} of the rank among the "
            "methods; 1 is best. Ranks are those of the printed scores, equal scores share the "
            f"lowest rank, as in the paper.{gaps}"
            + (
                " “paper” is the published average, over thirteen datasets and eight methods."
                if any(row.told for row in found)
                else ""
            )
            + (f" {LEFT_OUT}" if any(row.left_out for row in found) else "")
        ),
        columns=["Metric", *comparison.methods],
        rows=[row.cells for row in found],
        data=data or None,
    )


def tests(
    name: str, comparison: MethodComparison, judged: dict[str, Judgement], published: Published
) -> ReportTable:
    """The reference method against every other: Wilcoxon, Holm, Friedman in the caption."""
    rows = []
    friedman = []
    for metric, judgement in judged.items():
        for method, one in judgement.tests.items():
            holm = judgement.holm.get(method)
            p = published.p_value(metric, comparison.model, method)
            why = ""
            if judgement.reference != CANDIDATE:
                p = None
            elif p is not None:
                why = _why_not(published, comparison, judgement, judgement.reference, method)
            rows.append(
                [
                    word(METRICS[metric].title),
                    word(judgement.reference),
                    word(method),
                    word(f"{one.better}/{one.equal}/{one.worse}"),
                    figure(one.rank_biserial, "+.2f"),
                    Cell(p_text(one.p_value), one.p_value),
                    Cell(p_text(holm), holm) if holm is not None else Cell("–"),
                    word(OUTCOMES[judgement.outcome(method)]),
                    Cell("–", None, note=f"left out: {why}") if why else figure(p),
                ]
            )
        if judgement.friedman is not None:
            friedman.append(f"{METRICS[metric].title} {p_equals(judgement.friedman)}")
    together = f" Friedman test of all methods: {', '.join(friedman)}." if friedman else ""
    few = [judgement.datasets for judgement in judged.values() if not judgement.enough]
    return ReportTable(
        name=name,
        title=f"Signed-rank tests, {comparison.heading}",
        caption=(
            "Is the first method better than the second? One-sided Wilcoxon signed-rank test over "
            "datasets (normal approximation, as in the paper), then corrected for the number of "
            "methods by Holm. Effect is the rank-biserial correlation, from −1 to 1."
            + together
            + (f" {powerless(max(few))}" if few else "")
        ),
        columns=[
            "Metric",
            "Method",
            "Against",
            "Better / equal / worse",
            "Effect",
            "p",
            "p (Holm)",
            "Verdict",
            "p published",
        ],
        rows=rows,
    )


def powerless(datasets: int) -> str:
    """Why the signed-rank test says nothing here."""
    return (
        f"Over {counted(datasets, 'dataset')} the signed-rank test has no power: "
        "its p-values are shown but decide nothing."
    )


class Beside:
    """The published scores of one dataset, where our runs on it were made in the same way."""

    def __init__(
        self, published: Published, comparison: MethodComparison, metric: str, dataset: str
    ) -> None:
        self._published = published
        self._runs = {method: comparison.runs(dataset, method) for method in comparison.methods}
        every = [run for runs in self._runs.values() for run in runs]
        self._printed = {
            method: published.score(metric, comparison.model, every[0].dataset, method)
            for method in self._runs
        }
        there = any(printed is not None for printed in self._printed.values())
        self._why = published.why_not(every) if there else ""
        self.note = f"no paper values: {self._why}" if self._why else ""
        """For the whole row."""

    def score(self, method: str) -> tuple[float | None, str]:
        """The score, or why it does not stand here; empty where none was published."""
        printed = self._printed[method]
        if printed is None:
            return None, ""
        why = self._why or self._published.why_not(self._runs[method], method)
        return (None, why) if why else (printed, "")


def _why_not(
    published: Published, comparison: MethodComparison, judgement: Judgement, *methods: str
) -> str:
    """Why printed ranks and tests of these methods do not stand beside ours."""
    found = [
        published.why_not(comparison.runs(dataset, method), method)
        for method in methods
        for dataset in judgement.table
    ]
    return "; ".join(dict.fromkeys(filter(None, found)))


class _RankRow(NamedTuple):
    cells: list[Cell]
    told: bool
    """Whether it holds a published rank."""
    left_out: bool
    """Whether one was left out, because our runs were not made as the paper's."""


def _average_ranks(
    heading: str,
    comparison: MethodComparison,
    metric: str,
    judgement: Judgement,
    published: Published,
) -> _RankRow:
    places = _places(judgement.average_ranks, higher_is_better=False)
    every = {
        method: published.average_rank(metric, comparison.model, method)
        for method in comparison.methods
    }
    judged = [
        run
        for dataset in judgement.table
        for method in comparison.methods
        for run in comparison.runs(dataset, method)
    ]
    there = any(printed is not None for printed in every.values())
    whole = published.why_not(judged) if there else ""
    ranked = published.ranked(metric, comparison.model)
    if there and not whole and not ranked <= set(judgement.average_ranks):
        whole = f"ranks among {counted(len(ranked), 'method')}, which are not all here"
    row = [Cell(heading, heading, note=f"no paper values: {whole}" if whole else "")]
    told, left_out = False, bool(whole)
    for method, printed in every.items():
        rank = judgement.average_ranks.get(method)
        note = ""
        if printed is not None and not whole:
            why = _why_not(published, comparison, judgement, method)
            note = f"no paper value: {why}" if why else f"paper {printed:.2f}"
            told, left_out = told or not why, left_out or bool(why)
        place = places.get(method, 0)
        row.append(figure(rank, ".2f", place=place if place <= 3 else 0, note=note))
    return _RankRow(row, told, left_out)


def _places(row: dict[str, float], higher_is_better: bool) -> dict[str, int]:
    """Place of every method; equals share the better one."""
    sign = 1 if higher_is_better else -1
    return {
        method: 1 + sum(sign * other > sign * own for other in row.values())
        for method, own in row.items()
    }


@register_table("scores", order=10)
def _scores(topic: ComparisonTopic) -> Iterator[ReportTable]:
    for metric, judgement in topic.judged.items():
        name = topic.name("scores", topic.heading, metric)
        yield scores(name, topic.comparison, metric, judgement, topic.published)


@register_table("ranks", order=10)
def _ranks_and_tests(topic: ComparisonTopic) -> Iterator[ReportTable]:
    judged = comparable(topic.judged)
    yield ranks(topic.name("ranks", topic.heading), topic.comparison, judged, topic.published)
    yield tests(topic.name("tests", topic.heading), topic.comparison, judged, topic.published)
