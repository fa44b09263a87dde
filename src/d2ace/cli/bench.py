"""``d2ace bench | ablate | sweep | compare``."""

from __future__ import annotations

import inspect
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from d2ace._util.errors import UserError
from d2ace.benchmark.plan import (
    ABLATION,
    SWEEPS,
    Grid,
    RunSpec,
    load_grid,
    make_grid,
    packaged,
    parse_value,
    parse_vary,
)
from d2ace.benchmark.store import Store, is_there
from d2ace.report import compare as compare_stores
from d2ace.report import tell_apart
from d2ace.selectors import D2ACE

from .bench_output import print_comparison, print_json, print_plan
from .bench_session import Session, work
from .options import option, with_options

__all__ = ["ablate", "bench", "compare", "sweep"]

ENGINES = ("local", "ray")

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
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


@dataclass(frozen=True)
class Options:
    """Options that bench, ablate and sweep share."""

    datasets: Annotated[str | None, typer.Option(help="Names or files, separated by commas.")] = (
        None
    )
    models: Annotated[str | None, typer.Option(help="Models, separated by commas.")] = None
    folds: Annotated[int | None, typer.Option(help="Number of folds.")] = None
    run_folds: Annotated[str | None, typer.Option(help="Only these folds: 0,1,2 (from 0).")] = None
    seeds: Annotated[str | None, typer.Option(help="Seeds, separated by commas.")] = None
    epochs: Annotated[int | None, typer.Option(help="Epochs of every run.")] = None
    settings: Setting = None
    only: Only = None
    db: Annotated[Path, typer.Option("--db", help="Store for the results.")] = Path("runs.db")
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1
    engine: Annotated[str, typer.Option(help="local processes, or ray for a Ray cluster.")] = (
        "local"
    )
    address: Annotated[str | None, typer.Option(help="Address of a running Ray cluster.")] = None
    retry: Annotated[bool, typer.Option("--retry", help="Try failed runs again.")] = False
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folders of finished runs.")] = False
    stack: Annotated[
        bool | None,
        typer.Option(
            "--stack/--no-stack",
            help="Train MLPs that differ in method and seed in one process; by default small ones.",
        ),
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs, start none.")] = False
    source: Annotated[
        Path | None, typer.Option("--from", help="results.csv with finished runs.")
    ] = None
    as_json: AsJson = False

    def changes(self) -> dict[str, Any]:
        """The options on the command line, as keys of a grid."""
        lists = {"datasets": self.datasets, "models": self.models}
        changes: dict[str, Any] = {
            key: _words(text) for key, text in lists.items() if text is not None
        }
        for key, text in {"run_folds": self.run_folds, "seeds": self.seeds}.items():
            if text is not None:
                changes[key] = [parse_value(word) for word in _words(text)]
        numbers = {"folds": self.folds, "epochs": self.epochs}
        changes |= {key: number for key, number in numbers.items() if number is not None}
        for setting in self.settings or []:
            key, equals, value = setting.partition("=")
            if not equals:
                raise UserError(f"--set takes key=value, got {setting!r}")
            changes[key.strip()] = parse_value(value)
        return changes

    def session(self) -> Session:
        """How to run."""
        if self.engine not in ENGINES:
            raise UserError(f"--engine is {self.engine!r}; choose from {', '.join(ENGINES)}")
        if self.address is not None and self.engine != "ray":
            raise UserError("--address works only with --engine ray")
        if self.stack and self.engine == "ray":
            raise UserError("--stack works only with --engine local; leave one of them out")
        return Session(
            self.db, self.jobs, self.engine, self.address, self.retry, self.keep, self.stack
        )


def _fields() -> list[inspect.Parameter]:
    hints = get_type_hints(Options, include_extras=True)
    return [option(item.name, hints[item.name], item.default) for item in fields(Options)]


_with_options = with_options("options", _fields(), lambda chosen: Options(**chosen))


@_with_options
def bench(
    grid: Annotated[
        str | None, typer.Argument(help="A packaged grid (such as quick), or a .toml file.")
    ] = None,
    selectors: Annotated[
        str | None, typer.Option(help="Methods, or your own as file.py:Class, separated by commas.")
    ] = None,
    *,
    options: Options,
) -> None:
    """Run a grid: datasets x models x selectors x folds x seeds.

    Stop it at any time. The same command skips finished runs and resumes the others.
    """
    changes = options.changes()
    if selectors is not None:
        changes["selectors"] = _words(selectors)
    if grid is not None:
        chosen = load_grid(grid, changes)
    elif "datasets" in changes:
        chosen = make_grid({"models": ["clif"], **changes})
    else:
        known = ", ".join(packaged())
        raise UserError(f"name a grid ({known}, or a .toml file), or give --datasets and --models")
    _run(chosen, options)


@_with_options
def ablate(
    variants: Annotated[
        str, typer.Option(help=f"Variants of {D2ACE.title}, separated by commas.")
    ] = ",".join(ABLATION),
    *,
    options: Options,
) -> None:
    """Run variants of D2ACE (A to K), each with one part changed or left out."""
    study = {"kind": "ablation", "variants": _words(variants)}
    _run(make_grid({"models": ["clif"], **options.changes(), **study}), options)


@_with_options
def sweep(
    vary: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=V1,V2,...", help=f"An option and its values, or {', '.join(SWEEPS)}."
        ),
    ],
    selector: Annotated[str, typer.Option(help="Method to vary.")] = D2ACE.name,
    *,
    options: Options,
) -> None:
    """Run a method with several values of one option.

    Each argument is a separate sweep: K (neighbours, "n" for all), lambda2, mix (the grid of
    p_start and p_end), or any option as name=v1,v2,v3; a pair is written a/b.
    """
    shared = {"models": ["clif"], "selectors": [selector], **options.changes()}
    tables = [{"kind": "sweep", "vary": parse_vary(word)} for word in vary]
    _run(make_grid({**shared, "study": tables}), options)


