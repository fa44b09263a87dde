"""Differences to Random within a cell, and how they are written down."""

from __future__ import annotations

import csv
import gzip
import io
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from d2ace.evaluation import student_interval
from d2ace.evaluation.statistics import Interval

HERE = Path(__file__).resolve().parent

Row = dict[str, str]
Gains = dict[str, float]
"""Dataset -> difference to Random, mean over its cells."""


def read(name: str) -> list[Row]:
    """The rows of a file, compressed or not; of cells that were run twice, the first."""
    packed = HERE / f"{name}.csv.gz"
    text = (
        gzip.decompress(packed.read_bytes()).decode()
        if packed.exists()
        else (HERE / f"{name}.csv").read_text(encoding="utf-8")
    )
    rows: dict[tuple[str, ...], Row] = {}
    for row in csv.DictReader(io.StringIO(text)):
        rows.setdefault((*cell_of(row), row["rule"]), row)
    return list(rows.values())


def cell_of(row: Row) -> tuple[str, ...]:
    return tuple(row[key] for key in ("dataset", "regime", "fold", "seed", "order"))


def gains(rows: Sequence[Row], regime: str, rule: str, score: str) -> Gains:
    """Differences to Random in the same cell; folds and seeds of a dataset are averaged."""
    random = {cell_of(row): float(row[score]) for row in rows if row["rule"] == "random"}
    found = defaultdict(list)
    for row in rows:
        if row["regime"] == regime and row["rule"] == rule:
            found[row["dataset"]].append(float(row[score]) - random[cell_of(row)])
    return {dataset: float(np.mean(values)) for dataset, values in found.items()}


def signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def spread(found: Gains) -> Interval:
    """Mean over datasets with its 95 % interval."""
    values = np.array(list(found.values()))
    variance = float(values.var(ddof=1)) / values.size
    return student_interval(float(values.mean()), variance, values.size - 1)


def interval(found: Gains) -> str:
    """As printed."""
    got = spread(found)
    return f"{signed(got.mean)} [{signed(got.low)}, {signed(got.high)}]"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *rows))


def ordered(rows: Sequence[Row], key: str) -> list[str]:
    return list(dict.fromkeys(row[key] for row in rows))
