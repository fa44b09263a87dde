"""Which trigger never harms: the tables of `triggers.csv`, and the decision by the rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from trim.gains import Row, gains, markdown, ordered, read, signed

TRAPS = {
    "slow": ("slow, as they come", "slow, 20 % moved"),
    "CLIF, paper's rate": ("CLIF, 100 epochs", "CLIF, 100 epochs, 20 % moved"),
    "CLIF, converged": ("CLIF, converged", "CLIF, converged, 20 % moved"),
}
"""Where Trim harmed -> the regimes there."""
GAINS = ("20 % moved", "as they come", "40 % moved")
HARMLESS, EQUAL, LOST = -0.001, 0.0007, -0.002
UNSEEN = ("rcv1subset3",)


def triggers_table() -> str:
    """Macro-AUC against Random in every trap, whether that is harmless, and what is gained."""
    rows = read("triggers")
    rules = [rule for rule in ordered(rows, "rule") if rule != "random"]
    chosen = decided(rows)
    lines = []
    for rule in rules:
        lost = [mean(rows, regimes, rule) for regimes in TRAPS.values()]
        won = [mean(rows, (regime,), rule) for regime in GAINS]
        whole = mean_gain(rows, rule)
        name = f"**{rule}**" if rule == chosen else rule
        word = "yes" if harmless(rows, rule) else "no"
        lines.append([name, *map(signed, lost), word, *map(signed, won), signed(whole)])
    head = ["Macro-AUC, difference to Random", *TRAPS, "harmless", *GAINS, "mean gain"]
    return markdown(head, lines)


def trap_starts_table() -> str:
    """In how many runs each trigger started, and when."""
    rows = read("triggers")
    lines = []
    for rule in ordered(rows, "rule"):
        if rule != "random":
            groups = [*TRAPS.values(), *((regime,) for regime in GAINS)]
            lines.append([rule, *(_starts(rows, regimes, rule) for regimes in groups)])
    return markdown(["runs that started, at which share of the epochs", *TRAPS, *GAINS], lines)


def _starts(rows: Sequence[Row], regimes: Sequence[str], rule: str) -> str:
    mine = [row for row in rows if row["regime"] in regimes and row["rule"] == rule]
    begun = [int(row["start"]) / int(row["epochs"]) for row in mine if int(row["start"])]
    return f"{len(begun)} of {len(mine)}" + (f", {np.mean(begun):.2f}" if begun else "")


def decided(rows: Sequence[Row]) -> str:
    """The chosen trigger, by the rules."""
    rules = [rule for rule in ordered(rows, "rule") if rule != "random"]
    gain = {rule: mean_gain(rows, rule) for rule in rules}
    safe = [rule for rule in rules if harmless(rows, rule)]
    if not safe:
        safe = [rule for rule in rules if gain[rule] >= gain[rules[0]] / 2]
        return max(safe, key=lambda rule: sum(mean(rows, trap, rule) for trap in TRAPS.values()))
    best = max(gain[rule] for rule in safe)
    return next(rule for rule in safe if gain[rule] >= best - EQUAL)


def harmless(rows: Sequence[Row], rule: str) -> bool:
    return all(mean(rows, regimes, rule) >= HARMLESS for regimes in TRAPS.values())


def mean_gain(rows: Sequence[Row], rule: str) -> float:
    return float(np.mean([mean(rows, (regime,), rule) for regime in GAINS]))


def mean(rows: Sequence[Row], regimes: Sequence[str], rule: str) -> float:
    """Folds averaged, then regimes; datasets count alike."""
    found: dict[str, list[float]] = {}
    for regime in regimes:
        for dataset, gain in gains(rows, regime, rule, "macro_auc").items():
            found.setdefault(dataset, []).append(gain)
    return float(np.mean([np.mean(values) for values in found.values()]))


def again_table() -> str:
    """Trim as it ships now, on every dataset and regime; beside it the same cells at first."""
    rows, before = read("again"), read("final")
    lines = []
    for regime in ordered(rows, "regime"):
        now, first = ({**gains(part, regime, "Trim", "macro_auc")} for part in (rows, before))
        of_map = gains(rows, regime, "Trim", "map")
        for dataset in now:
            mine = [row for row in rows if (row["dataset"], row["regime"]) == (dataset, regime)]
            trim = [row for row in mine if row["rule"] == "Trim"]
            started = _starts(mine, (regime,), "Trim")
            then = signed(first[dataset]) if dataset in first else "not run"
            lines.append(
                [
                    f"{regime}: {dataset}",
                    *(str(len(trim)), started, signed(now[dataset]), signed(of_map[dataset])),
                    then,
                ]
            )
    head = ["Trim as it ships", "pairs", "runs that started, at which share of the epochs"]
    return markdown([*head, "Macro-AUC", "mAP", "Macro-AUC, first trigger"], lines)


def harmed(rows: Sequence[Row]) -> list[str]:
    """Datasets and regimes where Trim lost more than the rules allow."""
    return [
        f"{dataset}, {regime} ({signed(gain)})"
        for regime in ordered(rows, "regime")
        for dataset, gain in gains(rows, regime, "Trim", "macro_auc").items()
        if gain < LOST
    ]


def harm_table() -> str:
    """Of what was trained once more, what lost."""
    networks = [row for row in read("again") if row["dataset"] in UNSEEN]
    lines = []
    for what, rows in (("unseen dataset", networks), ("CLIF", read("clif-again"))):
        found = harmed(rows)
        cells = {(row["dataset"], row["regime"]) for row in rows}
        lines.append([what, str(len(cells)), "; ".join(found) or "none"])
    return markdown(["trained once more", "datasets and regimes", "lost more than 0.002"], lines)
