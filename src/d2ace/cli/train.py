"""``d2ace train`` and ``d2ace predict``."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from d2ace._util.errors import UserError
from d2ace._util.paths import given_path
from d2ace.data import load_features
from d2ace.evaluation import METRICS, decided
from d2ace.selectors import neighbor_search
from d2ace.training import (
    STILL_IMPROVING,
    RunConfig,
    RunResult,
    first_process,
    load_run,
    reads_images,
    refuse_other_file,
    train_config,
    tuned,
    write_predictions,
)

from .console import make_console, print_table
from .options import IMAGES, run_settings, with_options
from .train_view import EpochLines, EpochTable, TenthLines

__all__ = ["predict", "train"]

_MODEL_OPTIONS = ("backbone", "weights", "freeze", "label_vectors")
"""Options of image models that have their own command-line option."""


def _image_option(words: str) -> Any:
    return typer.Option(help=words, rich_help_panel=IMAGES)


@with_options("settings", run_settings(), dict)
def train(
    data: Annotated[
        str | None, typer.Argument(help="Name of a dataset, a data file, or a layout of images.")
    ] = None,
    data_option: Annotated[
        str | None, typer.Option("--data", help="The same, as an option.")
    ] = None,
    *,
    settings: dict[str, Any],
    backbone: Annotated[
        str | None, _image_option("A torchvision network, or efficientnet_lite0 (resnet101).")
    ] = None,
    weights: Annotated[
        str | None,
        _image_option("Backbone weights: pretrained, none, or a file (pretrained)."),
    ] = None,
    freeze: Annotated[
        str | None,
        _image_option(
            "Part of the backbone to freeze: none, early or backbone (none; hst: early)."
        ),
    ] = None,
    label_vectors: Annotated[
        str | None, _image_option("GloVe or CSV file with label vectors (random vectors).")
    ] = None,
    workers: Annotated[
        int | None,
        _image_option("Processes per device that read images (one per processor, up to 8)."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Folder for checkpoints, weights and the result."),
    ] = None,
    resume: Annotated[
        bool, typer.Option(help="Resume the run in the folder, or start it over.")
    ] = True,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(help="Also save every so many steps, not only epochs."),
    ] = None,
    devices: Annotated[int, typer.Option(help="Processes on this machine.")] = 1,
    accelerator: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    threads: Annotated[int | None, typer.Option(help="Processor threads of each process.")] = None,
    tensorboard: Annotated[bool, typer.Option(help="Write events to OUT/tensorboard.")] = False,
    tune: Annotated[
        bool, typer.Option(help="Search the paper's grid on the validation rows.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a model on batches that a selector draws, by the paper's protocol."""
    own = dict(zip(_MODEL_OPTIONS, (backbone, weights, freeze, label_vectors), strict=True))
    of_model = {name: value for name, value in own.items() if value is not None}
    of_model |= _options("model-option", settings.pop("model_option"))
    of_selector = _options("selector-option", settings.pop("selector_option"))
    given = {name: value for name, value in settings.items() if value is not None}
    given |= {"model_options": of_model, "selector_options": of_selector}
    config = RunConfig.from_dict({"data": _one_of(data, data_option), **given})
    running: dict[str, Any] = {
        "resume": resume,
        "checkpoint_every": checkpoint_every,
        "devices": devices,
        "accelerator": accelerator,
        "threads": threads,
        "workers": workers,
        "tensorboard": tensorboard,
        "progress": TenthLines("features of {done} of {total} images"),
    }
    console = Console(stderr=True)
    if config.only_warm_up and first_process():
        print(config.only_warm_up, file=sys.stderr)
    with ExitStack() as stack:
        searching = TenthLines("neighbours of {done} of {total} rows")
        stack.enter_context(neighbor_search(progress=searching))
        view: EpochLines | EpochTable = EpochLines(config)
        if console.is_terminal and devices == 1:
            view = stack.enter_context(EpochTable(config, console))
        running["watch"] = view
        if tune:
            begin = view.candidate if first_process() else None
            result = tuned(config, None, out, running, begin)
        else:
            result = train_config(config, out=out, **running)
    if not first_process():
        return
    if as_json:
        print(result.to_json())
    else:
        _show(result, out)


