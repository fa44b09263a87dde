"""Tables of the case studies that runs recorded: who is drawn most, and which labels count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import stats

from d2ace.report.figures.cases import PROPERTIES, chosen_labels, label_weight_curves, shares
from d2ace.report.registry import register_table
from d2ace.report.run_values import Array, Recording
from d2ace.report.topics import CaseTopic
from d2ace.report.wording import counted

from .table import Cell, ReportTable, Value, figure, p_text, word

MARK = 20
"""Epoch of the first column of label weights, as of the first deciles."""


def drawn_most(
    name: str, place: str, epochs: list[int], recordings: dict[str, list[Recording]]
) -> ReportTable:
    """What the tenth of the rows is like that a method draws most."""
    rows = []
    data: list[dict[str, Value]] = []
    for what, words in PROPERTIES.items():
        for epoch in epochs:
            row = [word(f"high {words}"), Cell(str(epoch), epoch)]
            for method, several in recordings.items():
                share, count = top_share(several, epoch, what)
                row.append(_percent(share))
                data.append(
                    {
                        "property": what,
                        "epoch": epoch,
                        "method": method,
                        "share": share,
                        "rows": count,
                    }
                )
            rows.append(row)
    return ReportTable(
        name=name,
        title=f"Rows drawn most, {place}",
        caption=(
            "The tenth of the training rows with the highest sampling probability at the start of "
            "an epoch: its share of rows in the highest third by a property. A method that ignores "
            "the property has about a third."
        ),
        columns=["Share with", "Epoch", *recordings],
        rows=rows,
        data=data,
    )


def top_share(several: list[Recording], epoch: int, what: str) -> tuple[float | None, int]:
    """Share of the highest tier among the tenth of rows drawn most, and how many rows that is."""
    here = [one for one in several if epoch in one["epochs"]]
    if not here:
        return None, 0
    share = float(np.mean([shares(one, epoch, what)[0, -1] for one in here]))
    return share, sum(-(-len(one["outlier"]) // 10) for one in here)


def label_weights(
    name: str, place: str, recordings: dict[str, list[Recording]]
) -> ReportTable | None:
    """Weights and AUC of two labels early and late, and weights against AUC over all labels."""
    curves = {method: label_weight_curves(several[0]) for method, several in recordings.items()}
    first = next((several[0] for method, several in recordings.items() if curves[method]), None)
    if first is None:
        return None
    names = [str(label) for label in first["label_names"]]
    labels = chosen_labels(names, np.asarray(first["label_auc"], dtype=float))
    if not labels:
        return None
    rows = []
    data: list[dict[str, Value]] = []
    for method, several in recordings.items():
        auc = np.asarray(several[0]["label_auc"], dtype=float)
        early = min(MARK, len(auc)) - 1
        for quantity, values in ({"validation AUC": auc} | curves[method]).items():
            row = [word(method), word(quantity)]
            line: dict[str, Value] = {"method": method, "quantity": quantity}
            for column in labels:
                for when, at in (("early", early), ("late", -1)):
                    row.append(figure(float(values[at, column])))
                    line[f"{names[column]} {when}"] = float(values[at, column])
            rho, p = (None, None) if values is auc else against_auc(values[-1], auc[-1])
            row += [figure(rho), Cell("–") if p is None else Cell(p_text(p), p)]
            rows.append(row)
            data.append({**line, "rank_correlation": rho, "p": p})
    last = len(first["label_auc"])
    return ReportTable(
        name=name,
        title=f"Label weights, {place}",
        caption=(
            "Validation AUC of two labels and the weights that methods give them, early and at the "
            "end of one run; then the rank correlation (Spearman) of the weights with the AUC over "
            f"all {counted(len(names), 'label')} at the end, and its two-sided p-value: negative "
            "where labels that are learned less well count more."
        ),
        columns=[
            "Method",
            "Quantity",
            *[
                f"{names[column]}, epoch {epoch}"
                for column in labels
                for epoch in (min(MARK, last), last)
            ],
            "Weights with AUC",
            "p",
        ],
        rows=rows,
        data=data,
    )


def against_auc(weights: Array, auc: Array) -> tuple[float | None, float | None]:
    """Rank correlation of label weights with label AUC, and its p-value; None where constant."""
    known = np.isfinite(weights) & np.isfinite(auc)
    if known.sum() < 3 or np.ptp(weights[known]) == 0 or np.ptp(auc[known]) == 0:
        return None, None
    found: Any = stats.spearmanr(weights[known], auc[known])
    return float(found.statistic), float(found.pvalue)


def _percent(share: float | None) -> Cell:
    return Cell("–") if share is None else Cell(f"{share:.0%}", share)


@register_table("cases", order=10)
def _cases(topic: CaseTopic) -> Iterator[ReportTable | None]:
    place, recorded = topic.place, topic.recorded
    if topic.epochs:
        yield drawn_most(topic.name("drawn-most", place), place, topic.epochs, recorded)
    yield label_weights(topic.name("label-weights", place), place, recorded)
