"""How well injected label errors are found: Insights, cleanlab and simpler scores.

    python benchmarks/insights.py                                  # everything (about two hours)
    python benchmarks/insights.py --datasets emotions,scene --seeds 0
    python benchmarks/insights.py --tables                         # the tables of insights.md
    python benchmarks/insights.py --as-given                       # what is flagged without errors

Results are appended to insights.csv as they come, and what is there is not measured again. With
``--keep FOLDER`` everything observed is stored as well; a score that has changed is then measured
without training again (delete its lines from the CSV). insights.md has the rules and the results.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class
from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class
from insights_tables import tables
from scipy import sparse as sp
from sklearn.metrics import average_precision_score

import d2ace
import d2ace.data
from d2ace.models import CLIF, MLP

RESULTS = Path(__file__).with_suffix(".csv")
DEVELOPMENT = ("emotions", "scene", "yeast", "enron", "bibtex")
LOOKED_AT_ONCE = ("birds", "cal500", "corel5k", "rcv1subset1", "yahoo-arts1")
LARGE = ("bibtex", "corel5k", "rcv1subset1", "yahoo-arts1")  # last
KINDS = ("moved", "missing", "spurious", "confused")
RATES = (5, 10, 20)
BATCH, FOLDS, NEIGHBOURS = 128, 5, 10


@dataclass(frozen=True)
class Cell:
    """One training set with errors, and how it is trained on."""

    dataset: str
    model: str
    draw: str
    kind: str
    rate: int
    seed: int


@dataclass
class Observed:
    """What the scores of a cell are computed from."""

    insights: dict[str, Any]
    margin: np.ndarray
    last: np.ndarray
    held_out: dict[str, np.ndarray]
    """Out-of-sample probabilities of the fold networks, after parts of their epochs."""
    seconds: dict[str, float]


# Data and errors ----------------------------------------------------------------------------


@lru_cache(maxsize=1)
def problem(name: str) -> tuple[torch.Tensor, np.ndarray, bool]:
    """Features in [0, 1], labels, and whether the features are sparse."""
    loaded = d2ace.data.load(name, repair=True) if "rcv1" in name else d2ace.data.load(name)
    prepared = d2ace.data.prepare(loaded, min_positives=0, drop_empty_rows=False)
    data = prepared.scaled(np.arange(loaded.n))
    X, Y = ((part.toarray() if sp.issparse(part) else part) for part in (data.X, data.Y))
    return torch.from_numpy(np.ascontiguousarray(X)), Y.astype(bool), sp.issparse(data.X)


def epochs_for(rows: int) -> int:
    return 50 if rows < 1000 else 40 if rows < 3000 else 10


def with_errors(truth: np.ndarray, cell: Cell) -> np.ndarray:
    """Labels with as many errors as ``rate`` percent of the positives (moved ones are two)."""
    rng = np.random.default_rng(crc32(repr(astuple(cell)[3:]).encode()))
    given = truth.copy()
    positives = np.argwhere(truth)
    chosen = rng.permutation(positives)[: round(len(positives) * cell.rate / 100)]
    near = correlated(truth) if cell.kind == "confused" else None
    for row, label in chosen:
        if cell.kind == "spurious":
            row = rng.integers(len(truth))
        if cell.kind != "missing":
            free = np.flatnonzero(~(given[row] | truth[row]))
            if not free.size:
                continue
            added = rng.choice(free) if near is None else free[near[label, free].argmax()]
            given[row, added] = True
        if cell.kind != "spurious":
            given[row, label] = False
    return given


def correlated(truth: np.ndarray) -> np.ndarray:
    centred = truth - truth.mean(axis=0)
    length = np.maximum(np.sqrt((centred**2).sum(axis=0)), 1e-12)
    return (centred.T @ centred) / np.outer(length, length)


# Training -----------------------------------------------------------------------------------


class Recorder:
    """Insights, and beside them what AUM and the last loss need; Insights are timed."""

    def __init__(self, labels: np.ndarray) -> None:
        self.insights = d2ace.Insights(labels)
        self.labels = torch.from_numpy(labels)
        self.visits = torch.zeros(len(labels), 1)
        self.margins, self.last = torch.zeros(2, *labels.shape)
        self.seconds = 0.0

    def observe(self, index: torch.Tensor, logits: torch.Tensor) -> None:
        start = time.process_time()
        self.insights.observe(index, logits=logits)
        self.seconds += time.process_time() - start
        given = torch.where(self.labels[index], logits, -logits)
        self.visits[index] += 1
        self.margins[index] += given
        self.last[index] = torch.nn.functional.softplus(-given)


def fit(
    cell: Cell, X: torch.Tensor, labels: np.ndarray, rows: np.ndarray, seed: int, *, observe: bool
) -> Iterator[tuple[int, torch.nn.Module, Recorder | None, float]]:
    """Train; give epoch, network, what was observed, and training's processor seconds so far."""
    torch.manual_seed(seed)
    given = labels[rows]
    inputs, targets = X[torch.from_numpy(rows)], torch.from_numpy(given).float()
    recorder = Recorder(given) if observe else None
    seconds, start = 0.0, time.process_time()
    network: Any
    if cell.model == "mlp":
        network, rate = MLP(X.shape[1], given.astype(np.uint8), h=256, L=1, p=0.5), 3e-3
    else:
        network, rate = CLIF(X.shape[1], given.astype(np.uint8)), 1e-3
    optimiser = torch.optim.Adam(network.param_groups(rate), fused=True)
    drawn = {"random": d2ace.Random, "d2ace": d2ace.D2ACE}[cell.draw]
    epochs = epochs_for(len(X))
    plan = {"batch_size": BATCH, "epochs": epochs, "warmup": epochs // 5, "seed": seed}
    selector = drawn(given.astype(np.uint8), **plan)
    for epoch in range(epochs):
        network.train()
        for batch in selector:
            index = torch.as_tensor(batch)
            output = network(inputs[index])
            optimiser.zero_grad()
            network.loss(output, targets[index]).total.backward()
            optimiser.step()
            logits = output.logits.detach()
            selector.observe(index, logits=logits)
            if recorder is not None:
                seconds += time.process_time() - start
                recorder.observe(index, logits)
                start = time.process_time()
        seconds += time.process_time() - start
        yield epoch + 1, network, recorder, seconds
        start = time.process_time()


def warm_up() -> None:
    """The first steps of a process cost more than others, so they are not timed."""
    rng = np.random.default_rng(0)
    X, labels = (
        torch.from_numpy(rng.random((512, 16), dtype=np.float32)),
        rng.random((512, 4)) < 0.5,
    )
    for draw in ("random", "d2ace"):
        cell = Cell("", "mlp", draw, "", 0, 0)
        for _ in fit(cell, X, labels, np.arange(512), 0, observe=True):
            pass


def observed(cell: Cell, *, folds: bool) -> Observed:
    X, truth, _ = problem(cell.dataset)
    given = with_errors(truth, cell)
    everyone = np.arange(len(X))
    *_, (_, _, recorder, trained) = fit(cell, X, given, everyone, cell.seed, observe=True)
    seconds = {"training": trained, "insights": recorder.seconds}
    held_out: dict[str, np.ndarray] = {}
    if folds:
        last = epochs_for(len(X))
        parts = {last: "", last // 2: " at half", last // 4: " at quarter"}
        held_out = {name: np.zeros(truth.shape, dtype=np.float32) for name in parts.values()}
        seconds["folds"] = 0.0
        for number, (train, test) in enumerate(d2ace.data.folds(given, FOLDS, cell.seed)):
            seed = cell.seed + 100 * (number + 1)
            for epoch, network, _, spent in fit(cell, X, given, train, seed, observe=False):
                if epoch in parts:
                    start = time.process_time()
                    predicted = network.predict_proba(X[torch.from_numpy(test)])
                    held_out[parts[epoch]][test] = predicted.numpy()
                if epoch == last:
                    seconds["folds"] += spent + time.process_time() - start
    margin = (recorder.margins / recorder.visits).numpy()
    state = recorder.insights.state_dict()
    return Observed(state, margin, recorder.last.numpy(), held_out, seconds)


# Scores -------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def neighbours(name: str) -> tuple[np.ndarray, float]:
    """The nearest rows, [n, k] (sparse features: by cosine), and the processor seconds."""
    X, _, sparse = problem(name)
    start = time.process_time()
    if sparse:
        X = torch.nn.functional.normalize(X)
    squares = X.square().sum(dim=1)
    found = []
    for first in range(0, len(X), 1024):
        part = X[first : first + 1024]
        distance = squares - 2.0 * part @ X.T
        distance[torch.arange(len(part)), first + torch.arange(len(part))] = torch.inf
        found.append(distance.topk(NEIGHBOURS, largest=False).indices)
    return torch.cat(found).numpy(), time.process_time() - start


def scored(cell: Cell, seen: Observed) -> dict[str, tuple[np.ndarray, Any, float]]:
    """For each score: suspicion [n, q], flagged pairs or None, processor seconds."""
    _, truth, _ = problem(cell.dataset)
    given = with_errors(truth, cell)
    insights = d2ace.Insights(given)
    insights.load_state_dict(seen.insights)
    start = time.process_time()
    issues = insights.label_issues()
    ours = seen.seconds["training"] + seen.seconds["insights"] + time.process_time() - start
    flagged = np.zeros_like(given)
    flagged[issues["row"], issues["label"]] = True
    found: dict[str, Any] = {
        "insights": (insights.suspicion().numpy(), flagged, ours),
        "last loss": (seen.last, None, seen.seconds["training"]),
        "aum": (-seen.margin, None, seen.seconds["training"]),
    }
    if cell.model == "mlp" and cell.draw == "random":
        nearest, spent = neighbours(cell.dataset)
        share = given[nearest].mean(axis=1)
        found["neighbours"] = (np.abs(given - share), None, spent)
    lists = [np.flatnonzero(row).tolist() for row in given]
    for part, probs in seen.held_out.items():
        start = time.process_time()
        probs = probs.astype(np.float64)
        quality = np.asarray(get_label_quality_scores_per_class(lists, probs)).reshape(given.shape)
        masks = find_multilabel_issues_per_class(lists, probs, n_jobs=1)
        spent = seen.seconds["folds"] + time.process_time() - start
        found[f"cleanlab{part}"] = (-quality, np.asarray(masks, dtype=bool), spent)
    if seen.held_out:
        adjusted = get_label_quality_scores_per_class(
            lists, seen.held_out[""].astype(np.float64), adjust_pred_probs=True
        )
        adjusted = np.asarray(adjusted).reshape(given.shape)
        found["cleanlab adjusted"] = (-adjusted, None, found["cleanlab"][2])
        same = d2ace.Insights(given)
        same.observe(np.arange(len(given)), probs=seen.held_out[""])
        found["folds, our score"] = (same.suspicion().numpy(), None, found["cleanlab"][2])
    return found


@dataclass(frozen=True)
class Result(Cell):
    """One line of the CSV: a score in a cell; empty where a score flags nothing by itself."""

    score: str
    errors: int
    average_precision: float
    precision_at_errors: float
    flagged: int | None
    precision: float | None
    recall: float | None
    f1: float | None
    seconds: float
    training_seconds: float


def results(cell: Cell, seen: Observed) -> Iterator[Result]:
    _, truth, _ = problem(cell.dataset)
    wrong = (truth != with_errors(truth, cell)).ravel()
    errors = int(wrong.sum())
    for score, (suspicion, flagged, spent) in scored(cell, seen).items():
        values = suspicion.ravel().astype(np.float64)
        top = np.argsort(-values, kind="stable")[:errors]
        flags: tuple[Any, ...] = (None, None, None, None)
        if flagged is not None:
            hits, count = int((flagged.ravel() & wrong).sum()), int(flagged.sum())
            precision, recall = hits / max(count, 1), hits / errors
            f1 = round(2 * hits / (count + errors), 4)
            flags = (count, round(precision, 4), round(recall, 4), f1)
        yield Result(
            *astuple(cell),
            score,
            errors,
            round(float(average_precision_score(wrong, values)), 4),
            round(float(wrong[top].mean()), 4),
            *flags,
            round(spent, 3),
            round(seen.seconds["training"], 3),
        )


def as_given(dataset: str, examples: int = 12) -> str:
    """What is flagged where no error was injected, with the most suspicious pairs in words."""
    data = d2ace.data.load(dataset, repair=True) if "rcv1" in dataset else d2ace.data.load(dataset)
    _, given, _ = problem(dataset)
    cell = Cell(dataset, "mlp", "random", "none", 0, 0)
    insights = d2ace.Insights(given, label_names=data.label_names)
    insights.load_state_dict(observed(cell, folds=False).insights)
    issues = insights.label_issues()
    spurious = int(issues["given"].sum())
    missing = len(issues["row"]) - spurious
    lines = [
        f"{dataset}: {missing + spurious} of {given.size} pairs flagged: {spurious} of "
        f"{given.sum()} given labels, and {missing} that are not given"
    ]
    for issue in list(issues)[:examples]:
        words = ", ".join(data.label_names[label] for label in np.flatnonzero(given[issue["row"]]))
        verb = "without" if issue["given"] else "add"
        lines.append(
            f"- row {issue['row']} ({words}): {verb} {issue['label_name']} "
            f"(suspicion {issue['suspicion']:.1f}, mean probability {issue['probability']:.2f})"
        )
    return "\n".join(lines)


# Everything ---------------------------------------------------------------------------------


def cells(datasets: list[str], seeds: list[int]) -> Iterator[Cell]:
    """What matters most comes first, so that an unfinished run has every dataset."""
    small = [name for name in datasets if name not in LARGE]
    for dataset in datasets:
        for kind in KINDS:
            yield Cell(dataset, "mlp", "random", kind, 10, seeds[0])
    for dataset in datasets:
        for kind in KINDS:
            yield Cell(dataset, "mlp", "d2ace", kind, 10, seeds[0])
    for dataset in ("emotions", "birds"):
        for kind in KINDS if dataset in datasets else ():
            yield Cell(dataset, "clif", "random", kind, 10, seeds[0])
            yield Cell(dataset, "clif", "d2ace", kind, 10, seeds[0])
    others = [rate for rate in RATES if rate != 10]
    for names, rates, some in (
        (small, others, seeds[:1]),
        (datasets, others, seeds[:1]),
        (small, RATES, seeds[1:]),
        (datasets, RATES, seeds[1:]),
    ):
        for dataset in names:
            for seed in some:
                for rate in rates:
                    for kind in KINDS:
                        yield Cell(dataset, "mlp", "random", kind, rate, seed)


def known(path: Path) -> set[tuple[str, ...]]:
    if not path.exists():
        return set()
    with path.open(newline="") as lines:
        width = len(fields(Cell))
        return {tuple(line[:width]) for line in csv.reader(lines)}


def append(path: Path, lines: list[Result]) -> None:
    new = not path.exists()
    with path.open("a", newline="") as target:
        writer = csv.writer(target, lineterminator="\n")
        if new:
            writer.writerow([field.name for field in fields(Result)])
        writer.writerows(astuple(line) for line in lines)


def kept(cell: Cell, folder: Path | None) -> Observed:
    folds = cell.draw == "random"
    if folder is None:
        return observed(cell, folds=folds)
    path = folder / ("-".join(str(part) for part in astuple(cell)) + ".pt")
    if not path.exists():
        torch.save(vars(observed(cell, folds=folds)), path)
    return Observed(**torch.load(path, weights_only=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--datasets", default=",".join(DEVELOPMENT + LOOKED_AT_ONCE))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--as-given", action="store_true")
    options = parser.parse_args()
    if options.tables:
        print(tables(options.results))
        return
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    warm_up()
    if options.as_given:
        for dataset in options.datasets.split(","):
            print(as_given(dataset), flush=True)
        return
    for cell in cells(options.datasets.split(","), [int(s) for s in options.seeds.split(",")]):
        if tuple(map(str, astuple(cell))) in known(options.results):
            continue
        append(options.results, list(results(cell, kept(cell, options.keep))))
        print(*astuple(cell), flush=True)


if __name__ == "__main__":
    main()
