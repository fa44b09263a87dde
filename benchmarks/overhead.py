"""What D2ACE adds to a whole run, and insights to training; seconds beside those of the rest.

    python benchmarks/overhead.py                      # yeast and bibtex, 20 epochs, three rounds
    python benchmarks/overhead.py --methods random,dihcl,ml_unc,d2ace
    python benchmarks/overhead.py --insights           # what insights add, CLIF and MLP

Every round trains each method once, in changing order, and the ratio to Random is taken round by
round from processor seconds, which other processes disturb least; the parts are wall clock.
"""

from __future__ import annotations

import argparse
import statistics
from itertools import product
from time import process_time

import torch

import d2ace
from d2ace._util.staging import Sink
from d2ace.insights import Insights
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


class Spent:
    """Processor seconds in the insights of the selectors that are made while it is open."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> Spent:
        self._plain = plain = Insights.sink

        def timed(insights: Insights) -> Sink:
            sink: Sink = plain.fget(insights)

            def advance(index: torch.Tensor, probs: torch.Tensor) -> None:
                started = process_time()
                sink.advance(index, probs)
                self.seconds += process_time() - started

            return Sink(advance, sink.stand_in)

        Insights.sink = property(timed)
        return self

    def __exit__(self, *_: object) -> None:
        Insights.sink = self._plain


def insights(arguments: argparse.Namespace) -> None:
    """What ``insights=True`` adds to training alone: no validation, no test, nothing saved.

    Both are measured in one run, so that what else the machine does disturbs both alike.
    """
    from d2ace.integrations.sklearn import MultiLabelClassifier

    torch.set_num_threads(arguments.threads)
    print("\n| dataset | model | method | CPU s without | insights | added: median of rounds |")
    print("|---|---|---|---:|---:|---:|")
    for dataset in arguments.datasets.split(","):
        data = d2ace.data.prepare(d2ace.data.load(dataset)).data
        Y = data.Y.toarray() if hasattr(data.Y, "toarray") else data.Y
        for model, method in product(("clif", "mlp"), arguments.methods.split(",")):
            found = []
            for _ in range(arguments.rounds):
                classifier = MultiLabelClassifier(
                    model, method, epochs=arguments.epochs, warmup=1, insights=True, random_state=0
                )
                with Spent() as spent:
                    started = process_time()
                    classifier.fit(data.X, Y)
                    total = process_time() - started
                found.append((total - spent.seconds, spent.seconds))
            plain, added = (statistics.median(column) for column in zip(*found, strict=True))
            share = statistics.median(own / rest for rest, own in found)
            print(
                f"| {dataset} | {model} | {method} | {plain:.2f} | {added:.3f} | "
                f"**{100 * share:.2f} %** |",
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
