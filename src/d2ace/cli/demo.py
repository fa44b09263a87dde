"""``d2ace demo``: Random against D2ACE on embedded data, in a minute or two.

The digits are images of two handwritten digits each; in some rows a label was exchanged for a wrong
one and in some the image is noise, and which rows those are is known. So one sees not only whether
a method trains a better model but also which rows it chose.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from d2ace._util.paths import given_path
from d2ace.benchmark.plan import RunSpec, comparison, method_name
from d2ace.benchmark.store import Store, StoredRun
from d2ace.data import AnnotatedData, load_digits, prepare
from d2ace.evaluation import METRICS, confidence_interval
from d2ace.report import WrittenFolder
from d2ace.report.figures import canvas, style
from d2ace.selectors import D2ACE, Random
from d2ace.training import RunResult, make_folder

from .bench_session import Session, raise_unless_well, run

__all__ = ["demo"]

SETTINGS: dict[str, Any] = {
    "data": "digits",
    "model": "mlp",
    "epochs": 60,
    "learning_rate": 1e-3,
    "record": True,
}
SHOWN = ("macro_auc", "macro_f1", "ranking_loss")
KINDS = ("clean", "wrong", "noise")
PICTURES = ("validation.png", "chosen.png")


@dataclass(frozen=True)
class MethodRuns:
    """The runs of one method, one for each seed, and how often they drew rows of each kind."""

    method: str
    results: list[RunResult]
    drawn: npt.NDArray[np.float64]
    """[seeds, kinds] draws of a row of the kind, relative to those of a row on average."""

    def scores(self, metric: str) -> list[float]:
        """The test scores, seed by seed."""
        return [result.test[metric] for result in self.results]


def demo(
    out: Annotated[
        str, typer.Option(metavar="FOLDER", help="Folder for the two pictures and the runs.")
    ] = "d2ace-demo",
    every: Annotated[bool, typer.Option("--all", help="All methods, not only two.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of a run.")] = SETTINGS["epochs"],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Train on the embedded digits with random batches and with D2ACE, and compare."""
    folder = given_path(out, "--out")
    pictures = WrittenFolder(folder)
    pictures.check(PICTURES)
    make_folder(folder)
    settings = {**SETTINGS, "epochs": epochs, "warmup": min(10, epochs // 2)}
    chosen = {method.selector: dict(method.options) for method in comparison()}
    names = list(chosen) if every else [Random.name, D2ACE.name]
    specs = {}
    for name in names:
        method = {"selector": name, "selector_options": chosen[name]}
        specs[name] = [
            RunSpec("main", method_name(method), {**settings, **method, "seed": seed})
            for seed in range(seeds)
        ]
    jobs = max(1, min(os.cpu_count() or 1, len(names) * seeds))
    session = Session(folder / "runs.db", jobs, retry=True)
    raise_unless_well(*run(session, [spec for runs in specs.values() for spec in runs]))
    data = load_digits()
    with Store(session.db) as store:
        stored = {each.key: each for each in store.runs()}
        found = [_runs(store, [stored[spec.key] for spec in specs[name]], data) for name in names]
    drawn = (_draw_curves(found), _draw_choices(found))
    pictures.write(dict(zip(PICTURES, drawn, strict=True)))
    paths = [folder / name for name in PICTURES]
    if as_json:
        print(json.dumps(_plain(found, paths), indent=1))
        return
    _show(found, data, paths)
    print(f"more: d2ace report {session.db} -o {folder / 'report'}")


def _runs(store: Store, runs: Sequence[StoredRun], data: AnnotatedData) -> MethodRuns:
    results, drawn = [], []
    for each in runs:
        record = store.recording(each.id)
        assert each.result is not None and record is not None  # noqa: S101, PT018 - both stored
        results.append(RunResult.from_dict(each.result))
        drawn.append(_share_by_kind(data, record["rows"], record["draw_counts"]))
    return MethodRuns(runs[0].method, results, np.array(drawn))


def _share_by_kind(
    data: AnnotatedData, rows: npt.NDArray[np.int64], draws: npt.NDArray[np.int64]
) -> list[float]:
    """How often a row of each kind was drawn, relative to the mean row."""
    original = prepare(data).rows[rows]
    flipped, noise = np.isin(original, data.flipped), np.isin(original, data.outliers)
    kinds = (~flipped & ~noise, flipped, noise)
    return [float(draws[kind].mean() / draws.mean()) if kind.any() else math.nan for kind in kinds]


def verdict(better: MethodRuns, plain: MethodRuns, metric: str = "macro_auc") -> str:
    """In words, whether the first method's scores differ from the second's by more than noise."""
    title = METRICS[metric].title
    pairs = zip(better.scores(metric), plain.scores(metric), strict=True)
    differences = [one - two for one, two in pairs]
    if len(differences) < 2:
        return f"One seed says nothing about noise: {title} differs by {differences[0]:+.4f}."
    interval = confidence_interval(differences)
    numbers = (
        f"{title} {interval.mean:+.4f} against {plain.method}, 95 % interval "
        f"{interval.low:+.4f} to {interval.high:+.4f} over {len(differences)} seeds"
    )
    if interval.low <= 0 <= interval.high:
        return f"{better.method} and {plain.method} are within noise here: {numbers}."
    word = "better" if (interval.mean > 0) == METRICS[metric].higher_is_better else "worse"
    return f"{better.method} is {word} here: {numbers}."


def _plain(runs: Sequence[MethodRuns], pictures: Sequence[Path]) -> dict[str, Any]:
    return {
        "methods": [
            {
                "method": each.method,
                "test": {metric: each.scores(metric) for metric in SHOWN},
                "best_epoch": [result.best_epoch for result in each.results],
                "seconds": [result.seconds["total"] for result in each.results],
                "drawn": dict(zip(KINDS, np.nanmean(each.drawn, axis=0).tolist(), strict=True)),
            }
            for each in runs
        ],
        "verdict": verdict(runs[-1], runs[0]),
        "pictures": [str(path) for path in pictures],
    }


def _show(runs: Sequence[MethodRuns], data: AnnotatedData, pictures: Sequence[Path]) -> None:
    from rich.table import Table

    from .console import make_console, print_table

    console = make_console()
    shares = (len(data.flipped) / data.n, len(data.outliers) / data.n)
    console.print(
        f"[bold]digits[/bold]: {data.n} images, {data.q} labels; {shares[0]:.0%} of the rows have "
        f"a wrong label and {shares[1]:.0%} are noise. Test scores, mean ± deviation of "
        f"{len(runs[0].results)} seed(s); how often a row of each kind was drawn, relative to all:",
    )
    table = Table("method", box=None, pad_edge=False, header_style="bold")
    for metric in SHOWN:
        arrow = "↑" if METRICS[metric].higher_is_better else "↓"
        table.add_column(f"{METRICS[metric].title} {arrow}", justify="right")
    for heading in ("seconds", *KINDS):
        table.add_column(heading, justify="right")
    for each in runs:
        seconds = fmean(result.seconds["total"] for result in each.results)
        drawn = (f"{value:.2f}" for value in np.nanmean(each.drawn, axis=0))
        table.add_row(
            each.method, *(_spread(each.scores(m)) for m in SHOWN), f"{seconds:.1f}", *drawn
        )
    print_table(table)
    console.print(verdict(runs[-1], runs[0]))
    for path in pictures:
        console.print(f"picture: {path}", soft_wrap=True)


def _spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.3f}" + (f"±{stdev(values):.3f}" if len(values) > 1 else "")


def _draw_curves(runs: Sequence[MethodRuns]) -> bytes:
    """Validation score by epoch: the mean over seeds, and their range."""
    looks = style.looks([each.method for each in runs])
    with style.applied():
        picture = canvas(style.WIDE, 3.6)
        axes = picture.subplots()
        for each in runs:
            curves = np.array(
                [[e["validation"]["macro_auc"] for e in r.history] for r in each.results]
            )
            epochs = np.arange(1, curves.shape[1] + 1)
            line = looks[each.method].line()
            axes.plot(epochs, curves.mean(0), label=each.method, **line)
            axes.fill_between(
                epochs, curves.min(0), curves.max(0), color=line["color"], alpha=0.15, linewidth=0
            )
        axes.set(xlabel="epoch", ylabel="validation Macro-AUC", title="digits, MLP")
        axes.legend()
        return _png(picture)


def _draw_choices(runs: Sequence[MethodRuns]) -> bytes:
    """How often rows of each kind were drawn."""
    looks = style.looks([each.method for each in runs])
    with style.applied():
        picture = canvas(style.WIDE, 3.6)
        axes = picture.subplots()
        width = 0.8 / len(runs)
        for number, each in enumerate(runs):
            places = np.arange(len(KINDS)) + (number - (len(runs) - 1) / 2) * width
            colour = looks[each.method].colour
            axes.bar(places, np.nanmean(each.drawn, axis=0), width, label=each.method, color=colour)
        axes.axhline(1.0, color=style.ZERO, linewidth=0.8)
        axes.set_xticks(range(len(KINDS)), ("clean", "wrong label", "noise image"))
        axes.set(ylabel="draws of a row, relative to the mean", title="Which rows were chosen")
        axes.legend(ncols=2)
        return _png(picture)


def _png(picture: Any) -> bytes:
    buffer = io.BytesIO()
    picture.savefig(buffer, dpi=150, facecolor="white")
    return buffer.getvalue()
