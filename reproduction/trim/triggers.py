"""Which trigger never harms? The networks of the study, the slow ones, and CLIF.

In the folder `reproduction`: `python -m trim.triggers networks` and `python -m trim.triggers clif`.
`triggers.csv` has the runs. Finished cells are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from trim import clif, forms
from trim.cells import make_cell
from trim.networks import Epoch, shuffles, train
from trim.study import COLUMNS, DEVELOPMENT, HERE, KEYS, LARGE, REGIMES, Table, settings, shorter
from trim.watched import SEEN

SLOW = {"emotions": 116, "birds": 104, "cal500": 116, "enron": 40, "yeast": 115, "scene": 86}
"""Dataset -> epochs of the slow networks."""
SLOW_RATE, SLOW_BATCH = 0.003, 128
NOISES = ("as they come", "20 % moved")
GAINS = ("20 % moved", "as they come", "40 % moved")
SETS_OF_CLIF = ("flags", "emotions", "birds")
AFTER_WARMUP = 11
"""The first epoch that `d2ace.train` lets Trim act in."""
FOLDS = (0, 1)

Found = dict[str, tuple[int, dict[str, Any]]]
"""Rule -> the epoch in which it started, and its test scores."""


def slow_regime(noise: str) -> str:
    return f"slow, {noise}"


def plan_of_networks() -> Iterator[tuple[str, str, int]]:
    """Dataset, regime, fold."""
    small = [dataset for dataset in DEVELOPMENT if dataset not in LARGE]
    for fold in FOLDS:
        for noise in NOISES:
            yield from ((dataset, slow_regime(noise), fold) for dataset in SLOW)
        for regime in GAINS:
            yield from ((dataset, regime, fold) for dataset in small)
    for regime in GAINS:
        yield from ((dataset, regime, 0) for dataset in LARGE)


def trained(dataset: str, regime: str, fold: int) -> tuple[float, int, Found]:
    """Learning rate, epochs, and every candidate's outcome."""
    slow = regime.startswith("slow")
    noise = REGIMES[regime.removeprefix("slow, ")]
    cell = make_cell(dataset, fold, 0, noise, standardised=not slow)
    if slow:
        rate, epochs = SLOW_RATE, SLOW[dataset]
    else:
        rate, epochs = settings()[dataset].rate, settings()[dataset].epochs
    size = SLOW_BATCH if slow else 0
    batches = partial(shuffles, len(cell.train.Y), fold, size=size)
    how: dict[str, Any] = {"seed": 1000 * fold, "rate": rate, "epochs": epochs}
    networks = train(cell, forms.triggers(), batches=batches, **how)
    found = {name: (start, network.tested(cell)) for name, (network, start) in networks.items()}
    return rate, epochs, found


# CLIF -----------------------------------------------------------------------------------------


def plan_of_clif() -> Iterator[tuple[str, str, int]]:
    for fold in FOLDS:
        for regime in clif.REGIMES_OF_CLIF:
            yield from ((dataset, regime.name, fold) for dataset in SETS_OF_CLIF)


def trained_clif(dataset: str, regime: str, fold: int) -> tuple[float, int, Found]:
    """Random, whose losses say when each candidate starts; then one run for each such epoch."""
    one = next(each for each in clif.REGIMES_OF_CLIF if each.name == regime)
    rate = clif.chosen_rate(dataset) if one.converged else clif.PAPER
    run = partial(clif.trained, dataset, fold, rate, one.noise)
    random = run("trim.watched:Watched")
    aucs = [entry["validation"]["macro_auc"] for entry in random.history]
    history = [
        Epoch(own, torch.tensor([held_out], dtype=torch.float64), auc)
        for (own, held_out), auc in zip(SEEN, aucs, strict=True)
    ]
    outcomes = {0: clif.scores(random)}
    found = {"random": (0, outcomes[0])}
    for form in forms.triggers():
        fired = (done + 1 for done in range(1, clif.EPOCHS) if form.trigger(history[:done]))
        start = next(fired, 0)
        start = start and max(start, AFTER_WARMUP)
        if start not in outcomes:
            outcomes[start] = clif.scores(run("trim", start))
        found[form.name] = (start, outcomes[start])
    return rate, clif.EPOCHS, found


STAGES = {"networks": (plan_of_networks, trained), "clif": (plan_of_clif, trained_clif)}


def main(stage: str) -> None:
    torch.set_num_threads(1)
    table = Table(HERE / "triggers.csv", COLUMNS, KEYS)
    plan, run = STAGES[stage]
    for dataset, regime, fold in plan():
        key = (dataset, regime, str(fold), "0", str(fold))
        if key in table.done():
            continue
        rate, epochs, found = run(dataset, regime, fold)
        cell = dict(zip(KEYS, key, strict=True)) | {"rate": rate, "epochs": epochs}
        table.add(
            [
                {**cell, "rule": rule, "start": start, **{k: _text(v) for k, v in scores.items()}}
                for rule, (start, scores) in found.items()
            ]
        )
        print(*key, {rule: start for rule, (start, _) in found.items()}, flush=True)


def _text(value: Any) -> str:
    return shorter(value) if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main(sys.argv[1])
