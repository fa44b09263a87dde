"""Tables of ablations and of sweeps over options."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from d2ace.evaluation import METRICS

from .figures_studies import FULL
from .frames import SHOWN, Array, Comparison, Sweep, counted, test_score
from .store import StoredRun
from .studies import ABLATION, printed
from .tables import Cell, Table, Value, signed, word
from .verdicts import interval


def ablation(name: str, study: Comparison, dataset: str) -> Table:
    """Every variant in every metric, and its difference to the full method."""
    rows = []
    data: list[dict[str, Value]] = []
    for variant in study.methods:
        runs = study.runs(dataset, variant)
        if not runs:
            continue
        what, _ = ABLATION.get(variant, ("", {}))
        row = [word(variant), word(what)]
        for metric in SHOWN:
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
        first = interval(study.differences(SHOWN[0], variant, baseline=FULL, datasets=[dataset]))
        text = "–" if variant == FULL else signed(str(first))
        row.append(Cell(text, None if variant == FULL or not first.count else first.mean))
        rows.append(row)
    return Table(
        name=name,
        title=f"Ablation, {study.model} on {dataset}",
        caption=(
            f"Mean ± standard deviation on the test folds, over {study.spread()}; the last column "
            f"is the paired difference to variant {FULL} with its 95 % interval, positive is "
            "better."
        ),
        columns=[
            "Variant",
            "What differs",
            *[METRICS[metric].title for metric in SHOWN],
            f"{METRICS[SHOWN[0]].title} against {FULL}",
        ],
        rows=_marked(rows, first=2),
        data=data,
    )


def sweep(name: str, study: Sweep) -> Table:
    """Every value in every metric."""
    rows = []
    data: list[dict[str, Value]] = []
    for values, runs in study.points.items():
        rows.append(
            [
                *[_value(value) for value in values],
                *[_score(runs, metric) for metric in SHOWN],
                Cell(str(len(runs)), len(runs)),
            ]
        )
        for metric in SHOWN:
            row: dict[str, Value] = {
                option: _value(value).text
                for option, value in zip(study.options, values, strict=True)
            }
            data.append({**row, "metric": metric, **_numbers(runs, metric)})
    listed = " and ".join(printed(option) for option in study.options)
    return Table(
        name=name,
        title=f"Sweep over {listed}, {study.model} on {study.dataset}",
        caption=(
            f"Mean ± standard deviation on the test folds for "
            f"{counted(len(study.points), 'value')} of {listed}. "
            "1, 2 and 3 mark the best three of a column."
        ),
        columns=[
            *[printed(option) for option in study.options],
            *[METRICS[metric].title for metric in SHOWN],
            "Runs",
        ],
        rows=_marked(rows, first=len(study.options)),
        data=data,
    )


def _marked(rows: list[list[Cell]], first: int) -> list[list[Cell]]:
    """The best three of each metric's column marked, by printed score."""
    for place, metric in enumerate(SHOWN, start=first):
        higher = METRICS[metric].higher_is_better
        printed = [float(row[place].text) for row in rows if row[place].value is not None]
        for row in rows:
            cell = row[place]
            if cell.value is None:
                continue
            own = float(cell.text)
            rank = 1 + sum(other > own if higher else other < own for other in printed)
            if rank <= 3 and len(printed) > 1:
                row[place] = replace(cell, place=rank)
    return rows


def _score(runs: tuple[StoredRun, ...], metric: str) -> Cell:
    values = _values(runs, metric)
    if not values.size:
        return Cell("–")
    mean = float(values.mean())
    spread = f"±{values.std(ddof=1):.4f}" if values.size > 1 else ""
    return Cell(f"{mean:.4f}", mean, spread=spread)


def _numbers(runs: tuple[StoredRun, ...], metric: str) -> dict[str, Value]:
    values = _values(runs, metric)
    return {
        "mean": float(values.mean()) if values.size else None,
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
