"""What the commands print: plans, comparisons, JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from d2ace.benchmark.plan import RunSpec, canonical
from d2ace.benchmark.run import Monitor, plan
from d2ace.benchmark.store import Store
from d2ace.evaluation import METRICS
from d2ace.report import tell_apart

from .bench_view import duration
from .console import print_table

if TYPE_CHECKING:
    from .bench_session import Session

SHOWN = ("macro_auc", "macro_f1", "macro_f1_tuned", "ranking_loss")
"""Metrics of a comparison on a screen; JSON has all."""


def print_json(value: Any) -> None:
    """Print it as JSON, for scripts."""
    print(json.dumps(value, indent=2, allow_nan=False))


def print_plan(
    stores: Sequence[Store],
    specs: list[RunSpec],
    session: Session,
    notes: list[str],
    as_json: bool,
) -> None:
    """Print which runs are missing from these stores."""

    def status(spec: RunSpec) -> str | None:
        found = [store.status(spec) for store in stores]
        return "finished" if "finished" in found else next(filter(None, found), None)

    todo = plan(status, specs, retry=session.retry)
    pending = {spec.key for spec in todo.pending}
    names = tell_apart(specs)
    rows = [
        {
            "status": "pending" if spec.key in pending else status(spec),
            "study": spec.study,
            "dataset": names[spec.key],
            "model": spec.model,
            "method": spec.method,
            "fold": spec.config["fold"],
            "seed": spec.config["seed"],
            "key": spec.key,
        }
        for spec in specs
    ]
    if as_json:
        print_json({"runs": rows, "pending": len(pending), "notes": notes})
        return
    table = _table("status", "study", "dataset", "model", "method", "fold", "seed")
    for row in rows:
        table.add_row(*(Text(str(row[str(column.header)])) for column in table.columns))
    print_table(table)
    seconds = {key: mean for store in stores for key, mean in store.mean_seconds().items()}
    left = Monitor(len(pending), session.jobs, seconds).seconds_left(todo.pending)
    ahead = f", about {duration(left)}" if left else ""
    print(
        f"\n{len(pending)} runs to do{ahead}; {len(todo.stored)} finished, "
        f"{len(todo.failed)} failed before"
    )
    for note in notes:
        print(f"note: {note}")


def print_comparison(compared: dict[str, Any]) -> None:
    """Print means on common folds and seeds, their differences, and other differences."""
    print(f"first:  {compared['first']}\nsecond: {compared['second']}\n")
    if compared["common"]:
        rows = compared["common"]
        shown = [name for name in SHOWN if any(_known(row["metrics"][name]) for row in rows)]
        titles = [METRICS[metric].title for metric in shown]
        table = _table("study", "dataset", "model", "method", "pairs", *titles, "seconds")
        for row in rows:
            cells = [*_names(row), row["pairs"]]
            cells += [_change(row["metrics"][metric]) for metric in shown]
            cells.append(_change(row["seconds"], digits=1))
            table.add_row(*(Text(str(cell)) for cell in cells))
        print_table(table)
        print("\nfirst -> second (difference, 95 % interval), over common folds and seeds")
    else:
        print("the stores share no dataset, model and method")
    for which in ("first", "second"):
        for row in compared[f"only_{which}"]:
            print(f"only in {which}: {' / '.join(_names(row))} ({row['runs']} runs)")
        for row in compared["common"]:
            if row[f"only_{which}"]:
                print(f"only in {which}: {' / '.join(_names(row))}, {_places(row, which)}")
    for change, where in _settings(compared).items():
        everywhere = len(where) == len(compared["common"])
        print(f"setting {change}" + ("" if everywhere else f" in {', '.join(where)}"))
    versions = compared["versions"]
    if versions["first"] != versions["second"]:
        print(f"d2ace: {', '.join(versions['first'])} -> {', '.join(versions['second'])}")


def _names(row: dict[str, Any]) -> list[str]:
    """Study, dataset, model, method; the settings that tell a line from others at the dataset."""
    told = ", ".join(f"{key}={canonical(value)}" for key, value in row["with"].items())
    dataset = f"{row['dataset']} [{told}]" if told else row["dataset"]
    return [row["study"], dataset, row["model"], row["method"]]


def _places(row: dict[str, Any], which: str) -> str:
    """The folds and seeds that one store has alone: "folds 1, 2 of seed 0"."""
    seeds: dict[int, list[str]] = {}
    for fold, seed in row[f"only_{which}"]:
        seeds.setdefault(seed, []).append(str(fold))
    return "; ".join(
        f"{'fold' if len(folds) == 1 else 'folds'} {', '.join(folds)} of seed {seed}"
        for seed, folds in sorted(seeds.items())
    )


def _settings(compared: dict[str, Any]) -> dict[str, list[str]]:
    """Each difference in words -> the lines that have it."""
    found: dict[str, list[str]] = {}
    for row in compared["common"]:
        for key, (first, second) in row["settings"].items():
            change = f"{key}: {canonical(first)} -> {canonical(second)}"
            found.setdefault(change, []).append(" / ".join(_names(row)))
    return found


def _known(value: dict[str, Any]) -> bool:
    return value["difference"] is not None


def _change(value: dict[str, Any], digits: int = 4) -> str:
    if not _known(value):
        return "-"
    text = f"{value['first']:.{digits}f} -> {value['second']:.{digits}f} "
    text += f"({value['difference']:+.{digits}f}"
    if value["low"] is not None:
        text += f", {value['low']:+.{digits}f} to {value['high']:+.{digits}f}"
    return f"{text})"


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        right = heading in ("fold", "seed", "pairs")
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    return table
