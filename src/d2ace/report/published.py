"""The figures the D2ACE paper prints, to stand beside ours.

`published/` holds them as CSV: scores, average ranks and the p-values of the Wilcoxon test of D2ACE
against each method. Your own folder is read in the same way; its columns identify a file.
If runs have other settings than the paper's, :meth:`Published.why_not` says which.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from d2ace._util.errors import UserError
from d2ace.benchmark.plan import canonical, complete, work_of
from d2ace.benchmark.store import StoredRun
from d2ace.data import catalogue
from d2ace.report.method_names import base_of, title_of
from d2ace.training import MODEL_GRIDS, SELECTOR_GRIDS

Key = tuple[str, ...]

PAPER = (
    *("folds", "epochs", "batch_size", "warmup", "learning_rate", "weight_decay", "validation"),
    *("monitor", "min_positives", "repair", "protocol", "precision"),
)
"""Settings that must be the paper's, which are those a run has when nobody sets them."""

_KINDS: dict[str, tuple[str, ...]] = {
    "score": ("metric", "model", "dataset", "method"),
    "average_rank": ("metric", "model", "method"),
    "p_value": ("metric", "model", "method"),
}
"""What a file tells -> the columns that say of what."""


@dataclass(frozen=True)
class Published:
    """Printed numbers by what they are of; each question is answered by None where none is."""

    numbers: dict[str, dict[Key, float]] = field(
        default_factory=lambda: {kind: {} for kind in _KINDS}
    )
    settings: tuple[str, ...] = ("repair",)
    """Settings of our runs that must be as usual. Of somebody else's numbers little is known."""

    def score(self, metric: str, model: str, dataset: str, method: str) -> float | None:
        """The score of a method. Presets of a model or method are compared with the same one."""
        where = (metric, _model(model), _dataset(dataset), base_of(method))
        return self.numbers["score"].get(where)

    def why_not(self, runs: Iterable[StoredRun], method: str | None = None) -> str:
        """In which way these runs were not made as the printed ones; empty where they were.

        With ``method`` its options count too. Presets, and the values that the paper's tuning
        tries, are the paper's.
        """
        found: dict[str, None] = {}
        for run in runs:
            here = work_of(run.config)
            usual = work_of(complete({"data": here["data"], "model": here["model"]}))
            if self.settings == PAPER and catalogue.find(run.config["data"]) is None:
                found["your own file"] = None
            for key in self.settings:
                if here[key] != usual[key]:
                    found[f"{key} {canonical(here[key])}, not {canonical(usual[key])}"] = None
            if self.settings == PAPER:
                found |= dict.fromkeys(_other_options(here, method))
        return "; ".join(found)

    def average_rank(self, metric: str, model: str, method: str) -> float | None:
        """The average rank of a method over the paper's datasets."""
        return self.numbers["average_rank"].get((metric, _model(model), base_of(method)))

    def ranked(self, metric: str, model: str) -> set[str]:
        """The methods among which the average ranks are taken."""
        every = self.numbers["average_rank"]
        return {method for what, whose, method in every if (what, whose) == (metric, _model(model))}

    def p_value(self, metric: str, model: str, method: str) -> float | None:
        """The p-value of D2ACE against a method."""
        return self.numbers["p_value"].get((metric, _model(model), base_of(method)))


def load(folder: str | Path | None = None) -> Published:
    """The numbers that come with the package, or those in the CSV files of a folder."""
    place: Any = resources.files("d2ace.report").joinpath("published_scores")
    if folder is not None:
        place = Path(folder)
        if not place.is_dir():
            raise UserError(f"there is no folder {folder} of published numbers")
    published = Published(settings=PAPER if folder is None else Published.settings)
    for path in sorted(place.iterdir(), key=lambda path: path.name):
        if path.name.endswith(".csv"):
            _read(path, published)
    if not any(published.numbers.values()):
        raise UserError(
            f"no CSV file in {folder} has the columns {', '.join(_KINDS['score'])} and score"
        )
    return published


def _read(path: Any, published: Published) -> None:
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is not a CSV file in UTF-8: {error}") from None
    columns = set(rows[0]) if rows else set()
    for kind, named in _KINDS.items():
        if not columns >= {kind, *named}:
            continue
        for line, row in enumerate(rows, start=2):
            key = [row[name] or "" for name in named]
            key[1] = _model(key[1])
            if "dataset" in named:
                key[2] = _dataset(key[2])
            try:
                published.numbers[kind][tuple(key)] = float(row[kind] or "")
            except ValueError:
                raise UserError(
                    f"{path}, line {line}: {kind} is {row[kind]!r}, not a number"
                ) from None


def _other_options(config: Mapping[str, Any], method: str | None) -> Iterator[str]:
    """Options that are neither a preset nor among what the paper's tuning tries."""
    kinds = [("model", MODEL_GRIDS)]
    if method is not None:
        kinds.append(("selector", SELECTOR_GRIDS))
        if title_of(config["selector"]) != base_of(method):
            yield f"{method} is another selector here"
    for kind, grids in kinds:
        tried = grids.get(config[kind], {})
        for name, value in config[f"{kind}_options"].items():
            if name != "preset" and value not in tried.get(name, ()):
                yield f"{name} {canonical(value)}"


def _model(name: str) -> str:
    return base_of(name).upper()


def _dataset(name: str) -> str:
    """The catalogue's name of a dataset, so that "rcvsubset1" and "rcv1subset1" meet.

    What was done to it (in brackets) is for :meth:`Published.why_not` to judge.
    """
    plain = base_of(name)
    entry = catalogue.find(plain)
    return plain if entry is None else entry.name
