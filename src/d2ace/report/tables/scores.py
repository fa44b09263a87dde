"""Tables of the comparison: scores, ranks, tests."""

from __future__ import annotations

import re

from d2ace import evaluation
from d2ace.evaluation import METRICS
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.published import Published
from d2ace.report.run_values import mean_score
from d2ace.report.verdicts import Verdicts
from d2ace.report.wording import counted, metric_title

from .table import Cell, ReportTable, Value, figure, p_equals, p_text, word

LEFT_OUT = "The paper's numbers stand only beside runs with the paper's settings."


def scores(
    name: str, comparison: MethodComparison, metric: str, verdicts: Verdicts, published: Published
) -> ReportTable:
    """Mean and standard deviation of every method on every dataset, beside what was published."""
    methods, means = comparison.methods, comparison.means(metric)
    rows: list[list[Cell]] = []
    data: list[dict[str, Value]] = []
    unmarked = False
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
            mean = mean_score(comparison.runs(dataset, method), metric)
            deviation = float(values.std(ddof=1)) if values.size > 1 else None
            place = places.get(method)
            row.append(
                Cell(
                    f"{mean:.4f}",
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
            + (" “paper” is the published score." if _any_published(rows) else "")
            + ("" if not _any_left_out(rows) else f" {LEFT_OUT}")
        ),
        columns=["Dataset", *methods],
        rows=rows,
        foot=[_average_ranks("Average rank", comparison, metric, verdicts, published)],
        data=data,
    )


def ranks(
    name: str, comparison: MethodComparison, judged: dict[str, Verdicts], published: Published
) -> ReportTable:
    """Average rank of every method in every metric."""
    rows = []
    data: list[dict[str, Value]] = []
    for metric, verdicts in judged.items():
        heading = METRICS[metric].title
        rows.append(_average_ranks(heading, comparison, metric, verdicts, published))
        if len(verdicts.average_ranks) > 1:
            every = evaluation.ranks(verdicts.table, METRICS[metric].higher_is_better)
            data += [
                {"metric": metric, "dataset": str(dataset), "method": str(method), "rank": rank}
                for dataset, own in every.items()
                for method, rank in own.items()
            ]
    counts = sorted({verdicts.datasets for verdicts in judged.values()})
    over = " or ".join(str(count) for count in counts)
    left = sorted({name for verdicts in judged.values() for name in verdicts.left_out})
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
                if _any_published(rows)
                else ""
            )
            + ("" if not _any_left_out(rows) else f" {LEFT_OUT}")
        ),
        columns=["Metric", *comparison.methods],
        rows=rows,
        data=data or None,
    )


def tests(
    name: str, comparison: MethodComparison, judged: dict[str, Verdicts], published: Published
) -> ReportTable:
    """The reference method against every other: Wilcoxon, Holm, Friedman in the caption."""
    rows = []
    friedman = []
    for metric, verdicts in judged.items():
        for method, one in verdicts.tests.items():
            holm = verdicts.holm.get(method)
            p = published.p_value(metric, comparison.model, method)
            why = ""
            if verdicts.reference != "D2ACE":
                p = None
            elif p is not None:
                why = _why_not(published, comparison, verdicts, verdicts.reference, method)
            rows.append(
                [
                    word(METRICS[metric].title),
                    word(verdicts.reference),
                    word(method),
                    word(f"{one.better}/{one.equal}/{one.worse}"),
                    figure(one.rank_biserial, "+.2f"),
                    Cell(p_text(one.p_value), one.p_value),
                    Cell(p_text(holm), holm) if holm is not None else Cell("–"),
                    word(verdicts.verdict(method)),
                    Cell("–", None, note=f"left out: {why}") if why else figure(p),
                ]
            )
        if verdicts.friedman is not None:
            friedman.append(f"{METRICS[metric].title} {p_equals(verdicts.friedman)}")
    together = f" Friedman test of all methods: {', '.join(friedman)}." if friedman else ""
    few = [verdicts.datasets for verdicts in judged.values() if not verdicts.enough]
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
    published: Published, comparison: MethodComparison, verdicts: Verdicts, *methods: str
) -> str:
    """Why printed ranks and tests of these methods do not stand beside ours."""
    found = [
        published.why_not(comparison.runs(dataset, method), method)
        for method in methods
        for dataset in verdicts.table
    ]
    return "; ".join(dict.fromkeys(filter(None, found)))


def _average_ranks(
    heading: str,
    comparison: MethodComparison,
    metric: str,
    verdicts: Verdicts,
    published: Published,
) -> list[Cell]:
    places = _places(verdicts.average_ranks, higher_is_better=False)
    every = {
        method: published.average_rank(metric, comparison.model, method)
        for method in comparison.methods
    }
    judged = [
        run
        for dataset in verdicts.table
        for method in comparison.methods
        for run in comparison.runs(dataset, method)
    ]
    there = any(printed is not None for printed in every.values())
    whole = published.why_not(judged) if there else ""
    ranked = published.ranked(metric, comparison.model)
    if there and not whole and not ranked <= set(verdicts.average_ranks):
        whole = f"ranks among {counted(len(ranked), 'method')}, which are not all here"
    row = [Cell(heading, heading, note=f"no paper values: {whole}" if whole else "")]
    for method, printed in every.items():
        rank = verdicts.average_ranks.get(method)
        note = ""
        if printed is not None and not whole:
            why = _why_not(published, comparison, verdicts, method)
            note = f"no paper value: {why}" if why else f"paper {printed:.2f}"
        place = places.get(method, 0)
        row.append(figure(rank, ".2f", place=place if place <= 3 else 0, note=note))
    return row


def _places(row: dict[str, float], higher_is_better: bool) -> dict[str, int]:
    """Place of every method; equals share the better one."""
    sign = 1 if higher_is_better else -1
    return {
        method: 1 + sum(sign * other > sign * own for other in row.values())
        for method, own in row.items()
    }


def _any_published(rows: list[list[Cell]]) -> bool:
    return any(re.search(r"^paper \d", cell.note, re.M) for row in rows for cell in row)


def _any_left_out(rows: list[list[Cell]]) -> bool:
    return any("no paper value" in cell.note for row in rows for cell in row)