def compare(
    first: Annotated[Path, typer.Argument(help="Store to start from.")],
    second: Annotated[Path, typer.Argument(help="Store to compare it with.")],
    as_json: AsJson = False,
) -> None:
    """Show the differences between two stores of runs."""
    with Store(first, read_only=True) as before, Store(second, read_only=True) as after:
        compared = compare_stores(before, after)
    if as_json:
        print_json(compared)
    else:
        print_comparison(compared)


def _run(grid: Grid, options: Options) -> None:
    session = options.session()
    specs = _filtered(grid.specs, options.only or [])
    if not options.dry_run:
        work(session, specs, options.source, grid.notes, options.as_json)
        return
    with tempfile.TemporaryDirectory() as folder:
        stores = [Store(session.db, read_only=True)] if is_there(session.db) else []
        try:
            if options.source is not None:
                stores.append(Store(Path(folder) / "taken.db"))
                stores[-1].import_(options.source)
            print_plan(stores, specs, session, grid.notes, options.as_json)
        finally:
            for store in stores:
                store.close()


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _filtered(specs: list[RunSpec], only: list[str]) -> list[RunSpec]:
    names = tell_apart(specs)  # as --dry-run shows datasets
    for condition in only:
        key, equals, values = condition.partition("=")
        if not equals or key not in _FIELDS:
            raise UserError(
                f"--only takes one of {', '.join(_FIELDS)} as key=value, got {condition!r}"
            )
        # A name may itself hold a comma: "D2ACE (window=3, pressure=8)".
        wanted = {word.casefold() for word in [values.strip(), *_words(values)]}
        called = [[_FIELDS[key](spec)] for spec in specs]
        if key == "dataset":
            called = [[*own, names[spec.key]] for own, spec in zip(called, specs, strict=True)]
        known = sorted({own[-1] for own in called})
        specs = [
            spec
            for own, spec in zip(called, specs, strict=True)
            if wanted & {name.casefold() for name in own}
        ]
        if not specs:
            raise UserError(f"--only {condition} fits no run; {key} is one of {', '.join(known)}")
    return specs


_FIELDS: dict[str, Any] = {
    "dataset": lambda spec: spec.dataset,
    "model": lambda spec: spec.model,
    "method": lambda spec: spec.method,
    "study": lambda spec: spec.study,
    "fold": lambda spec: str(spec.config["fold"]),
    "seed": lambda spec: str(spec.config["seed"]),
}
