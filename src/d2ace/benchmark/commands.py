"""``d2ace bench | ablate | sweep | compare``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from d2ace.errors import UserError

from .compare import compare as compare_stores
from .grid import Grid, load_grid, make_grid, packaged
from .output import print_comparison, print_json, print_plan
from .session import Session, work
from .specs import RunSpec
from .store import Store
from .studies import ABLATION, SWEEPS, parse_value, parse_vary

__all__ = ["ablate", "bench", "compare", "sweep"]

ENGINES = ("local", "ray")

Db = Annotated[Path, typer.Option("--db", help="File that keeps the results.")]
Datasets = Annotated[str | None, typer.Option(help="Names or files, separated by commas.")]
Models = Annotated[str | None, typer.Option(help="Models, separated by commas.")]
Folds = Annotated[int | None, typer.Option(help="Number of folds.")]
RunFolds = Annotated[str | None, typer.Option(help="Only these folds: 0,1,2 (from 0).")]
Seeds = Annotated[str | None, typer.Option(help="Seeds, separated by commas.")]
Epochs = Annotated[int | None, typer.Option(help="Epochs of every run.")]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting of d2ace train."),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUES",
        help="Only runs with this dataset, model, method, study, fold or seed.",
    ),
]
Jobs = Annotated[int, typer.Option(min=1, help="Runs at the same time.")]
Engine = Annotated[str, typer.Option(help="local processes, or ray for a Ray cluster.")]
Address = Annotated[str | None, typer.Option(help="Address of a running Ray cluster.")]
Retry = Annotated[bool, typer.Option("--retry", help="Try failed runs again.")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the folders of finished runs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would run, and end.")]
From = Annotated[
    Path | None,
    typer.Option("--from", help="A results.csv whose runs count as finished."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def bench(
    grid: Annotated[
        str | None, typer.Argument(help="A packaged grid (such as quick), or a .toml file.")
    ] = None,
    datasets: Datasets = None,
    models: Models = None,
    selectors: Annotated[
        str | None, typer.Option(help="Methods, or your own as file.py:Class; by commas.")
    ] = None,
    folds: Folds = None,
    run_folds: RunFolds = None,
    seeds: Seeds = None,
    epochs: Epochs = None,
    settings: Setting = None,
    only: Only = None,
    db: Db = Path("runs.db"),
    jobs: Jobs = 1,
    engine: Engine = "local",
    address: Address = None,
    retry: Retry = False,
    keep: Keep = False,
    dry_run: DryRun = False,
    source: From = None,
    as_json: AsJson = False,
) -> None:
    """Run a grid: datasets x models x selectors x folds x seeds.

    Stop it at any time and start it again: finished runs are kept, half-finished ones go on.
    """
    changes = _changes(datasets, models, folds, run_folds, seeds, epochs, settings)
    if selectors is not None:
        changes["selectors"] = _words(selectors)
    if grid is not None:
        chosen = load_grid(grid, changes)
    elif "datasets" in changes:
        chosen = make_grid({"models": ["clif"], **changes})
    else:
        known = ", ".join(packaged())
        raise UserError(f"name a grid ({known}, or a .toml file), or give --datasets and --models")
    session = Session(db, jobs, _engine(engine, address), address, retry, keep)
    _run(session, chosen, only, dry_run, source, as_json)


def ablate(
    datasets: Datasets = None,
    models: Models = None,
    variants: Annotated[
        str, typer.Option(help="Variants of D2ACE, separated by commas.")
    ] = ",".join(ABLATION),
    folds: Folds = None,
    run_folds: RunFolds = None,
    seeds: Seeds = None,
    epochs: Epochs = None,
    settings: Setting = None,
    only: Only = None,
    db: Db = Path("runs.db"),
    jobs: Jobs = 1,
    engine: Engine = "local",
    address: Address = None,
    retry: Retry = False,
    keep: Keep = False,
    dry_run: DryRun = False,
    source: From = None,
    as_json: AsJson = False,
) -> None:
    """Run D2ACE with one part changed or left out at a time (A to K)."""
    changes = _changes(datasets, models, folds, run_folds, seeds, epochs, settings)
    study = {"models": ["clif"], **changes, "kind": "ablation", "variants": _words(variants)}
    session = Session(db, jobs, _engine(engine, address), address, retry, keep)
    _run(session, make_grid(study), only, dry_run, source, as_json)


def sweep(
    vary: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=V1,V2,...", help=f"An option and its values, or {', '.join(SWEEPS)}."
        ),
    ],
    datasets: Datasets = None,
    models: Models = None,
    selector: Annotated[str, typer.Option(help="The method whose option is varied.")] = "d2ace",
    folds: Folds = None,
    run_folds: RunFolds = None,
    seeds: Seeds = None,
    epochs: Epochs = None,
    settings: Setting = None,
    only: Only = None,
    db: Db = Path("runs.db"),
    jobs: Jobs = 1,
    engine: Engine = "local",
    address: Address = None,
    retry: Retry = False,
    keep: Keep = False,
    dry_run: DryRun = False,
    source: From = None,
    as_json: AsJson = False,
) -> None:
    """Run a method with several values of an option.

    Each argument is a sweep of its own: K (neighbours, "n" for all), lambda2, mix (the grid of
    p_start and p_end), or any option as name=v1,v2,v3; a pair is written a/b.
    """
    changes = _changes(datasets, models, folds, run_folds, seeds, epochs, settings)
    shared = {"models": ["clif"], "selectors": [selector], **changes}
    tables = [{"kind": "sweep", "vary": parse_vary(word)} for word in vary]
    session = Session(db, jobs, _engine(engine, address), address, retry, keep)
    _run(session, make_grid({**shared, "study": tables}), only, dry_run, source, as_json)


def compare(
    first: Annotated[Path, typer.Argument(help="A store, the earlier one say.")],
    second: Annotated[Path, typer.Argument(help="The store to compare it with.")],
    as_json: AsJson = False,
) -> None:
    """Show what changed between two stores of runs."""
    with Store(first, read_only=True) as before, Store(second, read_only=True) as after:
        compared = compare_stores(before, after)
    if as_json:
        print_json(compared)
    else:
        print_comparison(compared)


def _run(
    session: Session,
    grid: Grid,
    only: list[str] | None,
    dry_run: bool,
    source: Path | None,
    as_json: bool,
) -> None:
    specs = _filtered(grid.specs, only or [])
    if not dry_run:
        work(session, specs, source, grid.notes, as_json)
        return
    with tempfile.TemporaryDirectory() as folder:
        stores = [Store(session.db, read_only=True)] if session.db.exists() else []
        try:
            if source is not None:
                stores.append(Store(Path(folder) / "taken.db"))
                stores[-1].import_(source)
            print_plan(stores, specs, session, grid.notes, as_json)
        finally:
            for store in stores:
                store.close()


def _changes(
    datasets: str | None,
    models: str | None,
    folds: int | None,
    run_folds: str | None,
    seeds: str | None,
    epochs: int | None,
    settings: list[str] | None,
) -> dict[str, Any]:
    """What was typed, as keys of a grid."""
    lists = {"datasets": datasets, "models": models}
    changes: dict[str, Any] = {key: _words(text) for key, text in lists.items() if text is not None}
    for key, text in {"run_folds": run_folds, "seeds": seeds}.items():
        if text is not None:
            changes[key] = [parse_value(word) for word in _words(text)]
    numbers = {"folds": folds, "epochs": epochs}
    changes |= {key: number for key, number in numbers.items() if number is not None}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UserError(f"--set takes key=value, got {setting!r}")
        changes[key.strip()] = parse_value(value)
    return changes


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _engine(engine: str, address: str | None) -> str:
    if engine not in ENGINES:
        raise UserError(f"--engine is {engine!r}; choose from {', '.join(ENGINES)}")
    if address is not None and engine != "ray":
        raise UserError("--address belongs to --engine ray")
    return engine


def _filtered(specs: list[RunSpec], only: list[str]) -> list[RunSpec]:
    for condition in only:
        key, equals, values = condition.partition("=")
        if not equals or key not in _FIELDS:
            raise UserError(
                f"--only takes one of {', '.join(_FIELDS)} as key=value, got {condition!r}"
            )
        wanted = {word.casefold() for word in _words(values)}
        known = sorted({_FIELDS[key](spec) for spec in specs})
        specs = [spec for spec in specs if _FIELDS[key](spec).casefold() in wanted]
        if not specs:
            raise UserError(f"--only {condition} leaves no run; {key} is one of {', '.join(known)}")
    return specs


_FIELDS: dict[str, Any] = {
    "dataset": lambda spec: spec.dataset,
    "model": lambda spec: spec.model,
    "method": lambda spec: spec.method,
    "study": lambda spec: spec.study,
    "fold": lambda spec: str(spec.config["fold"]),
    "seed": lambda spec: str(spec.config["seed"]),
}
