"""The tables of insights.md, from the lines of insights.csv."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean

DEVELOPMENT = ("emotions", "scene", "yeast", "enron", "bibtex")
LOOKED_AT_ONCE = ("birds", "cal500", "corel5k", "rcv1subset1", "yahoo-arts1")
SCORES = (
    "insights",
    "cleanlab",
    "cleanlab at half",
    "cleanlab at quarter",
    "cleanlab adjusted",
    "folds, our score",
    "last loss",
    "aum",
    "neighbours",
)
Line = dict[str, str]


def read(path: Path) -> list[Line]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def chosen(lines: Iterable[Line], **values: str) -> list[Line]:
    return [line for line in lines if all(line[name] == value for name, value in values.items())]


def mean(lines: Iterable[Line], column: str) -> float | None:
    values = [float(line[column]) for line in lines if line[column]]
    return fmean(values) if values else None


def shown(value: float | None, digits: int = 3) -> str:
    text = "" if value is None else f"{value:.{digits}f}"
    return text[1:] if text.startswith("0.") else text


def markdown(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def datasets(lines: list[Line]) -> list[str]:
    there = {line["dataset"] for line in lines}
    return [name for name in DEVELOPMENT + LOOKED_AT_ONCE if name in there]


def by_dataset(lines: list[Line], column: str) -> str:
    """One row a dataset, one column a score, and the ratio of ours to cleanlab's."""
    rows, ratios = [], []
    for name in datasets(lines):
        here = chosen(lines, dataset=name)
        values = [mean(chosen(here, score=score), column) for score in SCORES]
        ratios.append((values[0] or 0.0) / (values[1] or 1.0))
        runs = len(chosen(here, score="insights"))
        rows.append([name, str(runs), *map(shown, values), f"{ratios[-1]:.2f}"])
    rows.append(["mean ratio", "", *[""] * len(SCORES), f"{fmean(ratios):.2f}"])
    return markdown(["dataset", "runs", *SCORES, "insights / cleanlab"], rows)


def flagged(lines: list[Line]) -> str:
    head = ["dataset"]
    for score in ("insights", "cleanlab"):
        head += [f"{score}: flagged / errors", "precision", "recall", "F1"]
    rows = []
    for name in datasets(lines):
        row = [name]
        for score in ("insights", "cleanlab"):
            here = chosen(lines, dataset=name, score=score)
            share = fmean(int(line["flagged"]) / int(line["errors"]) for line in here)
            row += [f"{share:.2f}"]
            row += [shown(mean(here, column)) for column in ("precision", "recall", "f1")]
        rows.append(row)
    return markdown(head, rows)


def seconds(lines: list[Line]) -> str:
    head = ["dataset", "training", "with insights", "five folds and cleanlab", "ratio", "added"]
    rows = []
    for name in datasets(lines):
        here = chosen(lines, dataset=name)
        ours = mean(chosen(here, score="insights"), "seconds") or 0.0
        training = mean(here, "training_seconds") or 0.0
        folds = mean(chosen(here, score="cleanlab"), "seconds") or 0.0
        values = [f"{value:.2f}" for value in (training, ours, folds, ours / folds)]
        rows.append([name, *values, f"{100 * (ours / training - 1):.1f} %"])
    return markdown(head, rows)


def split(lines: list[Line], column: str, values: Iterable[str]) -> str:
    """Average precision of ours and cleanlab's, for each value of a column."""
    values = list(values)
    rows = []
    for name in datasets(lines):
        cells = [
            " / ".join(
                shown(
                    mean(
                        chosen(lines, dataset=name, score=s, **{column: value}), "average_precision"
                    )
                )
                for s in ("insights", "cleanlab")
            )
            for value in values
        ]
        rows.append([name, *cells])
    return markdown(["dataset", *values], rows)


def draws(lines: list[Line]) -> str:
    """Networks and draws, on the errors that all of them have seen (10 %, seed 0)."""
    head = ["dataset", "network", "kinds", "insights, Random", "insights, D2ACE", "cleanlab"]
    lines = chosen(lines, rate="10", seed="0")
    rows = []
    for name in datasets(lines):
        for model in ("mlp", "clif"):
            here = chosen(lines, dataset=name, model=model)
            if not here:
                continue
            ours = [chosen(here, score="insights", draw=draw) for draw in ("random", "d2ace")]
            found = [*ours, chosen(here, score="cleanlab", draw="random")]
            values = [shown(mean(part, "average_precision")) for part in found]
            rows.append([name, model, str(len(found[0])), *values])
    return markdown(head, rows)


def summary(path: Path) -> str:
    """The table of docs/explanation/insights.md."""
    lines = chosen(read(path), model="mlp", draw="random")
    head = ["dataset", "found: insights", "cleanlab", "flagged: precision", "recall", "F1"]
    head += ["F1 of cleanlab", "cost"]
    rows = []
    for name in datasets(lines):
        ours, theirs = (chosen(lines, dataset=name, score=s) for s in ("insights", "cleanlab"))
        values = [mean(part, "average_precision") for part in (ours, theirs)]
        values += [mean(ours, column) for column in ("precision", "recall", "f1")]
        values += [mean(theirs, "f1")]
        cost = (mean(ours, "seconds") or 0.0) / (mean(theirs, "seconds") or 1.0)
        rows.append([name, *map(shown, values), shown(cost, 2)])
    return markdown(head, rows)


def tables(path: Path) -> str:
    lines = read(path)
    main = chosen(lines, model="mlp", draw="random")
    parts: list[tuple[str, Callable[[], str]]] = [
        ("Average precision", lambda: by_dataset(main, "average_precision")),
        (
            "Precision among as many as there are errors",
            lambda: by_dataset(main, "precision_at_errors"),
        ),
        ("Flagged pairs", lambda: flagged(main)),
        ("Processor seconds", lambda: seconds(main)),
        (
            "Average precision by kind (insights / cleanlab)",
            lambda: split(main, "kind", ("moved", "missing", "spurious", "confused")),
        ),
        (
            "Average precision by rate (insights / cleanlab)",
            lambda: split(main, "rate", ("5", "10", "20")),
        ),
        ("Other draws and networks: average precision", lambda: draws(lines)),
    ]
    return "\n\n".join(f"#### {title}\n\n{part()}" for title, part in parts)
