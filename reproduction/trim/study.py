"""Run the study, cell by cell; each finished cell is appended to a file, so it can be cut anytime.

In the folder `reproduction`:

    python -m trim.study tune         # learning rates and epochs, with Random alone
    python -m trim.study development  # candidates, on ten datasets
    python -m trim.study tune-final   # learning rates and epochs of seven others
    python -m trim.study final        # the chosen form on these, once
    python -m trim.study tune-again   # of one more dataset
    python -m trim.study again        # Trim as it ships now

Several processes share the work with `--part 0 --parts 4` and so on.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from trim import forms, shipped
from trim.cells import Cell, Noise, make_cell
from trim.networks import shuffles, train

HERE = Path(__file__).resolve().parent
DEVELOPMENT = {
    "emotions": 40, "birds": 40, "scene": 30, "yeast": 30, "cal500": 40, "enron": 30,
    "corel5k": 40, "rcv1subset1": 30, "yahoo-arts1": 30, "bibtex": 30,
}  # fmt: skip
"""Dataset -> most epochs when the learning rate is chosen."""
LARGE = ("corel5k", "rcv1subset1", "yahoo-arts1", "bibtex")
FINAL = {
    "flags": 40, "genbase": 30, "mediamill_reduced": 30, "yahoo-business1": 20,
    "rcv1subset2": 30, "tmc2007": 12, "delicious": 16,
}  # fmt: skip
AGAIN = {"rcv1subset3": 30}
"""Looked at once, when Trim had its second trigger."""
PLACEBOS = (10, 11, 12)
"""Orders of rows that Random alone is trained with."""
RATES = (3e-4, 1e-3, 3e-3)
REGIMES = {
    "20 % moved": Noise(moved=0.2),
    "as they come": Noise(),
    "under-trained": Noise(),
    "40 % moved": Noise(moved=0.4),
    "30 % missing": Noise(missing=0.3),
    "20 % spurious": Noise(spurious=0.2),
    "10 % moved": Noise(moved=0.1),
    "20 % moved, clean validation": Noise(moved=0.2, in_validation=False),
    "under-trained, 20 % moved": Noise(moved=0.2),
}
SCORES = ("macro_auc", "map", "macro_f1_tuned", "ranking_loss")
COLUMNS = (
    *("dataset", "regime", "fold", "seed", "order", "rule"),
    *("rate", "epochs", "start", "best_epoch", *SCORES),
)
KEYS = COLUMNS[:5]


@dataclass(frozen=True)
class Setting:
    """How the networks of a dataset are trained."""

    rate: float
    epochs: int

    def under_trained(self) -> Setting:
        """A tenth of the learning rate and half of the epochs."""
        return Setting(self.rate / 10, max(6, self.epochs // 2))


class Table:
    """A CSV that rows are appended to."""

    def __init__(self, path: Path, columns: tuple[str, ...], keys: tuple[str, ...]) -> None:
        self.path, self.columns, self.keys = path, columns, keys
        if not path.exists():
            path.write_text(",".join(columns) + "\n")

    def rows(self) -> list[dict[str, str]]:
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))

    def done(self) -> set[tuple[str, ...]]:
        return {tuple(row[key] for key in self.keys) for row in self.rows()}

    def add(self, rows: list[dict[str, Any]]) -> None:
        with self.path.open("a", newline="") as file:
            csv.DictWriter(file, self.columns, lineterminator="\n").writerows(rows)


def tune(datasets: dict[str, int], part: int, parts: int) -> None:
    """Rate: best validation Macro-AUC of Random, with and without noise; epochs: by its peak."""
    table = Table(HERE / "settings.csv", ("dataset", "rate", "epochs"), ("dataset",))
    for number, (dataset, most) in enumerate(datasets.items()):
        if number % parts != part or (dataset,) in table.done():
            continue
        found = []
        cells = [make_cell(dataset, 0, 0, REGIMES[name]) for name in ("as they come", "20 % moved")]
        for rate in RATES:
            bests = [_random(cell, rate, most).best for cell in cells]
            found.append((float(np.mean([best[0] for best in bests])), rate, [b[1] for b in bests]))
        _, rate, peaks = max(found)
        epochs = int(np.clip(round(2 * np.mean(peaks)), 12, 2 * most))
        table.add([{"dataset": dataset, "rate": rate, "epochs": epochs}])
        print(dataset, found, epochs, flush=True)


def _random(cell: Cell, rate: float, epochs: int) -> Any:
    batches = partial(shuffles, len(cell.train.Y), 0)
    return train(cell, [], seed=0, rate=rate, epochs=epochs, batches=batches)["random"][0]


def settings() -> dict[str, Setting]:
    table = Table(HERE / "settings.csv", ("dataset", "rate", "epochs"), ("dataset",))
    return {row["dataset"]: Setting(float(row["rate"]), int(row["epochs"])) for row in table.rows()}


MAIN = ("20 % moved", "as they come", "under-trained")


def development_plan() -> Iterator[tuple[str, str, int, int, int]]:
    """Dataset, regime, fold, seed, order of rows; what matters most first.

    The order is the fold's number. Further orders of fold 0 are Random alone: placebos.
    """
    small = [dataset for dataset in DEVELOPMENT if dataset not in LARGE]
    more = [regime for regime in REGIMES if regime not in MAIN]
    steps = [
        *((MAIN, DEVELOPMENT, fold, fold) for fold in (0, 1)),
        (more[:2], DEVELOPMENT, 0, 0),
        (MAIN, small, 2, 2),
        (more[2:], small, 0, 0),
        *((MAIN[:2], small, 0, order) for order in PLACEBOS),
    ]
    for regimes, datasets, fold, order in steps:
        for regime in regimes:
            for dataset in datasets:
                yield dataset, regime, fold, 0, order


def final_plan() -> Iterator[tuple[str, str, int, int, int]]:
    """Dataset, regime, fold, seed, order of rows; what matters most first."""
    main, rest = ("20 % moved", "as they come", "under-trained"), ("40 % moved", "30 % missing")
    few = ("delicious", "tmc2007", "mediamill_reduced", "rcv1subset2")
    many = [dataset for dataset in FINAL if dataset not in few]
    steps = [
        *((main, FINAL, fold, 0) for fold in (0, 1, 2)),
        (rest, FINAL, 0, 0),
        *((main, many, fold, 0) for fold in (3, 4)),
        *((main, many, fold, 1) for fold in range(5)),
        *((rest, many, fold, 0) for fold in (1, 2, 3, 4)),
        *((rest, few, fold, 0) for fold in (1, 2)),
    ]
    for regimes, datasets, fold, seed in steps:
        for regime in regimes:
            for dataset in datasets:
                yield dataset, regime, fold, seed, fold


def again_plan() -> Iterator[tuple[str, str, int, int, int]]:
    """With the second trigger: an unseen dataset, then the final stage once more."""
    for fold in (0, 1, 2):
        for regime in MAIN:
            yield from ((dataset, regime, fold, 0, fold) for dataset in AGAIN)
    yield from final_plan()


TUNED = {"tune": DEVELOPMENT, "tune-final": FINAL, "tune-again": AGAIN}
PLANS = {"development": development_plan, "final": final_plan, "again": again_plan}


def run(stage: str, part: int, parts: int, only: list[str], without: list[str]) -> None:
    """The cells of a stage, or every ``parts``-th of them, of some datasets or of all."""
    table = Table(HERE / f"{stage}.csv", COLUMNS, KEYS)
    done = table.done()
    chosen = [
        one for one in PLANS[stage]() if one[0] not in without and (not only or one[0] in only)
    ]
    for number, one in enumerate(chosen):
        if number % parts != part or tuple(map(str, one)) in done:
            continue
        dataset, regime, fold, seed, order = one
        if dataset not in settings():  # is being tuned; start again for it
            continue
        setting = settings()[dataset]
        if regime.startswith("under-trained"):
            setting = setting.under_trained()
        cell = make_cell(dataset, fold, seed, REGIMES[regime])
        started = time.perf_counter()
        how = {"seed": 1000 * fold + seed, "rate": setting.rate, "epochs": setting.epochs}
        if stage == "development":
            rules = [] if order in PLACEBOS else [*forms.candidates(), *forms.controls()]
            batches = partial(shuffles, len(cell.train.Y), order)
        else:
            rules, batches = shipped.rules(cell, 10 * order + seed, setting.epochs)
            rules = rules[:1] if stage == "again" else rules  # Trim, without its control
        found = train(cell, rules, batches=batches, **how)
        table.add(
            [
                {
                    **dict(zip(KEYS, one, strict=True)),
                    "rule": name,
                    "rate": setting.rate,
                    "epochs": setting.epochs,
                    "start": start,
                    **{key: shorter(value) for key, value in network.tested(cell).items()},
                }
                for name, (network, start) in found.items()
            ]
        )
        starts = {name: start for name, (_, start) in found.items()}
        print(*one, f"{time.perf_counter() - started:.1f} s", starts, flush=True)


def shorter(value: float) -> str:
    return f"{value:.6g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("step", choices=(*TUNED, *PLANS))
    parser.add_argument("--part", type=int, default=0, help="this process's, from 0")
    parser.add_argument("--parts", type=int, default=1, help="in how many the plan is cut")
    parser.add_argument("--only", nargs="*", default=[], help="datasets")
    parser.add_argument("--without", nargs="*", default=[], help="datasets")
    given = parser.parse_args()
    step = given.step
    torch.set_num_threads(1)
    if step in TUNED:
        tune(TUNED[step], given.part, given.parts)
    else:
        run(step, given.part, given.parts, given.only, given.without)


if __name__ == "__main__":
    main()
