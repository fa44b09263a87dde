"""What evaluation costs, beside a loop of scikit-learn over the labels.

    python benchmarks/metrics.py                    # 4,400 x 101 and a small validation set
    python benchmarks/metrics.py --rows 8781 --seconds 20

Both take turns, so that a noisy machine slows both alike; median processor time on one thread.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sklearn import metrics as sklearn

from d2ace.evaluation import evaluate, macro_auc, macro_f1, mean_average_precision, ranking_loss


def loop(metric: Callable[..., float], truth: np.ndarray, scores: np.ndarray) -> float:
    columns = zip(truth.T, scores.T, strict=True)
    return float(np.mean([metric(label, score) for label, score in columns]))


def f1_at_half(label: np.ndarray, score: np.ndarray) -> float:
    return sklearn.f1_score(label, score >= 0.5, zero_division=0)


def pairs(truth: np.ndarray, scores: np.ndarray) -> dict[str, tuple[Callable[[], Any], ...]]:
    """Ours and theirs, computing the same numbers."""
    tasks = {
        "Macro-AUC": (macro_auc, lambda y, s: loop(sklearn.roc_auc_score, y, s)),
        "mAP": (mean_average_precision, lambda y, s: loop(sklearn.average_precision_score, y, s)),
        "Macro-F1": (macro_f1, lambda y, s: loop(f1_at_half, y, s)),
        "Ranking loss": (ranking_loss, sklearn.label_ranking_loss),
    }
    for name, (ours, theirs) in tasks.items():
        difference = abs(ours(truth, scores) - theirs(truth, scores))
        if difference > 1e-12:
            raise SystemExit(f"{name}: the two differ by {difference:.1e}.")
    three = ("Macro-AUC", "mAP", "Macro-F1")
    tasks["these first three"] = tuple(
        lambda y, s, side=side: [tasks[name][side](y, s) for name in three] for side in (0, 1)
    )
    tasks["`evaluate`: all nine; theirs: the three"] = (evaluate, tasks["these first three"][1])
    return {
        name: tuple(lambda f=f: f(truth, scores) for f in sides) for name, sides in tasks.items()
    }


def in_turns(actions: tuple[Callable[[], Any], ...], budget: float) -> list[float]:
    """Median processor seconds of each, called alternately for about ``budget`` seconds."""
    times: list[list[float]] = [[] for _ in actions]
    end = time.perf_counter() + budget
    while len(times[0]) < 3 or time.perf_counter() < end:
        for action, taken in zip(actions, times, strict=True):
            start = time.process_time()
            action()
            taken.append(time.process_time() - start)
    return [statistics.median(taken) for taken in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4400)
    parser.add_argument("--labels", type=int, default=101)
    parser.add_argument("--density", type=float, default=0.05, help="share of ones")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each line")
    options = parser.parse_args()
    draw = np.random.default_rng(0)
    for n, q in ((options.rows, options.labels), (50, 6)):
        truth = draw.random((n, q)) < (options.density if q > 6 else 0.3)
        scores = draw.random((n, q)).astype(np.float32)
        print(f"\n#### n = {n:,}, q = {q}\n\n| | ours, ms | scikit-learn, ms | faster |")
        print("|---|---:|---:|---:|")
        for name, actions in pairs(truth, scores).items():
            ours, theirs = in_turns(actions, options.seconds)
            ratio = f"**{theirs / ours:.1f}**"
            print(f"| {name} | {1e3 * ours:.2f} | {1e3 * theirs:.1f} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