def predict(
    run: Annotated[str, typer.Argument(help="The out folder of a finished run.")],
    data: Annotated[
        str,
        typer.Argument(
            help="New rows, with or without labels: a dataset's name or a data file; for a run on "
            "images, an image, a folder or a .zip."
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="PATH", help="CSV file (default: standard output)."),
    ] = None,
    labels: Annotated[
        bool,
        typer.Option(
            "--labels",
            help="Write 0 or 1, by the run's tuned thresholds.",
        ),
    ] = False,
) -> None:
    """Predict the labels' probabilities for new rows, as CSV."""
    path = None if output is None else given_path(output, "output", kind="file")
    saved = load_run(run)
    header = ["image" if saved.model.input == "image" else "row", *saved.label_names]
    if path is not None:
        refuse_other_file(path, header)  # before anything slow
    if saved.model.input == "image":
        from d2ace.training.images import find_images

        images = find_images(data)
        names = [images.place(row) for row in range(images.n)]
        probabilities = saved.predict_proba(images)
    else:
        probabilities = saved.predict_proba(load_features(data, saved.feature_names))
        names = [str(number) for number in range(len(probabilities))]
    values = decided(probabilities, saved.thresholds).astype(int) if labels else probabilities
    rows = (
        [name, *(f"{value:.6g}" for value in row)]
        for name, row in zip(names, values.tolist(), strict=True)
    )
    write_predictions(path, header, rows)


def _one_of(argument: str | None, option: str | None) -> str:
    named = [name for name in (argument, option) if name is not None]
    if len(named) != 1:
        raise UserError("Name the data once: d2ace train digits, or --data digits.")
    return named[0]


def _options(option: str, given: list[str] | None) -> dict[str, Any]:
    """``NAME=VALUE`` words as a dictionary; values are read as JSON where they are JSON."""
    options: dict[str, Any] = {}
    for word in given or []:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise UserError(f"--{option} {word} is not of the form NAME=VALUE.")
        try:
            options[name.replace("-", "_")] = json.loads(text)
        except ValueError:
            options[name.replace("-", "_")] = text
    return options


def _show(result: RunResult, out: str | None) -> None:
    config, console = result.config, make_console()
    sizes = result.dataset
    images = reads_images(config["model"])
    rows = "images" if images else f"rows, {sizes['features']} features"
    console.print(
        f"[bold]{escape(config['data'])}[/bold]: {sizes['train']} training, {sizes['validation']} "
        f"validation and {sizes['test']} test {rows}, {sizes['labels']} labels; "
        f"{escape(config['model'])} with {escape(config['selector'])}"
    )
    table = Table("metric", box=None, pad_edge=False, header_style="bold")
    for heading in (f"validation (epoch {result.best_epoch})", "test"):
        table.add_column(heading, justify="right")
    for name, metric in METRICS.items():
        arrow = "↑" if metric.higher_is_better else "↓"
        values = (
            f"{split[name]:.4f}" if name in split else ""
            for split in (result.validation, result.test)
        )
        table.add_row(f"{metric.title} {arrow}", *values)
    print_table(table)
    if result.tuning is not None:
        chosen = {
            name: config[options][name]
            for tried in result.tuning
            for options in ("model_options", "selector_options")
            for name in tried.get(options, ())
        }
        words = ", ".join(f"{name}={value:g}" for name, value in chosen.items())
        console.print(f"tuned: {words}, the best of {len(result.tuning)} on the validation rows")
    skipped = result.undefined["test"]
    if skipped:
        console.print(f"Means leave out {skipped} label(s) with only one class in the test rows.")
    if result.still_improving:
        console.print(
            f"still improving in epoch {result.best_epoch} of {config['epochs']}: {STILL_IMPROVING}"
        )
    seconds = ", ".join(f"{part} {value:.1f}" for part, value in result.seconds.items())
    console.print(f"seconds: {seconds}")
    if out is not None:
        console.print(f"saved in {out}", soft_wrap=True, markup=False)
