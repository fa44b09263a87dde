"""The five methods on bibtex, where the paper shows convergence and overfitting, in one table."""

from __future__ import annotations

import math

import numpy as np
from beside import head, markdown_row
from evidence import BIBTEX, column, epochs_to_last_loss
from judging import RANKED, side_study

from d2ace.evaluation import METRICS
from d2ace.report.collect import Laboratory
from d2ace.report.method_names import BASELINE
from d2ace.report.run_values import curve, mean_score
from d2ace.report.tables import convergence as convergence_tables


def lines(laboratory: Laboratory) -> list[str]:
    """A table in Markdown."""
    one = side_study(laboratory, BIBTEX)
    titles = [METRICS[metric].title for metric in RANKED]
    columns = [
        *("method", *titles, "loss of all training rows at the end"),
        *(f"epochs to {BASELINE}'s last loss", f"epochs to {BASELINE}'s best validation score"),
        *("best epoch", "lost after it", "rows drawn in the last epoch"),
    ]
    to_loss = epochs_to_last_loss(one, BIBTEX)
    to_score = column(convergence_tables.targets("targets", one), BIBTEX, "epochs")
    peaks = convergence_tables.peaks("peaks", one)
    best, lost = (column(peaks, BIBTEX, name) for name in ("best_epoch", "lost_after"))
    rows = []
    for method in one.methods:
        runs = one.runs(BIBTEX, method)
        loss, drawn = (
            float(np.mean([curve(run, name)[-1] for run in runs]))
            for name in ("epoch_loss", "distinct_rows")
        )
        scores = [mean_score(runs, metric) for metric in RANKED]
        rows.append(
            [
                *(method, *(f"{value:.4f}" for value in [*scores, loss])),
                *(_epochs(found.get(method)) for found in (to_loss, to_score, best)),
                *(f"{abs(lost[method] or 0.0):.4f}", f"{drawn:,.0f}"),
            ]
        )
    return [*head(columns, words=1), *map(markdown_row, rows)]


def _epochs(value: float | None) -> str:
    return "never" if value is None or math.isinf(value) else f"{value:g}"
