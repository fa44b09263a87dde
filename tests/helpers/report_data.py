"""Stores of plausible results, drawn by a fixed rule without training, for the report's tests."""

from __future__ import annotations

import io
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from d2ace.benchmark.plan.specs import METHODS as EVERY
from d2ace.benchmark.plan.specs import RunSpec
from d2ace.benchmark.store.database import Store
from d2ace.report.judgement import Judgement, judge_all
from d2ace.report.method_comparison import MethodComparison

METRICS = {  # level of a middling dataset, effect of a better method
    "macro_auc": (0.78, 1.0),
    "macro_f1": (0.52, 1.4),
    "ranking_loss": (0.17, -0.7),
    "mean_average_precision": (0.55, 1.2),
    "micro_f1": (0.6, 1.1),
    "hamming_loss": (0.12, -0.4),
    "one_error": (0.25, -0.6),
    "coverage": (2.4, -2.0),
    "subset_accuracy": (0.3, 0.8),
}
GAIN = {
    "random": 0.0,
    "active": 0.004,
    "recent": 0.003,
    "dihcl": 0.012,
    "balance": -0.006,
    "hard_imb": 0.010,
    "ml_unc": 0.013,
    "d2ace": 0.024,
}
METHODS = {name: EVERY[name] for name in GAIN}
"""Those that the paper compares."""
COST = {"random": 0.0, "ml_unc": 0.09, "hard_imb": 0.04, "d2ace": 0.035}
LABELS = ["sun", "turn", "sea & sky", "<b>bold</b>", "trees"]
MARKED = "<img src=x onerror=alert(1)> & co"
"""A dataset's name that must be shown as it is."""


def rng(*words: Any) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(words).encode()))


def result(spec: RunSpec, bonus: float = 0.0) -> dict[str, Any]:
    """A result as `d2ace.train` gives it."""
    config = spec.config
    data, selector, epochs = config["data"], config["selector"], config["epochs"]
    level = rng(data).normal(0, 0.06)
    shift = GAIN.get(selector, 0.008) + bonus + 0.004 * rng(data, selector).normal()
    folded = 0.012 * rng(data, config["model"], config["fold"], config["seed"]).normal()
    noise = rng(spec.key)

    def scores(progress: float) -> dict[str, float]:
        found = {}
        for metric, (middle, effect) in METRICS.items():
            value = middle + effect * (level + folded + shift + 0.004 * noise.normal())
            found[metric] = float(value - np.sign(effect) * 0.25 * abs(effect) * (1 - progress))
        return found

    rows = 300 + 40 * (zlib.crc32(data.encode()) % 7)
    cost = COST.get(selector, 0.02)
    history = []
    for epoch in range(1, epochs + 1):
        at = epoch / epochs
        learned = 1 - np.exp(-(4 + 60 * shift) * at) - 0.12 * max(0.0, at - 0.7)
        pick = 0.0 if selector == "random" or epoch <= config["warmup"] else 0.45 * (1 - at)
        loss = float(0.62 - 0.4 * learned + 0.01 * noise.normal())
        history.append(
            {
                "epoch": epoch,
                "train_loss": loss,
                "epoch_loss": loss * 0.96 if config["epoch_loss"] else None,
                "validation": scores(float(learned)),
                "undefined": 0,
                "seconds": {
                    "recompute": cost * 0.4,
                    "draw": 0.002,
                    "observe": cost * 0.2,
                    "train": 0.11 + 0.01 * float(noise.random()),
                    "evaluation": 0.03,
                },
                "pressure": None,
                "p_beta": None,
                "effective_rows": rows * (1 - pick),
                "distinct_rows": int(rows * (1 - 0.6 * pick)),
                "entropy": 5.0,
                "p_min": 1e-4,
                "p_max": 1e-2,
                "learning_rate": 1e-4,
            }
        )
    parts = {part: sum(one["seconds"][part] for one in history) for part in history[0]["seconds"]}
    setup = 0.2 + 3 * cost
    return {
        "format": 1,
        "config": config,
        "environment": {"d2ace": "0.1.0", "torch": "2.13.0", "python": "3.11.9"},
        "dataset": {
            "name": data,
            "features": 72,
            "labels": len(LABELS),
            "train": rows,
            "validation": 40,
            "test": 90,
        },
        "best_epoch": int(np.argmax([one["validation"]["macro_auc"] for one in history])) + 1,
        "validation": scores(1.0),
        "test": scores(1.0),
        "undefined": {"validation": 0, "test": 0},
        "seconds": {"setup": setup, **parts, "total": setup + sum(parts.values())},
        "cpu_seconds": 12.3,
        "history": history,
    }


