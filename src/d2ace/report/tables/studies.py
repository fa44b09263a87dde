"""Tables of ablations and of sweeps over options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from d2ace.benchmark.plan import ABLATION, own_values, printed
from d2ace.benchmark.store import StoredRun
from d2ace.evaluation import METRICS
from d2ace.report.collect import shown
from d2ace.report.figures.studies import FULL
from d2ace.report.intervals import HOW, interval
from d2ace.report.method_comparison import DIGITS, MethodComparison
from d2ace.report.registry import register_table
from d2ace.report.run_values import Array, mean_score, paired, pairs, test_score
from d2ace.report.sweeps import Sweep, as_point
from d2ace.report.topics import ComparisonTopic, SweepTopic
from d2ace.report.wording import counted
from d2ace.selectors import SELECTORS

from .table import Cell, ReportTable, Value, signed, word


def ablation(name: str, study: MethodComparison, dataset: str) -> ReportTable:
    """Every variant in every metric, and its difference to the full method."""
    rows = []
    data: list[dict[str, Value]] = []
    here = [variant for variant in study.methods if study.runs(dataset, variant)]
    metrics = shown(study.every_run)
    for variant in here:
        runs = study.runs(dataset, variant)
        what, _ = ABLATION.get(variant, ("", {}))
        row = [word(variant), word(what)]
        for metric in metrics:
            row.append(_score(runs, metric))
            one = interval(study.differences(metric, variant, baseline=FULL, datasets=[dataset]))
            data.append(
                {
                    "variant": variant,
                    "metric": metric,
                    **_numbers(runs, metric),
                    "difference": one.mean,
                    "low": one.low,
                    "high": one.high,
                }
            )
        first = interval(study.differences(metrics[0], variant, baseline=FULL, datasets=[dataset]))
        text = "–" if variant == FULL else signed(str(first))
        row.append(Cell(text, None if variant == FULL or not first.count else first.mean))
        rows.append(row)
    fair = len({pairs(study.runs(dataset, variant)) for variant in here}) == 1
    return ReportTable(
        name=name,
        title=f"Ablation, {study.model} on {dataset}",
        caption=(
            f"Mean ± standard deviation on the test folds, over {study.spread([dataset])}; the "
            f"last column is the paired difference to variant {FULL} with its 95 % interval, "
            f"positive is better. {HOW}"
            + (" Not all variants have all folds: none is marked." if not fair else "")
        ),
        columns=[
            "Variant",
            "What differs",
            *[METRICS[metric].title for metric in metrics],
            f"{METRICS[metrics[0]].title} against {FULL}",
        ],
        rows=_marked(rows, metrics, first=2) if fair else rows,
        data=data,
    )


def sweep(name: str, study: Sweep) -> ReportTable:
    """Every value in every metric, and its difference to the method's own value."""
    usual = _usual(study)
    metrics = shown(run for runs in study.points.values() for run in runs)
    rows = []
    data: list[dict[str, Value]] = []
    for values, runs in study.points.items():
        row = [
            *[_value(value) for value in values],
            *[_score(runs, metric) for metric in metrics],
            Cell(str(len(runs)), len(runs)),
        ]
        if usual is not None:
            one = interval([paired(metrics[0], runs, study.points[usual])])
            own = values == usual or not one.count
            row.append(Cell("–") if own else Cell(signed(str(one)), one.mean))
        rows.append(row)
        for metric in metrics:
            line: dict[str, Value] = {
                option: _value(value).text
                for option, value in zip(study.options, values, strict=True)
            }
            line |= {"metric": metric, **_numbers(runs, metric)}
            if usual is not None:
                one = interval([paired(metric, runs, study.points[usual])])
                mean = one.mean if one.count else None
                line |= {"difference": mean, "low": one.low, "high": one.high}
            data.append(line)
    listed = " and ".join(printed(option) for option in study.options)
    usually = "" if usual is None else ", ".join(_value(value).text for value in usual)
    against = [f"{METRICS[metrics[0]].title} against {usually}"] if usually else []
    return ReportTable(
        name=name,
        title=f"Sweep over {listed} of {study.method}, {study.model} on {study.dataset}",
        caption=" ".join(
            filter(
                None,
                [
                    "Mean ± standard deviation on the test folds for "
                    f"{counted(len(study.points), 'value')} of {listed}.",
                    "1, 2 and 3 mark the best three of a column." if study.fair else "",
                    f"The last column is the paired difference to {usually}, the method's own "
                    f"value, with its 95 % interval, positive is better. {HOW}"
                    if usually
                    else "",
                    _unknown(study),
                    study.note,
                ],
            )
        ),
        columns=[
            *[printed(option) for option in study.options],
            *[METRICS[metric].title for metric in metrics],
            "Runs",
            *against,
        ],
        rows=_marked(rows, metrics, first=len(study.options)) if study.fair else rows,
        data=data,
    )


