"""``d2ace demo``: find wrong labels and compare methods, on embedded data or your own table.

The embedded data are images of handwritten digits. In some known rows, a label was exchanged for a
wrong one. So the demo can show how many suspicious labels are truly wrong, what training on them
costs, and how much of it a method recovers.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from d2ace._util.errors import RunError
from d2ace._util.paths import given_path
from d2ace.benchmark.plan import RunSpec, comparison, method_name
from d2ace.benchmark.run import runs_folder
from d2ace.benchmark.store import Store
from d2ace.data import AnnotatedData, MultiLabelData, load
from d2ace.report import WrittenFolder
from d2ace.selectors import D2ACE, Random, Trim
from d2ace.training import RunConfig, make_folder

from .bench_session import Session, raise_unless_well, run

if TYPE_CHECKING:
    from d2ace.report import Demonstration

__all__ = ["demo"]

SETTINGS: dict[str, Any] = {
    "model": "mlp",
    "epochs": 40,
    "learning_rate": 1e-3,
    "insights": True,
    "min_positives": 5,  # one for each fold
}
"""Random's validation score is flat by then, and its training loss is near zero: it overfits."""
DIGITS: dict[str, Any] = {
    "model": "d2ace.models.digit_network:DigitNetwork",
    "epochs": 16,
    "learning_rate": 1e-2,
}
"""What differs on the embedded digits, which an MLP hardly learns: they stand anywhere."""
TRUE = "Random (true labels)"


def demo(
    out: Annotated[
        str, typer.Option(metavar="FOLDER", help="Folder for the page and the runs.")
    ] = "d2ace-demo",
    data: Annotated[
        str,
        typer.Option(help="Your table: .csv with columns label:NAME, .arff, .npz, .mat, LibSVM."),
    ] = "digits",
    every: Annotated[bool, typer.Option("--all", help="Run all methods instead of three.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 3,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Epochs of a run.",
            show_default=f"{DIGITS['epochs']}, of your own table {SETTINGS['epochs']}",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Find wrong labels and compare methods, on embedded digits or on your own table."""
    from d2ace.report import demonstrate, write_demo_page

    folder = given_path(out, "--out")
    page = WrittenFolder(folder / "report")
    page.check(["index.html"])
    table = load(data)
    settings = {**SETTINGS, **(DIGITS if data == "digits" else {}), "data": data}
    settings["epochs"] = epochs or settings["epochs"]
    settings["warmup"] = min(10, settings["epochs"] // 2)
    corrections = _corrections(folder, table, settings, seeds)
    specs = _specs(settings, seeds, every, corrections)
    jobs = max(1, min(os.cpu_count() or 1, len(specs) * seeds))
    session = Session(folder / "runs.db", jobs, retry=True)
    every_run = [spec for runs in specs.values() for spec in runs]
    raise_unless_well(*run(session, every_run), again="the same command")
    with Store(session.db) as store:
        place = folder / runs_folder(store).name
    folders = {method: [place / spec.key for spec in runs] for method, runs in specs.items()}
    gone = [one for places in folders.values() for one in places if not one.is_dir()]
    if gone:
        raise RunError(
            f"{gone[0]} was removed, but {session.db} still has its scores; choose another folder "
            "with --out."
        )
    shown = demonstrate(folders, table, true=TRUE)
    written = write_demo_page(shown, page.folder, store=session.db)
    if as_json:
        print(json.dumps({**shown.summary(), "page": str(written)}, indent=1))
        return
    _show(shown)
    print(written)


def _corrections(
    folder: Path, table: MultiLabelData, settings: dict[str, Any], seeds: int
) -> list[Path]:
    """A table of the true labels for each seed, where they are known."""
    from d2ace.report import KnownErrors

    if not isinstance(table, AnnotatedData):
        make_folder(folder)
        return []
    errors = KnownErrors(table)
    names = [f"true_labels_seed_{seed}.csv" for seed in range(seeds)]
    files = WrittenFolder(folder)
    files.check(names)
    make_folder(folder)
    files.write(
        {
            name: errors.corrections(RunConfig.from_dict({**settings, "seed": seed}))
            for seed, name in enumerate(names)
        }
    )
    return [folder / name for name in names]


def _specs(
    settings: dict[str, Any], seeds: int, every: bool, corrections: list[Path]
) -> dict[str, list[RunSpec]]:
    """The runs of each method, one for each seed."""
    chosen = {method.selector: dict(method.options) for method in comparison()}
    specs = {}
    for name in chosen if every else (Random.name, D2ACE.name, Trim.name):
        method = {"selector": name, "selector_options": chosen[name]}
        title = method_name(method)
        specs[title] = [
            RunSpec("main", title, {**settings, **method, "seed": seed}) for seed in range(seeds)
        ]
    if corrections:
        specs[TRUE] = [
            RunSpec("main", TRUE, {**spec.config, "labels_from": str(file), "labels_source": None})
            for spec, file in zip(specs[Random.title], corrections, strict=True)
        ]
    return specs


def _show(shown: Demonstration) -> None:
    from rich.table import Table

    from .console import make_console, print_table

    console = make_console()
    data = shown.data
    console.print(f"{data.name}: {data.n:,} rows, {data.q} labels", markup=False)
    for sentence in shown.found():
        console.print(sentence, markup=False)
    rows = shown.rows()
    table = Table("method", box=None, pad_edge=False, header_style="bold")
    for title in rows[0].scores:
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(row.method, *row.scores.values())
    print(f"\n{shown.tested}")
    print_table(table)
    for sentence in shown.compared():
        console.print(sentence, markup=False)
