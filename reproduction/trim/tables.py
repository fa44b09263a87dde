"""Tables of the study, from its files and nothing else.

In the folder `reproduction`, `python -m trim.tables` writes them between the marks of the page.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from scipy.stats import wilcoxon
from trim.gains import (
    HERE,
    Gains,
    Row,
    cell_of,
    gains,
    interval,
    markdown,
    ordered,
    read,
    signed,
)
from trim.study import final_plan
from trim.trigger_tables import (
    UNSEEN,
    again_table,
    harm_table,
    trap_starts_table,
    triggers_table,
)

SCORES = {
    "macro_auc": "Macro-AUC",
    "map": "mAP",
    "macro_f1_tuned": "Macro-F1, tuned",
    "ranking_loss": "ranking loss",
}
PLACEBO = 10
"""Orders of rows from here on are placebos."""
MARKED = re.compile(r"(<!-- (\w+): made by tables.py -->\n).*?(<!-- end -->)", re.S)


def placebo_gains(rows: Sequence[Row], regime: str, order: str, score: str) -> Gains:
    """Random with another order of rows, minus Random of the same fold and seed."""
    random = {cell_of(row): float(row[score]) for row in rows if row["rule"] == "random"}
    found = {}
    for (dataset, of, fold, seed, other), value in random.items():
        usual = random.get((dataset, of, fold, seed, fold))
        if of == regime and other == order and usual is not None:
            found[dataset] = value - usual
    return found


def mean_and_error(found: Gains, score: str) -> str:
    """Mean ± standard error over datasets, and on how many it is better."""
    values = np.array(list(found.values()))
    error = f" ± {values.std(ddof=1) / math.sqrt(values.size):.4f}" if values.size > 1 else ""
    return f"{signed(float(values.mean()))}{error} ({_better(found, score)}/{values.size})"


def _better(found: Gains, score: str) -> int:
    sign = -1 if score == "ranking_loss" else 1
    return sum(sign * value > 0 for value in found.values())


def signed_rank(found: Gains) -> float:
    """p of the two-sided signed-rank test over datasets, exact."""
    values = np.array(list(found.values()))
    values = values[values != 0]
    return float(wilcoxon(values, method="exact").pvalue) if values.size else 1.0


def development_table() -> str:
    """A block for each regime: rules against Random."""
    return _blocks(read("development"))


def gains_table() -> str:
    """Macro-AUC of every rule in every regime, in short."""
    rows = read("development")
    regimes = ordered(rows, "regime")
    lines = []
    for rule in ordered(rows, "rule"):
        if rule != "random":
            found = [gains(rows, regime, rule, "macro_auc") for regime in regimes]
            lines.append([rule, *map(_in_short, found)])
    for order in _placebos(rows):
        found = [placebo_gains(rows, regime, order, "macro_auc") for regime in regimes]
        lines.append([_placebo(order), *map(_in_short, found)])
    return markdown(["Macro-AUC", *regimes], lines)


def _in_short(found: Gains) -> str:
    if not found:
        return "–"
    mean = float(np.mean(list(found.values())))
    return f"{signed(mean)} ({_better(found, 'macro_auc')}/{len(found)})"


def _placebos(rows: Sequence[Row]) -> list[str]:
    return sorted({row["order"] for row in rows if int(row["order"]) >= PLACEBO})


def _placebo(order: str) -> str:
    return f"placebo {int(order) - PLACEBO + 1}: Random, other order"


def slow_table() -> str:
    """The first trial, whose small sets were under-trained."""
    return _blocks(read("slow"))


def _blocks(rows: Sequence[Row]) -> str:
    blocks = []
    for regime in ordered(rows, "regime"):
        lines = []
        for rule in ordered(rows, "rule"):
            mine = [row for row in rows if (row["regime"], row["rule"]) == (regime, rule)]
            if rule == "random" or not mine:
                continue
            begun = [int(row["start"]) / int(row["epochs"]) for row in mine if int(row["start"])]
            when = f"{np.mean(begun):.2f}" if begun else "–"
            lines.append([rule, f"{len(begun)} of {len(mine)}", when, *_marks(rows, regime, rule)])
        for order in _placebos(rows):
            found = {score: placebo_gains(rows, regime, order, score) for score in SCORES}
            if found["macro_auc"]:
                marks = [mean_and_error(found[score], score) for score in SCORES]
                lines.append([_placebo(order), "–", "–", *marks])
        head = [regime, "runs that started", "at (share of epochs)", *SCORES.values()]
        blocks.append(markdown(head, lines))
    return "\n".join(blocks)


def _marks(rows: Sequence[Row], regime: str, rule: str) -> list[str]:
    return [mean_and_error(gains(rows, regime, rule, score), score) for score in SCORES]


def starts_table() -> str:
    """When triggers start on the development sets, 20 % moved: mean epoch, and Random's best."""
    rows = [row for row in read("development") if row["regime"] == "20 % moved"]
    rules = [rule for rule in ordered(rows, "rule") if rule != "random"]
    lines = []
    for dataset in ordered(rows, "dataset"):
        mine = [row for row in rows if row["dataset"] == dataset and int(row["order"]) < PLACEBO]
        random = [row for row in mine if row["rule"] == "random"]
        cells = [dataset, random[0]["epochs"], _mean(float(row["best_epoch"]) for row in random)]
        for rule in rules:
            starts = [int(row["start"]) for row in mine if row["rule"] == rule]
            cells.append(
                _mean(float(start) for start in starts if start) if any(starts) else "never"
            )
        lines.append(cells)
    return markdown(["dataset", "epochs", "Random's best", *rules], lines)


