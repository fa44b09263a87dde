"""Methods against Random: clear differences, equivalence, and who reaches the best of whom."""

from __future__ import annotations

from collections.abc import Iterator

from beside import head, markdown_row
from judging import FIRST, RANKED, difference, main_study

from d2ace.evaluation import METRICS, holm
from d2ace.report.collect import Laboratory
from d2ace.report.intervals import interval
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.method_names import BASELINE, CANDIDATE, order
from d2ace.report.tables import convergence as convergence_tables
from d2ace.report.tables import equivalence as equivalence_table
from d2ace.report.tables.table import signed


def clear(laboratory: Laboratory) -> list[str]:
    """Every difference to Random over the datasets of a model that is clear of zero."""
    columns = ["model", "method", "metric", f"better than {BASELINE} by", "p", "p, Holm"]
    found = {
        (one.model, method, METRICS[metric].title): interval(one.differences(metric, method))
        for one in _compared(laboratory)
        for method in _rivals(one)
        for metric in RANKED
    }
    every = {name: 1.0 if gap.p_value is None else gap.p_value for name, gap in found.items()}
    corrected = holm(every)
    rows = [
        [*name, signed(str(gap)), f"{every[name]:.4f}", f"{corrected[name]:.4f}"]
        for name, gap in found.items()
        if not gap.noise
    ]
    said = f"Clear of zero, {len(rows)} of {len(found)} differences:"
    return [said, "", *head(columns, words=3), *map(markdown_row, rows)]


def equivalent(laboratory: Laboratory) -> list[str]:
    """The verdict of the test over datasets, for every method with every model."""
    compared = _compared(laboratory)
    found = {one.model: equivalence_table.found(one) for one in compared}
    columns = [f"{one.model}, {len(one.datasets)} datasets" for one in compared]
    rows = []
    for method in order({method for tested in found.values() for method in tested}):
        cells = []
        for tested in found.values():
            _, one = tested[method]
            bounds = f"[{difference(one.low)}, {difference(one.high)}]"
            cells.append(f"{one.verdict}: {difference(one.mean)} {bounds}")
        rows.append([method, *cells])
    table = [*head(["method", *columns], words=len(columns) + 1), *map(markdown_row, rows)]
    return [*table, "", *(f"- {sentence}" for sentence in _without_one(compared))]


def _without_one(compared: list[MethodComparison]) -> Iterator[str]:
    """How often what is equivalent stays so when one of the datasets is left out."""
    for one in compared:
        equal = [
            method
            for method, (_, tested) in equivalence_table.found(one).items()
            if tested.verdict == "equivalent"
        ]
        for method in equal:
            stays = 0
            for left_out in one.datasets:
                cells = {at: runs for at, runs in one.cells.items() if at[0] != left_out}
                less = equivalence_table.found(MethodComparison(one.study, one.model, cells))
                stays += less[method][1].verdict == "equivalent"
            yield (
                f"{method} with {one.model}: still equivalent in {stays} of {len(one.datasets)} "
                "cases where one dataset is left out."
            )


def best(laboratory: Laboratory) -> list[str]:
    """How often, and when, D2ACE and Random reach the best validation score of each other."""
    table = convergence_tables.targets("targets", main_study(laboratory, FIRST))
    columns = [
        "dataset",
        f"{CANDIDATE} reaches {BASELINE}'s best",
        "median epoch",
        f"{BASELINE} reaches {CANDIDATE}'s best",
        "median epoch",
    ]
    found = [row for row in (table.data or () if table else ()) if row["method"] == CANDIDATE]
    rows = [
        [
            str(row["dataset"]),
            *_arrivals(row["reached"], row["runs"], row["epochs"]),
            *_arrivals(row["baseline_reached"], row["runs"], row["baseline_epochs"]),
        ]
        for row in found
    ]
    there, back, runs = (
        sum(row[name] for row in found) for name in ("reached", "baseline_reached", "runs")
    )
    rows.append(["all", f"{there} of {runs}", "", f"{back} of {runs}", ""])
    return [*head(columns, words=1), *map(markdown_row, rows)]


def _arrivals(reached: int, runs: int, epochs: float | None) -> tuple[str, str]:
    return f"{reached} of {runs}", "–" if epochs is None else f"{epochs:g}"


def _compared(laboratory: Laboratory) -> list[MethodComparison]:
    return [one for one in laboratory.comparisons if one.study == "main"]


def _rivals(one: MethodComparison) -> list[str]:
    return [method for method in one.methods if method != BASELINE]
