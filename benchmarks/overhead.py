"""What D2ACE adds to a whole run: seconds by part beside those of Random, in one session.

    python benchmarks/overhead.py                      # yeast and bibtex, 20 epochs, three rounds
    python benchmarks/overhead.py --methods random,dihcl,ml_unc,d2ace
    python benchmarks/overhead.py --insights           # with and without insights, CLIF and MLP

Every round trains each method once, in changing order, and the ratio to Random is taken round by
round from processor seconds, which other processes disturb least; the parts are wall clock.
"""

from __future__ import annotations

import argparse
import statistics
from time import process_time
from typing import Any

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


def fitted(X: Any, Y: Any, model: str, kept: bool, arguments: argparse.Namespace) -> float:
    """Processor seconds of training alone: no validation, no test, nothing saved."""
    from d2ace.integrations.sklearn import MultiLabelClassifier

    classifier = MultiLabelClassifier(
        model,
        epochs=arguments.epochs,
        warmup=max(1, arguments.epochs // 10),
        insights=kept,
        random_state=0,
    )
    started = process_time()
    classifier.fit(X, Y)
    return process_time() - started


def insights(arguments: argparse.Namespace) -> None:
    """What ``insights=True`` adds to training with D2ACE; with and without in turn."""
    torch.set_num_threads(arguments.threads)
    print("\n| dataset | model | CPU s without | with | ratio: median | rounds |")
    print("|---|---|---:|---:|---:|---|")
    for dataset in arguments.datasets.split(","):
        data = d2ace.data.prepare(d2ace.data.load(dataset)).data
        Y = data.Y.toarray() if hasattr(data.Y, "toarray") else data.Y
        for model in ("clif", "mlp"):
            pairs = []
            for number in range(arguments.rounds):
                order = (False, True) if number % 2 else (True, False)
                spent = {kept: fitted(data.X, Y, model, kept, arguments) for kept in order}
                pairs.append((spent[False], spent[True]))
            ratios = [kept / plain for plain, kept in pairs]
            plain, kept = (statistics.median(column) for column in zip(*pairs, strict=True))
            every = ", ".join(f"{ratio:.3f}" for ratio in ratios)
            print(
                f"| {dataset} | {model} | {plain:.2f} | {kept:.2f} | "
                f"**{statistics.median(ratios):.3f}** | {every} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default="yeast,bibtex")
    parser.add_argument("--methods", default="random,d2ace")
    parser.add_argument("--model", default="clif")
    parser.add_argument("--preset", default="reference")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--insights", action="store_true")
    arguments = parser.parse_args()
    methods = arguments.methods.split(",")
    print(
        f"torch {torch.__version__}, {arguments.model} ({arguments.preset}), "
        f"{arguments.epochs} epochs, {arguments.rounds} rounds, {arguments.threads} thread(s)"
    )
    if arguments.insights:
        insights(arguments)
        return
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
            ratios = [each[method]["cpu"] / each["random"]["cpu"] for each in rounds]
            ratio = statistics.median(ratios)
            cells = " | ".join(f"{seconds[part]:.2f}" for part in seconds)
            print(f"| {method} | {cells} | **{ratio:.3f}** |")


if __name__ == "__main__":
    main()