def _usual(study: Sweep) -> tuple[Any, ...] | None:
    """The selector's default values, if they were run.

    Those of the library's methods are known here; those of your own were stored with the runs. A
    report never runs code that a store names.
    """
    run = next(iter(study.points.values()))[0]
    own = run.own_values or {}
    if study.selector in SELECTORS:
        given = run.config["selector_options"].items()
        fixed = {option: value for option, value in given if option not in study.options}
        own = own_values(SELECTORS[study.selector], study.options, fixed)
    values = tuple(as_point(own.get(option)) for option in study.options)
    plain = all(isinstance(value, (bool, int, float, str, tuple)) for value in values)
    return values if plain and values in study.points else None


def _unknown(study: Sweep) -> str:
    """What to say where runs of a user's own selector were stored without its values."""
    runs = next(iter(study.points.values()))
    if study.selector in SELECTORS or runs[0].own_values is not None:
        return ""
    return (
        "The method's default value was not stored with these runs; run the same d2ace sweep "
        "to add it, without running them again."
    )


def _marked(rows: list[list[Cell]], metrics: list[str], first: int) -> list[list[Cell]]:
    """The best three of each metric's column marked."""
    for place, metric in enumerate(metrics, start=first):
        higher = METRICS[metric].higher_is_better
        # By printed score: equal ones share a place.
        values = [row[place].value for row in rows]
        printed = [round(value, DIGITS) for value in values if isinstance(value, float)]
        for row in rows:
            cell = row[place]
            if not isinstance(cell.value, float):
                continue
            own = round(cell.value, DIGITS)
            rank = 1 + sum(other > own if higher else other < own for other in printed)
            if rank <= 3 and len(printed) > 1:
                row[place] = replace(cell, place=rank)
    return rows


def _score(runs: tuple[StoredRun, ...], metric: str) -> Cell:
    values = _values(runs, metric)
    if not values.size:
        return Cell("–")
    mean = mean_score(runs, metric)
    spread = f"±{values.std(ddof=1):.4f}" if values.size > 1 else ""
    return Cell(f"{mean:.4f}", mean, spread=spread)


def _numbers(runs: tuple[StoredRun, ...], metric: str) -> dict[str, Value]:
    values = _values(runs, metric)
    return {
        "mean": mean_score(runs, metric) if values.size else None,
        "sd": float(values.std(ddof=1)) if values.size > 1 else None,
        "runs": int(values.size),
    }


def _values(runs: tuple[StoredRun, ...], metric: str) -> Array:
    values = np.array([test_score(run, metric) for run in runs], dtype=float)
    return values[np.isfinite(values)]


def _value(value: Any) -> Cell:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Cell(f"{value:g}", value)
    if isinstance(value, tuple):
        return word(" → ".join(f"{item:g}" for item in value))
    return word(str(value))


@register_table("ablation", order=10)
def _ablation(topic: ComparisonTopic) -> Iterator[ReportTable]:
    model = topic.comparison.model
    for dataset in topic.comparison.datasets:
        yield ablation(topic.name("ablation", model, dataset), topic.comparison, dataset)


@register_table("sweeps", order=10)
def _sweep(topic: SweepTopic) -> Iterator[ReportTable]:
    yield sweep(topic.name("sweep", *topic.place), topic.sweep)
