"""``d2ace data list | info | fetch``."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from d2ace.data import (
    DIGIT_ROWS,
    DIGIT_SIDE,
    DataError,
    DataWarning,
    UnknownDataError,
    catalogue,
    describe,
    digest,
    load,
)
from d2ace.data import fetch as fetch_files

from .console import print_table

app = typer.Typer(help="List, describe and download datasets.", no_args_is_help=True)

_SUMMARY = ("name", "title", "domain", "n", "d", "q", "cardinality", "density", "feature_share")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


@app.command("list")
def list_datasets(as_json: AsJson = False) -> None:
    """List the datasets that you can use by name."""
    rows = [*(_summary(entry) for entry in catalogue.catalogue().values()), _embedded()]
    if as_json:
        _print_json(rows)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("name", "domain", "n", "d", "q", "card", "here", "in the paper"):
        right = heading in ("n", "d", "q", "card")
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for row in rows:
        numbers = [str(row[key]) for key in ("n", "d", "q")]
        card = "" if row["cardinality"] is None else f"{row['cardinality']:.3f}"
        here, paper = ("yes" if row[key] else "" for key in ("here", "paper"))
        table.add_row(row["name"], row["domain"], *numbers, card, here, paper)
    print_table(table)
    print(f"\n{catalogue.EMBEDDED} comes with the package. Details: d2ace data info NAME")


@app.command()
def info(
    name: Annotated[str, typer.Argument(metavar="NAME_OR_PATH", help="A name, or a data file.")],
    labels: Annotated[
        int | None, typer.Option(help="Number of labels, for an ARFF file without a label list.")
    ] = None,
    labels_at: Annotated[str, typer.Option(help="Position of these labels: start or end.")] = "end",
    repair: Annotated[bool, typer.Option(help="Realign the labels of the rcv1 subsets.")] = False,
    as_json: AsJson = False,
) -> None:
    """Describe a dataset: sizes, label statistics, known defects."""
    entry = catalogue.find(name)
    facts: dict[str, Any] = {} if entry is None else _known(entry)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", DataWarning)
        try:
            data = load(name, labels=labels, labels_at=labels_at, repair=repair)  # type: ignore[arg-type]
        except DataError as error:
            if entry is None or isinstance(error, UnknownDataError) or not _absent(entry):
                raise
            facts |= {"statistics": None, "not_here": str(error)}
        else:
            if entry is None and name.lower() != catalogue.EMBEDDED:
                found = catalogue.recognise(digest(Path(name).read_bytes()))
                facts = {} if found is None else _known(found[0])
            facts |= {"name": data.name, "n": data.n, "d": data.d, "q": data.q}
            statistics = describe(data)
            facts |= {key: statistics[key] for key in ("cardinality", "density")}
            facts["statistics"] = statistics
    said = [str(note.message) for note in notes]
    defects = facts.get("defects", [])
    facts["notes"] = [note for note in said if not any(defect in note for defect in defects)]
    if as_json:
        _print_json(facts)
    else:
        _print_facts(facts)


@app.command()
def fetch(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Names from `d2ace data list`.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Fetch every dataset.")] = False,
    folder: Annotated[Path | None, typer.Option(help="Where to put the files.")] = None,
    retries: Annotated[int, typer.Option(help="Attempts for each file.")] = 3,
) -> None:
    """Download datasets and verify their checksums."""
    if everything == bool(names):
        raise UnknownDataError("give the names of the datasets to fetch, or --all")
    if everything:
        known = catalogue.catalogue().values()
        entries = [entry for entry in known if not entry.unfetchable]
    else:
        entries = [_fetchable(name) for name in names or []]
    failed = 0
    for entry in entries:
        try:
            with _Bar() as bar:
                paths = fetch_files(entry, folder=folder, progress=bar.show, retries=retries)
        except DataError as error:
            if len(entries) == 1:
                raise
            failed += 1
            print(f"d2ace: {error}", file=sys.stderr)
        else:
            print(f"{entry.name}: {paths[0].parent}")
    if failed:
        raise DataError(f"{failed} of {len(entries)} datasets could not be fetched")


def _fetchable(name: str) -> catalogue.Dataset:
    if name.lower() == catalogue.EMBEDDED:
        raise UnknownDataError(f"{name!r} comes with the package; there is nothing to fetch")
    return catalogue.get(name)


def _absent(entry: catalogue.Dataset) -> bool:
    try:
        catalogue.locate(entry)
    except DataError:
        return True
    return False


def _embedded() -> dict[str, Any]:
    """Facts about the dataset in the package, without building it."""
    words = {"name": catalogue.EMBEDDED, "title": catalogue.EMBEDDED, "domain": "vision"}
    sizes = {"n": DIGIT_ROWS, "d": DIGIT_SIDE**2, "q": 10}
    return dict.fromkeys(_SUMMARY) | words | sizes | {"paper": None, "here": True}


def _summary(entry: catalogue.Dataset) -> dict[str, Any]:
    row = {key: getattr(entry, key) for key in _SUMMARY}
    return row | {"paper": dict(entry.paper) if entry.paper else None, "here": not _absent(entry)}


def _known(entry: catalogue.Dataset) -> dict[str, Any]:
    return _summary(entry) | {
        "labels": entry.label_location,
        "citation": entry.citation,
        "defects": list(entry.defects),
        "dropped": list(entry.drop),
        "files": [
            {"path": file.path, "sha256": file.sha256, "url": file.url} for file in entry.needed()
        ],
        "unfetchable": entry.unfetchable,
    }


def _print_facts(facts: dict[str, Any]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    words = ("name", "title", "domain", "n", "d", "q", "labels", "citation", "unfetchable")
    for key in words:
        if facts.get(key) is not None:
            table.add_row(key, Text(str(facts[key])))
    if facts.get("paper"):
        paper = ", ".join(f"{key} {value}" for key, value in facts["paper"].items())
        table.add_row("in the paper", Text(paper))
    if facts.get("feature_share"):
        share = f"the paper keeps the {facts['feature_share']:.0%} most frequent"
        table.add_row("features", Text(share))
    for number, defect in enumerate(facts.get("defects", [])):
        table.add_row("" if number else "known defects", Text(defect))
    for key, value in (facts.get("statistics") or {}).items():
        if not isinstance(value, (dict, list)) and key not in words:
            shown = f"{value:.4g}" if isinstance(value, float) else str(value)
            table.add_row(str(key).replace("_", " "), Text(shown))
    for number, note in enumerate(facts["notes"]):
        table.add_row("" if number else "notes", Text(note))
    if facts.get("not_here"):
        table.add_row("not here", Text(facts["not_here"]))
    print_table(table)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


class _Bar:
    """A progress bar on a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
        console = Console(stderr=True)
        self.bar = Progress(*columns, TransferSpeedColumn(), console=console)
        self.tasks: dict[str, Any] = {}
        self.visible = console.is_terminal

    def __enter__(self) -> _Bar:
        if self.visible:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.visible:
            self.bar.stop()

    def show(self, name: str, done: int, total: int) -> None:
        if not self.visible:
            return
        if name not in self.tasks:
            self.tasks[name] = self.bar.add_task(name, total=total)
        self.bar.update(self.tasks[name], completed=done)