def _mean(values: Iterable[float]) -> str:
    return f"{np.mean(list(values)):.0f}"


def clif_table() -> str:
    """CLIF with Trim's first trigger, and what the rules say."""
    rows = read("clif")
    verdicts = ", ".join(
        f"{regime}: **{clif_verdict(gains(rows, regime, 'Trim', 'macro_auc'))}**"
        for regime in ordered(rows, "regime")
    )
    return f"{_clif(rows)}\nBy the rules, in Macro-AUC: {verdicts}.\n"


def clif_again_table() -> str:
    """CLIF with the second trigger."""
    return _clif(read("clif-again"))


def _clif(rows: Sequence[Row]) -> str:
    """A block for each regime: Trim against Random, a line a dataset, and their mean."""
    blocks = []
    for regime in ordered(rows, "regime"):
        mine = [row for row in rows if row["regime"] == regime]
        found = {score: gains(mine, regime, "Trim", score) for score in SCORES}
        lines = []
        for dataset in found["macro_auc"]:
            trim, random = (
                [row for row in mine if (row["dataset"], row["rule"]) == (dataset, rule)]
                for rule in ("Trim", "random")
            )
            starts = [int(row["start"]) for row in trim if int(row["start"])]
            lines.append(
                [
                    dataset,
                    str(len(trim)),
                    f"{float(trim[0]['rate']):g}",
                    _mean(float(row["best_epoch"]) for row in random),
                    f"{len(starts)}, epoch {_mean(map(float, starts))}" if starts else "0",
                    *(signed(found[score][dataset]) for score in SCORES),
                ]
            )
        means = [interval(values) if len(values) > 1 else "–" for values in found.values()]
        lines.append(["mean", *[""] * 4, *means])
        head = [regime, "folds", "learning rate", "Random's best epoch, of 100"]
        titles = [f"{title}, difference" for title in SCORES.values()]
        blocks.append(markdown([*head, "runs in which Trim started", *titles], lines))
    return "\n".join(blocks)


def clif_verdict(found: Gains) -> str:
    """What the rules say of a regime of three datasets."""
    values = list(found.values())
    mean = float(np.mean(values))
    if len(values) < 3:
        return "not complete"
    if all(value > 0 for value in values) and mean >= 0.002:
        return "helps"
    return "harms" if sum(value < 0 for value in values) >= 2 and mean <= -0.002 else "undecided"


def final_table() -> str:
    """Of the first look."""
    return _means(read("final"), ("Trim", "fixed start"))


def second_look_table() -> str:
    """The same datasets with the second trigger."""
    return _means([row for row in read("again") if row["dataset"] not in UNSEEN], ("Trim",))


def _means(rows: Sequence[Row], rules: Sequence[str]) -> str:
    """A line for each regime and rule; means over datasets with 95 % intervals."""
    lines = []
    for regime in ordered(rows, "regime"):
        for rule in rules:
            found = {score: gains(rows, regime, rule, score) for score in SCORES}
            cells = sum((row["regime"], row["rule"]) == (regime, rule) for row in rows)
            lines.append(
                [
                    f"{regime}: {rule}",
                    f"{len(found['macro_auc'])} / {cells}",
                    *(
                        f"{interval(values)} ({_better(values, score)}/{len(values)})"
                        for score, values in found.items()
                    ),
                ]
            )
    return markdown(["regime: rule", "sets / pairs", *SCORES.values()], lines)


