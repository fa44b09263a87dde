"""The runs of a store, sorted out into what the report tells of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from d2ace.benchmark.store import Store, StoredRun, check_recording, opened

from .method_comparison import MethodComparison, by_model
from .method_names import order
from .naming import tell_apart, versions
from .run_values import Recording
from .sweeps import Sweep, find_sweeps

TUNED = "macro_f1_tuned"
"""Stands beside Macro-F1 at 0.5; runs of versions before 0.2 have no score in it."""
SHOWN = ("macro_auc", "macro_f1", TUNED, "ranking_loss", "mean_average_precision")
"""The metrics of the report: the paper's three for tabular data, with one of them at tuned
thresholds too, and its one for images."""
STUDIES = ("ablation", "sweep", "case")
"""Studies with sections of their own; every other one compares methods."""


@dataclass(frozen=True)
class Laboratory:
    """Everything a report tells of."""

    comparisons: list[MethodComparison]
    ablations: list[MethodComparison]
    cases: list[MethodComparison]
    """Runs made for their recordings alone: too few to compare scores."""
    sweeps: list[Sweep]
    finished: list[StoredRun]
    failed: list[StoredRun]
    recording: Callable[[StoredRun], Recording | None]
    """Reads what a run recorded, while the store is open."""
    outdated: frozenset[tuple[str, str]] = frozenset()
    """Study and key of failed runs whose method finished in another version: none is missing."""

    @property
    def methods(self) -> list[str]:
        """All methods of the comparisons."""
        return order(method for one in self.comparisons for method in one.methods)

    def recorded(self, one: MethodComparison, dataset: str) -> dict[str, list[Recording]]:
        """Method -> recordings of its runs on a dataset; those without are left out."""
        found = {
            method: [
                recording
                for run in one.runs(dataset, method)
                if run.config.get("record") and (recording := self.recording(run)) is not None
            ]
            for method in one.methods
        }
        return {method: several for method, several in found.items() if several}


def shown(runs: Iterable[StoredRun]) -> list[str]:
    """The report's metrics; that at tuned thresholds only where a run has a score in it."""
    tuned = any(TUNED in (run.result or {}).get("test", {}) for run in runs)
    return [metric for metric in SHOWN if metric != TUNED or tuned]


def collect(store: Store) -> Laboratory:
    """The runs of a store, sorted out. The order in which they were stored plays no part."""
    stored = opened(store).runs(status=None)
    names = tell_apart(stored)
    named = list(zip(stored, versions(stored), strict=True))
    everything = sorted(
        (replace(run, dataset=names[run.key], method=version.name) for run, version in named),
        key=_place,
    )
    finished = [run for run in everything if run.status == "finished" and run.result]
    others = [run for run in finished if run.study not in STUDIES]
    studies = sorted({run.study for run in others}, key=lambda study: (study != "main", study))
    comparisons = [
        one for study in studies for one in by_model([r for r in others if r.study == study])
    ]
    return Laboratory(
        comparisons=comparisons,
        ablations=by_model([run for run in finished if run.study == "ablation"]),
        cases=by_model([run for run in finished if run.study == "case"]),
        sweeps=find_sweeps([run for run in finished if run.study == "sweep"]),
        finished=finished,
        failed=[run for run in everything if run.status == "failed"],
        recording=lambda run: _recording(store, run),
        outdated=frozenset((run.study, run.key) for run, version in named if version.outdated),
    )


def _recording(store: Store, run: StoredRun) -> Recording | None:
    found = store.recording(run.id)
    if found is not None:
        try:
            check_recording(found)
        except ValueError as error:
            raise store.bad_run(run.key, error) from None
    return found


def _place(run: StoredRun) -> tuple[Any, ...]:
    # If the same work was done twice, take the run that recorded more.
    less = not run.config.get("record"), not run.config.get("epoch_loss")
    where = (run.study, run.model, run.dataset, run.method, run.seed, run.fold)
    return (*where, *less, run.key)
