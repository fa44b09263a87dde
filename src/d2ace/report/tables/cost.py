"""Tables of cost in seconds and of the runs themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from d2ace.benchmark.store import StoredRun
from d2ace.report.collect import Laboratory, shown
from d2ace.report.figures import style
from d2ace.report.figures.training import seconds
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.method_names import BASELINE, order
from d2ace.report.naming import dataset_names
from d2ace.report.registry import register_table
from d2ace.report.topics import ComparisonTopic, StoreTopic
from d2ace.report.wording import counted

from .table import ReportTable, Value, figure, word


def times(name: str, comparison: MethodComparison) -> ReportTable:
    """Seconds of a run by part, what selection adds to training, and the ratio to Random."""
    rows = []
    for dataset in comparison.datasets:
        for method in comparison.methods:
            runs = comparison.runs(dataset, method)
            if not runs:
                continue
            parts = seconds(runs)
            total = _total(runs)
            ratio = _ratio(runs, comparison.runs(dataset, BASELINE))
            rows.append(
                [
                    word(dataset),
                    word(method),
                    *[figure(parts[part], ".2f") for part in style.PARTS],
                    figure(total, ".2f"),
                    figure(selection_share(runs), ".2%"),
                    figure(ratio, ".2f"),
                ]
            )
    return ReportTable(
        name=name,
        title=f"Seconds per run, {comparison.heading}",
        caption=(
            "Mean wall-clock seconds, evaluation left out. “Selection” is what is neither training "
            "nor saving, over the training of the same run: the fair comparison where other jobs "
            f"shared the machine. “× {BASELINE}” is the total over {BASELINE}'s on the same folds "
            "and seeds, which such jobs distort."
            + (f" {uncounted}" if (uncounted := _uncounted(comparison)) else "")
        ),
        columns=[
            "Dataset",
            "Method",
            *[part_title for part_title, _ in style.PARTS.values()],
            "Total",
            "Selection",
            f"× {BASELINE}",
        ],
        rows=rows,
    )


def _uncounted(comparison: MethodComparison) -> str:
    """What is to be said of runs that were stored before saving was counted."""
    runs = [run for cell in comparison.cells.values() for run in cell]
    before = sum(not _counted(run) for run in runs)
    if not before:
        return ""
    return f"Saving was not counted in {before} of {counted(len(runs), 'run')}: it is 0 there."


def inventory(name: str, laboratory: Laboratory) -> ReportTable:
    """What ran, study by study; every run in the CSV."""
    rows = []
    names, metrics = _names(laboratory), shown(laboratory.finished)
    for (study, model, dataset), found in _places(laboratory).items():
        done = [run for run in found if run.status == "finished"]
        bad = [run for run in found if run.status == "failed"]
        runs = _current(laboratory, found) or found
        rows.append(
            [
                word(study),
                word(model),
                word(dataset),
                figure(len({run.method for run in runs}), "d"),
                figure(len({run.fold for run in runs}), "d"),
                figure(len({run.seed for run in runs}), "d"),
                figure(len(done), "d"),
                figure(len(bad), "d"),
                figure(_missing(runs), "d"),
            ]
        )
    data: list[dict[str, Value]] = [
        {
            "study": run.study,
            "model": run.model,
            "dataset": names[run.study, run.key],
            "method": run.method,
            "fold": run.fold,
            "seed": run.seed,
            "status": run.status,
            "error": run.error,
            **{metric: (run.result or {}).get("test", {}).get(metric) for metric in metrics},
            "seconds": (run.result or {}).get("seconds", {}).get("total"),
            "finished_at": run.finished_at,
            "key": run.key,
        }
        for run in [*laboratory.finished, *laboratory.failed]
    ]
    return ReportTable(
        name=name,
        title="Runs",
        caption=(
            "The runs in the store. “Missing” counts runs, by fold and seed, that some method of "
            "the row has and another lacks. The CSV file has a line for every run."
        ),
        columns=[
            "Study",
            "Model",
            "Dataset",
            "Methods",
            "Folds",
            "Seeds",
            "Finished",
            "Failed",
            "Missing",
        ],
        rows=rows,
        data=data,
    )


def failures(name: str, laboratory: Laboratory) -> ReportTable | None:
    """The runs that failed, with what they said."""
    if not laboratory.failed:
        return None
    return ReportTable(
        name=name,
        title="Failed runs",
        caption="Runs that ended with an error; no other table contains them.",
        columns=["Study", "Model", "Dataset", "Method", "Fold", "Seed", "Error"],
        rows=[
            [
                word(run.study),
                word(run.model),
                word(run.dataset),
                word(run.method),
                figure(run.fold, "d"),
                figure(run.seed, "d"),
                word((run.error or "").strip()),
            ]
            for run in laboratory.failed
        ],
    )


def missing_runs(laboratory: Laboratory) -> list[str]:
    """What is missing, in words: one sentence per dataset and model."""
    sentences = []
    for (study, model, dataset), found in _places(laboratory).items():
        runs = _current(laboratory, found)
        gaps = {
            method: missing
            for method in order(run.method for run in runs)
            if (missing := _gaps(runs, method))
        }
        if gaps and study != "sweep":
            listed = ", ".join(f"{method} ({len(missing)})" for method, missing in gaps.items())
            sentences.append(f"{study}, {model} on {dataset}: {listed}")
    return sentences


def _names(laboratory: Laboratory) -> dict[tuple[str, str], str]:
    """Study and run key -> dataset, with unusual settings as in the other tables."""
    studies: dict[str, list[StoredRun]] = {}
    for run in [*laboratory.finished, *laboratory.failed]:
        studies.setdefault(run.study, []).append(run)
    return {
        (study, key): name
        for study, runs in studies.items()
        for key, name in dataset_names(runs).items()
    }


def _places(laboratory: Laboratory) -> dict[tuple[str, str, str], list[StoredRun]]:
    """Study, model and dataset -> runs."""
    names = _names(laboratory)
    groups: dict[tuple[str, str, str], list[StoredRun]] = {}
    for run in [*laboratory.finished, *laboratory.failed]:
        place = (run.study, run.model, names[run.study, run.key])
        groups.setdefault(place, []).append(run)
    return dict(sorted(groups.items()))


def _current(laboratory: Laboratory, runs: list[StoredRun]) -> list[StoredRun]:
    """Without failed runs of versions that have been replaced."""
    return [run for run in runs if (run.study, run.key) not in laboratory.outdated]


def _gaps(runs: list[StoredRun], method: str) -> set[tuple[int, int]]:
    """(fold, seed) pairs that some method has and this one has not finished."""
    every = {(run.fold, run.seed) for run in runs}
    return every - {
        (run.fold, run.seed) for run in runs if run.method == method and run.status == "finished"
    }


def _missing(runs: list[StoredRun]) -> int:
    tried = {(run.method, run.fold, run.seed) for run in runs}
    methods, places = {run.method for run in runs}, {(run.fold, run.seed) for run in runs}
    return len(methods) * len(places) - len(tried)


def _total(runs: tuple[StoredRun, ...], parts: Iterable[str] = style.PARTS) -> float:
    spent = seconds(runs)
    return float(np.nansum([spent[part] for part in parts]))


def selection_share(runs: tuple[StoredRun, ...]) -> float | None:
    """Mean over runs of the seconds that selection took, divided by those of training."""
    selection = [part for part in style.PARTS if part not in ("train", "save")]
    pairs = [(_total((run,), selection), _total((run,), ["train"])) for run in runs]
    shares = [selecting / training for selecting, training in pairs if training]
    return float(np.mean(shares)) if shares else None


def _counted(run: StoredRun) -> bool:
    """Whether the seconds of saving were counted."""
    return (run.result or {})["seconds"].get("save") is not None


def _ratio(runs: tuple[StoredRun, ...], baseline: tuple[StoredRun, ...]) -> float | None:
    """Total over the baseline's, on the folds and seeds both have.

    Saving is left out unless all of them counted it, or older runs would seem cheaper.
    """
    parts = [part for part in style.PARTS if part != "save" or all(map(_counted, runs + baseline))]
    base = {(run.fold, run.seed): _total((run,), parts) for run in baseline}
    own = {(run.fold, run.seed): _total((run,), parts) for run in runs}
    both = base.keys() & own.keys()
    below = sum(base[where] for where in sorted(both))
    return sum(own[where] for where in sorted(both)) / below if below else None


@register_table("time", order=10)
def _times(topic: ComparisonTopic) -> Iterator[ReportTable | None]:
    yield times(topic.name("times", topic.heading), topic.comparison)


@register_table("runs", order=10)
def _runs(topic: StoreTopic) -> Iterator[ReportTable | None]:
    yield inventory(topic.name("all-runs"), topic.laboratory)
    yield failures(topic.name("failed-runs"), topic.laboratory)