def dataset_table() -> str:
    """A block for each regime: Trim on every dataset."""
    rows = read("final")
    blocks = []
    for regime in ordered(rows, "regime"):
        lines = []
        for dataset in ordered(rows, "dataset"):
            mine = [row for row in rows if (row["dataset"], row["regime"]) == (dataset, regime)]
            trim = [row for row in mine if row["rule"] == "Trim"]
            if not trim:
                continue
            random = [row for row in mine if row["rule"] == "random"]
            starts = [int(row["start"]) for row in trim if int(row["start"])]
            usual = np.mean([float(row["macro_auc"]) for row in random])
            lines.append(
                [
                    dataset,
                    str(len(trim)),
                    f"{_mean(float(row['best_epoch']) for row in random)} of {random[0]['epochs']}",
                    f"{len(starts)}, epoch {_mean(map(float, starts))}" if starts else "0",
                    f"{usual:.4f}",
                    *(signed(gains(mine, regime, "Trim", score)[dataset]) for score in SCORES),
                ]
            )
        head = [
            *(regime, "pairs", "Random's best epoch", "runs in which Trim started"),
            *("Random's Macro-AUC", *(f"{title}, difference" for title in SCORES.values())),
        ]
        blocks.append(markdown(head, lines))
    return "\n".join(blocks)


def targets_table() -> str:
    """What was asked before the runs, and what came out."""
    rows = read("final")
    moved = gains(rows, "20 % moved", "Trim", "macro_auc")
    given = gains(rows, "as they come", "Trim", "map")
    early = gains(rows, "under-trained", "Trim", "macro_auc")
    mean = {id(found): float(np.mean(list(found.values()))) for found in (moved, given, early)}
    p = signed_rank(moved)
    better, most = _better(moved, "macro_auc"), _better(given, "map")
    asked = [
        (
            "20 % moved: Macro-AUC at least +0.0040",
            signed(mean[id(moved)]),
            mean[id(moved)] >= 0.004,
        ),
        ("20 % moved: better on six of seven", f"{better} of {len(moved)}", better >= 6),
        ("20 % moved: p < 0.05, signed-rank test over datasets", f"{p:.3f}", p < 0.05),
        ("as they come: mAP at least −0.0010", signed(mean[id(given)]), mean[id(given)] >= -0.001),
        ("as they come: mAP better on most", f"{most} of {len(given)}", 2 * most > len(given)),
        (
            "under-trained: Macro-AUC at least −0.0010",
            signed(mean[id(early)]),
            mean[id(early)] >= -0.001,
        ),
    ]
    lines = [[what, found, "met" if met else "missed"] for what, found, met in asked]
    return markdown(["target", "found", "verdict"], lines)


def missing_table() -> str:
    """Cells of the final plan without a run."""
    done = {cell_of(row) for row in read("final")}
    planned = [tuple(map(str, one)) for one in final_plan()]
    missing = Counter(one[:2] for one in planned if one not in done)
    lines = [[dataset, regime, str(cells)] for (dataset, regime), cells in sorted(missing.items())]
    return markdown(["dataset", "regime", "cells without a run"], lines)


MADE: dict[str, Callable[[], str]] = {
    "targets": targets_table,
    "final": final_table,
    "datasets": dataset_table,
    "gains": gains_table,
    "starts": starts_table,
    "slow": slow_table,
    "clif": clif_table,
    "missing": missing_table,
    "triggers": triggers_table,
    "trapstarts": trap_starts_table,
    "again": again_table,
    "clifagain": clif_again_table,
    "secondlook": second_look_table,
    "harm": harm_table,
}
"""What stands between the marks of README.md."""


def page(text: str) -> str:
    """The page with its tables made anew."""
    return MARKED.sub(lambda found: f"{found[1]}{MADE[found[2]]()}{found[3]}", text)


def details() -> str:
    """The page of all rules in all regimes."""
    return f"{DETAILS}\n{development_table()}"


DETAILS = """# All candidates in all regimes

Made by `tables.py` from `development.csv`. Mean difference to Random over datasets ± standard
error, and on how many datasets it is better. [The study](README.md), [its rules](rules.md).
"""

if __name__ == "__main__":
    readme = HERE / "README.md"
    readme.write_text(page(readme.read_text(encoding="utf-8")), encoding="utf-8")
    (HERE / "tables.md").write_text(details(), encoding="utf-8")
