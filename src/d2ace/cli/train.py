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
from d2ace.evaluation import METRICS
from d2ace.models import MODELS
from d2ace.training import load_run, train_config
from d2ace.training.config import IMAGE_PROTOCOL, RunConfig, reads_images
from d2ace.training.fabric import first_process
from d2ace.training.predictions import refuse_other_file, write_predictions
from d2ace.training.result import RunResult
from d2ace.training.tuning import tuned

from .console import make_console, print_table
from .train_view import EpochLines, EpochTable, StoredImages

__all__ = ["predict", "train"]

_DEFAULTS = RunConfig(data="")
Setting = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="An option of it; may be given several times."),
]


_IMAGES = "Images"
_NAMES = {
    kind: ", ".join(name for name, model in MODELS.items() if model.input == kind)
    for kind in ("table", "image")
}
_MODEL_OPTIONS = ("backbone", "weights", "freeze", "label_vectors")
"""Options of image models that have a word of their own."""


def _usual(setting: str) -> str:
    """What a setting is when nobody sets it."""
    for_tables, for_images = getattr(_DEFAULTS, setting), IMAGE_PROTOCOL[setting]
    return f"({for_tables}; images: {for_images})"


def train(
    data: Annotated[
        str | None, typer.Argument(help="Name of a dataset, a data file, or a layout of images.")
    ] = None,
    data_option: Annotated[
        str | None, typer.Option("--data", help="The same, where it reads better.")
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help=f"For tables {_NAMES['table']}; for images {_NAMES['image']}; or your own as "
            "file.py:Class."
        ),
    ] = _DEFAULTS.model,
    selector: Annotated[
        str, typer.Option(help="A method (see: d2ace methods), or your own as file.py:Class.")
    ] = _DEFAULTS.selector,
    model_option: Setting = None,
    selector_option: Setting = None,
    fold: Annotated[int, typer.Option(help="Test fold, from 0.")] = _DEFAULTS.fold,
    folds: Annotated[
        int | None,
        typer.Option(help=f"Number of folds; 1: the images' own test split. {_usual('folds')}"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = _DEFAULTS.seed,
    epochs: Annotated[int | None, typer.Option(help=f"Epochs. {_usual('epochs')}")] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help=f"Rows in a batch of each process. {_usual('batch_size')}"),
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option(
            help=f"First epochs: random batches, rising learning rate. {_usual('warmup')}"
        ),
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help=f"Adam's. {_usual('learning_rate')}")
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help=f"Adam's. {_usual('weight_decay')}")
    ] = None,
    validation: Annotated[
        float, typer.Option(help="Share of the training fold to validate on.")
    ] = _DEFAULTS.validation,
    monitor: Annotated[
        str | None,
        typer.Option(help=f"Validation metric that chooses the epoch. {_usual('monitor')}"),
    ] = None,
    min_positives: Annotated[
        int, typer.Option(help="Drop labels with fewer positive rows.")
    ] = _DEFAULTS.min_positives,
    repair: Annotated[bool, typer.Option(help="Realign the labels of the rcv1 subsets.")] = False,
    protocol: Annotated[
        str, typer.Option(help="Preparation: paper or reference.")
    ] = _DEFAULTS.protocol,
    epoch_loss: Annotated[
        bool, typer.Option(help="Also the loss of all training rows after every epoch.")
    ] = False,
    record: Annotated[bool, typer.Option(help="Record case studies to record.npz.")] = False,
    precision: Annotated[
        str, typer.Option(help="32-true, 64-true, bf16-mixed or 16-mixed.")
    ] = _DEFAULTS.precision,
    root: Annotated[
        str | None, typer.Option(help="Folder or .zip of the images.", rich_help_panel=_IMAGES)
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Side in pixels (448).", rich_help_panel=_IMAGES)
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="A torchvision network, or efficientnet_lite0 (resnet101).",
            rich_help_panel=_IMAGES,
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="Of the backbone: pretrained, none, or a file (pretrained).",
            rich_help_panel=_IMAGES,
        ),
    ] = None,
    freeze: Annotated[
        str | None,
        typer.Option(
            help="What of the backbone is not trained: none, early or backbone (none; hst: early).",
            rich_help_panel=_IMAGES,
        ),
    ] = None,
    label_vectors: Annotated[
        str | None,
        typer.Option(
            help="GloVe or CSV file with vectors of the labels (random ones).",
            rich_help_panel=_IMAGES,
        ),
    ] = None,
    cache_features: Annotated[
        bool,
        typer.Option(
            help="Store a frozen backbone's maps once and train on them.", rich_help_panel=_IMAGES
        ),
    ] = False,
    unlabelled: Annotated[
        str, typer.Option(help="Images without a label: keep or drop.", rich_help_panel=_IMAGES)
    ] = _DEFAULTS.unlabelled,
    on_broken: Annotated[
        str, typer.Option(help="Broken images: error or skip.", rich_help_panel=_IMAGES)
    ] = _DEFAULTS.on_broken,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes that read images, of each device (one per processor, up to 8).",
            rich_help_panel=_IMAGES,
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Folder for checkpoints, weights and the result."),
    ] = None,
    resume: Annotated[
        bool, typer.Option(help="Go on with the run in the folder, or start it over.")
    ] = True,
    checkpoint_every: Annotated[
        int | None, typer.Option(help="Save after so many steps, beside every epoch.")
    ] = None,
    devices: Annotated[int, typer.Option(help="Processes on this machine.")] = 1,
    accelerator: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    threads: Annotated[int | None, typer.Option(help="Processor threads of each process.")] = None,
    tensorboard: Annotated[bool, typer.Option(help="Event files in OUT/tensorboard.")] = False,
    tune: Annotated[
        bool, typer.Option(help="Search the paper's grid on the validation rows.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a model with batches drawn by a selector, as the paper's protocol says."""
    given = {name: value for name, value in locals().items() if value is not None}
    arguments = {name: value for name, value in given.items() if hasattr(_DEFAULTS, name)}
    images = {name: given[name] for name in _MODEL_OPTIONS if name in given}
    config = RunConfig.from_dict(
        arguments
        | {
            "data": _one_of(data, data_option),
            "model_options": images | _options("model-option", model_option),
            "selector_options": _options("selector-option", selector_option),
        }
    )
    running: dict[str, Any] = {
        "resume": resume,
        "checkpoint_every": checkpoint_every,
        "devices": devices,
        "accelerator": accelerator,
        "threads": threads,
        "workers": workers,
        "tensorboard": tensorboard,
        "progress": StoredImages(),
    }
    console = Console(stderr=True)
    if config.only_warm_up and first_process():
        print(config.only_warm_up, file=sys.stderr)
    with ExitStack() as stack:
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
            help="Name of a dataset, or a data file, with new rows, labels or not; for a run on "
            "images a folder or .zip of images, or an image."
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="PATH", help="CSV file (default: standard output)."),
    ] = None,
) -> None:
    """Predict the probability of every label for the rows of a dataset, as CSV."""
    path = None if output is None else given_path(output, "output", kind="file")
    saved = load_run(run)
    header = ["image" if saved.model.input == "image" else "row", *saved.label_names]
    if path is not None:
        refuse_other_file(path, header)  # before anything takes long
    if saved.model.input == "image":
        from d2ace.training.images.predicting import find_images

        images = find_images(data)
        names = [images.place(row) for row in range(images.n)]
        probabilities = saved.predict_proba(images)
    else:
        probabilities = saved.predict_proba(load_features(data, saved.feature_names))
        names = [str(number) for number in range(len(probabilities))]
    rows = (
        [name, *(f"{value:.6g}" for value in row)]
        for name, row in zip(names, probabilities.tolist(), strict=True)
    )
    write_predictions(path, header, rows)


def _one_of(argument: str | None, option: str | None) -> str:
    named = [name for name in (argument, option) if name is not None]
    if len(named) != 1:
        raise UserError("Name the data once, as in: d2ace train digits, or --data digits.")
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
        values = (f"{split[name]:.4f}" for split in (result.validation, result.test))
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
        console.print(f"{skipped} label(s) with one class in the test rows do not count in means.")
    seconds = ", ".join(f"{part} {value:.1f}" for part, value in result.seconds.items())
    console.print(f"seconds: {seconds}")
    if out is not None:
        console.print(f"saved in {out}", soft_wrap=True, markup=False)
