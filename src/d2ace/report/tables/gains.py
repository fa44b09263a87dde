"""Tables of the difference to Random, paired by fold and seed: over datasets and on each."""

from __future__ import annotations

from collections.abc import Iterator

from d2ace.evaluation import METRICS
from d2ace.report.collect import shown
from d2ace.report.intervals import HOW, Pair, PairedInterval, interval
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.method_names import BASELINE, base_of
from d2ace.report.published import Published
from d2ace.report.registry import register_table
from d2ace.report.topics import ComparisonTopic
from d2ace.report.wording import SINGLE_PAIR, WITHIN_NOISE

from .scores import Beside
from .table import Cell, ReportTable, Value, signed, word


def gains(name: str, comparison: MethodComparison) -> ReportTable:
    """Difference to Random of every method in every metric, over all datasets."""
    rows = []
    data: list[dict[str, Value]] = []
    metrics = shown(comparison.every_run)
    for method in rivals(comparison):
        row = [word(method)]
        for metric in metrics:
            found = comparison.differences(metric, method)
            cell, numbers = over_datasets(found, len(comparison.datasets))
            row.append(cell)
            data.append({"metric": metric, "method": method, **numbers})
        rows.append(row)
    return ReportTable(
        name=name,
        title=f"Better than {BASELINE} by, {comparison.heading}",
        caption=(
            f"Mean difference to {BASELINE} in the metric's units, positive is better whatever "
            "the metric, over these datasets, which count alike, with its 95 % interval over "
            f"folds and seeds (paired). {HOW}"
        ),
        columns=["Method", *[METRICS[metric].title for metric in metrics]],
        rows=rows,
        data=data,
    )


def over_datasets(found: list[list[Pair]], datasets: int) -> tuple[Cell, dict[str, Value]]:
    """The mean over those of ``datasets`` that were found: a field, and what CSV files hold."""
    one = interval(found)
    numbers = _numbers(one)
    notes = [_certainty(one)]
    if 0 < len(found) < datasets:
        notes.append(f"{len(found)} of {datasets} datasets")
    cell = Cell(signed(str(one)), numbers["difference"], note="\n".join(filter(None, notes)))
    return cell, {**numbers, "datasets": len(found)}


def by_dataset(
    name: str, comparison: MethodComparison, metric: str, published: Published
) -> ReportTable:
    """Difference to Random on every dataset, beside the difference that was published."""
    methods = rivals(comparison)
    better = 1 if METRICS[metric].higher_is_better else -1
    rows = []
    data: list[dict[str, Value]] = []
    told = False
    for dataset in comparison.datasets:
        beside = Beside(published, comparison, metric, dataset)
        base, _ = beside.score(BASELINE)
        row = [word(dataset)]
        for method in methods:
            one = interval(comparison.differences(metric, method, datasets=[dataset]))
            printed, _ = beside.score(method)
            theirs = None
            another = base_of(method) != BASELINE  # a variant of it has its printed scores
            if another and printed is not None and base is not None:
                theirs = round(better * (printed - base), 4) + 0.0  # as printed, never −0
            told = told or theirs is not None
            paper = "" if theirs is None else signed(f"paper {theirs:+.4f}")
            note = "\n".join(filter(None, [_certainty(one), paper]))
            numbers = _numbers(one)
            row.append(
                Cell(
                    signed(one.mean_text),
                    numbers["difference"],
                    spread=signed(one.range_text),
                    note=note,
                )
            )
            data.append({"dataset": dataset, "method": method, **numbers, "published": theirs})
        rows.append(row)
    return ReportTable(
        name=name,
        title=f"{METRICS[metric].title} better than {BASELINE} by, {comparison.heading}",
        caption=(
            f"Mean difference to {BASELINE} on each dataset, positive is better, with its 95 % "
            f"interval over folds and seeds (paired). {HOW}"
            + (" “paper” is the difference of the published scores." if told else "")
        ),
        columns=["Dataset", *methods],
        rows=rows,
        data=data,
    )


def rivals(comparison: MethodComparison) -> list[str]:
    """All methods but the baseline."""
    return [method for method in comparison.methods if method != BASELINE]


def _certainty(one: PairedInterval) -> str:
    if one.low is None:
        return SINGLE_PAIR if one.count else ""
    sure = WITHIN_NOISE if one.noise else "clear of zero"
    return f"{sure}, between datasets" if one.between_datasets else sure


def _numbers(one: PairedInterval) -> dict[str, Value]:
    mean = one.mean if one.count else None
    return {"difference": mean, "low": one.low, "high": one.high, "pairs": one.count}


@register_table("scores", order=20)
def _gains(topic: ComparisonTopic) -> Iterator[ReportTable]:
    comparison = topic.comparison
    if BASELINE not in comparison.methods or len(comparison.methods) == 1:
        return
    yield gains(topic.name("gains", topic.heading), comparison)
    for metric in topic.judged:
        name = topic.name("gains", topic.heading, metric)
        yield by_dataset(name, comparison, metric, topic.published)
