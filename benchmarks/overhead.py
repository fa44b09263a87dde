"""What D2ACE adds to a whole run: seconds by part beside those of Random, in one session.

    python benchmarks/overhead.py                      # yeast and bibtex, 20 epochs, three rounds
    python benchmarks/overhead.py --methods random,dihcl,ml_unc,d2ace

Every round trains each method once, in changing order, and the ratio to Random is taken round by
round from processor seconds, which other processes disturb least; the parts are wall clock.
"""

from __future__ import annotations

import argparse
import statistics

import torch

import d2ace
from d2ace.training.clock import PARTS


def one(dataset: str, method: str, arguments: argparse.Namespace) -> dict[str, float]:
    result = d2ace.train(
        dataset,
        arguments.model,
        method,
        epochs=arguments.epochs,
        warmup=max(1, arguments.epochs // 10),
        model_options={"preset": arguments.preset},
        threads=arguments.threads,
    )
    return {**result.seconds, "cpu": result.cpu_seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default="yeast,bibtex")
    parser.add_argument("--methods", default="random,d2ace")
    parser.add_argument("--model", default="clif")
    parser.add_argument("--preset", default="reference")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    methods = arguments.methods.split(",")
    print(
        f"torch {torch.__version__}, {arguments.model} ({arguments.preset}), "
        f"{arguments.epochs} epochs, {arguments.rounds} rounds, {arguments.threads} thread(s)"
    )
    for dataset in arguments.datasets.split(","):
        rounds: list[dict[str, dict[str, float]]] = []
        for number in range(arguments.rounds):
            order = methods[number % len(methods) :] + methods[: number % len(methods)]
            rounds.append({method: one(dataset, method, arguments) for method in order})
        print(f"\n### {dataset}\n")
        print("| method | " + " | ".join(("setup", *PARTS)) + " | total | CPU s | × Random |")
        print("|---|" + "---:|" * (len(PARTS) + 4))
        for method in methods:
            seconds = {
                part: statistics.median(each[method][part] for each in rounds)
                for part in ("setup", *PARTS, "total", "cpu")
            }
            ratio = statistics.median(each[method]["cpu"] / each["random"]["cpu"] for each in rounds)
            cells = " | ".join(f"{seconds[part]:.2f}" for part in seconds)
            print(f"| {method} | {cells} | **{ratio:.3f}** |")


if __name__ == "__main__":
    main()