def recording(spec: RunSpec, names: list[str], marks: tuple[int, ...] = (20, 80)) -> bytes:
    """A `record.npz` as `d2ace.train` writes it."""
    draw = rng(spec.key, "recording")
    rows, labels, epochs = 320, len(names), spec.config["epochs"]
    chosen = [epoch for epoch in marks if epoch <= epochs]
    outlier, loss = draw.random(rows), draw.gamma(2.0, size=(len(chosen), rows))
    lean = {"hard_imb": 2.5, "d2ace": 0.8}.get(spec.config["selector"], 0.0)
    raw = np.exp(lean * (outlier + 0.2 * loss / loss.mean()))
    time = np.linspace(0, 1, epochs)[:, None]
    auc = 0.55 + 0.35 * time * draw.random(labels) + 0.01 * draw.normal(size=(epochs, labels))
    arrays = {
        "rows": np.arange(rows),
        "draw_counts": draw.integers(0, 90, rows),
        "outlier": outlier,
        "label_names": np.array(names),
        "label_auc": auc,
        "epochs": np.array(chosen),
        "P": raw / raw.sum(axis=1, keepdims=True),
        "loss": loss,
    }
    if spec.config["selector"] == "d2ace":
        arrays["label_weight_uncertainty"] = 2.3 - auc + 0.02 * draw.normal(size=auc.shape)
        arrays["label_weight_hardness"] = 2.0 - 0.9 * auc
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def add(
    store: Store,
    study: str,
    method: str,
    bonus: float = 0.0,
    *,
    names: list[str] = LABELS,
    history: bool = True,
    **config: Any,
) -> RunSpec:
    """Store one run; recorded if its configuration says so."""
    spec = RunSpec(study, method, config)
    kept = recording(spec, names) if spec.config["record"] else None
    found = result(spec, bonus)
    if not history:  # as it comes from a CSV file without curves beside it
        found["history"] = []
    store.add(spec, found, kept)
    return spec


def scored(
    store: Store,
    method: str,
    selector: str,
    score: float,
    fold: int = 0,
    seed: int = 0,
    study: str = "main",
    digest: str = "",
    tuned: bool = False,
    **more: Any,
) -> None:
    """Store one short run whose test scores are all the same; ``digest`` is that of its rows.

    ``tuned`` adds a score at tuned thresholds, which runs of older versions lack.
    """
    config = {"data": "yeast", "model": "mlp", "selector": selector, "fold": fold, "seed": seed}
    spec = RunSpec(study, method, {**config, "epochs": 3, **more})
    content = result(spec)
    names = [*content["test"], *(["macro_f1_tuned"] if tuned else [])]
    content["test"] = dict.fromkeys(names, score)
    content["dataset"] |= {"digest": digest} if digest else {}
    store.add(spec, content)


def findings(comparison: MethodComparison) -> list[Judgement]:
    """What a comparison says, one for each metric that has ranks."""
    return [one for one in judge_all(comparison).values() if one.average_ranks]


DATASETS = ("emotions", "birds", "scene", "yeast", "cal500", "enron", MARKED)
OWN = "mine.py:Mine"
EPOCHS = 100  # the paper's, whose numbers stand beside these


def full(path: Path) -> Store:
    """Everything a report can show: two models, ten methods, studies, recordings, a failure."""
    store = Store(path)
    for data in DATASETS:
        common = {"data": data, "epochs": EPOCHS, "epoch_loss": True, "history": data == "birds"}
        for selector, method in {**METHODS, OWN: "Mine"}.items():
            for fold in range(2):
                if (data, method, fold) == ("scene", "Recent", 1):
                    continue  # a gap
                record = data == "cal500" and selector in ("random", "hard_imb", "d2ace")
                own = {"selector": selector, "fold": fold, "record": record}
                add(store, "main", method, **own, **common)
        reference = {"preset": "reference"}
        add(store, "main", "D2ACE (reference)", selector_options=reference, **common)
    for selector in ("random", "ml_unc", "d2ace"):
        own = {"model": "dela", "model_options": {"preset": "reference"}, "selector": selector}
        _one_metric(store, METHODS[selector], data="birds", epochs=EPOCHS, **own)
    _studies(store)
    failing = {"data": "emotions", "model": "paca", "selector": "active"}
    store.fail(RunSpec("main", "Active", failing), "RuntimeError: <b>out of memory</b> & more")
    return store


def _studies(store: Store) -> None:
    options: dict[str, dict[str, Any]] = {
        "A": {},
        "B": {"mix": [0, 0]},
        "C": {"mix": [1, 1]},
        "G": {"label_weight": "none"},
        "H": {"correlation": "none"},
        "K": {"mix_schedule": "exp"},
    }
    for fold in range(2):
        common = {"data": "birds", "fold": fold, "epochs": EPOCHS, "history": False}
        for variant, chosen in options.items():
            loss = 0.0 if variant == "A" else -0.004 * (ord(variant) % 5) + 0.002
            add(store, "ablation", variant, loss, selector_options=chosen, **common)
        for size in (0, 4, 5, 6, 7, 8, 1_000_000):
            loss = -0.002 * min(abs(size - 6), 8)
            chosen = {"neighbors": size}
            add(store, "sweep", f"K={size}", loss, selector_options=chosen, **common)
        for start in (0.1, 0.5, 0.9):
            for end in (0.1, 0.5, 0.9):
                chosen = {"mix": [start, end]}
                label = f"p_start={start}, p_end={end}"
                loss = 0.01 * (start - end)
                add(store, "sweep", label, loss, selector_options=chosen, **common)
        for value in (0.1, 0.3, 0.5, 0.7, 0.9):
            chosen = {"flip_smoothing": value}
            loss = -0.01 * (0.8 - value) ** 2
            add(store, "sweep", f"lambda2={value}", loss, selector_options=chosen, **common)


def small(path: Path) -> Store:
    """Two methods on one dataset, two folds, a few epochs."""
    store = Store(path)
    for selector in ("random", "d2ace"):
        for fold in range(2):
            own = {"data": "emotions", "selector": selector, "fold": fold, "epochs": 3}
            _one_metric(store, METHODS[selector], **own)
    return store


def _one_metric(store: Store, method: str, **config: Any) -> None:
    """A run of which only Macro-AUC is defined: every figure takes its time."""
    spec = RunSpec("main", method, config)
    found = result(spec)
    found["test"] = dict.fromkeys(METRICS) | {"macro_auc": found["test"]["macro_auc"]}
    store.add(spec, found)
