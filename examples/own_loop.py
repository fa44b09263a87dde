"""Two new lines and three changed ones make a training loop select its batches.

A small multi-label network learns which digits are pasted on a canvas, from scikit-learn's bundled
scans of handwriting. It is trained twice from the same start: once on random batches, once on
batches that D2ACE selects. The five lines are marked; everything else is an ordinary loop.

    python examples/own_loop.py            # well under a minute
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import d2ace


def canvases(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One to four digits in the quarters of a canvas; low digits are frequent, high ones rare."""
    rng = np.random.default_rng(seed)
    images, digits = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8) / 16.0
    frequency = 0.75 ** np.arange(10)
    chance = frequency[digits] / np.bincount(digits)[digits]
    chance /= chance.sum()
    x = np.zeros((count, 16, 16), dtype=np.float32)
    y = np.zeros((count, 10), dtype=np.float32)
    for canvas, labels in zip(x, y, strict=True):
        quarters = rng.permutation(4)[: rng.integers(1, 5)]
        for quarter in quarters:
            chosen = rng.choice(len(digits), p=chance)
            top, left = 8 * (quarter // 2), 8 * (quarter % 2)
            canvas[top : top + 8, left : left + 8] = images[chosen]
            labels[digits[chosen]] = 1
    return torch.from_numpy(x).flatten(1), torch.from_numpy(y)


def train(method: str, seed: int, epochs: int, data: list[torch.Tensor]) -> tuple[float, float]:
    """Mean average precision on the test rows after training, and the seconds it took."""
    X_train, Y_train, X_test, Y_test = data
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.BCEWithLogitsLoss()

    selector = d2ace.make_selector(  # new
        method, Y_train, X_train, batch_size=64, epochs=epochs, warmup=5, seed=seed
    )
    train_set = d2ace.IndexedDataset(TensorDataset(X_train, Y_train))  # changed: adds the row index
    loader = DataLoader(train_set, batch_sampler=selector)  # changed: no batch_size, no shuffle
    start = time.perf_counter()
    for _ in range(epochs):
        for index, x, y in loader:  # changed: unpacks the index too
            logits = model(x)
            loss = criterion(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            selector.observe(index, logits=logits)  # new
    seconds = time.perf_counter() - start
    model.eval()
    with torch.no_grad():
        score = average_precision_score(Y_test, model(X_test), average="macro")
    return float(score), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="Random against D2ACE on pasted digits.")
    parser.add_argument("--quick", action="store_true", help="a few epochs only, to see it run")
    arguments = parser.parse_args()
    seeds, epochs, rows = (range(1), 6, 300) if arguments.quick else (range(3), 30, 1500)
    torch.set_num_threads(1)  # a network this small only waits for a second thread
    data = [*canvases(rows, seed=0), *canvases(1000, seed=1)]
    print(f"{rows} canvases, {epochs} epochs, test mAP after training, seeds {list(seeds)}\n")
    for method in ("random", "d2ace"):
        results = [train(method, seed, epochs, data) for seed in seeds]
        scores = [score for score, _ in results]
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        seconds = statistics.mean(seconds for _, seconds in results)
        print(
            f"  {method:8s} mAP {statistics.mean(scores):.4f} ± {spread:.4f}"
            f"   {' '.join(f'{score:.4f}' for score in scores)}   {seconds:.1f} s a run"
        )
    print("\nA difference within the spread of the seeds is noise; see docs/ for real comparisons.")


if __name__ == "__main__":
    main()
