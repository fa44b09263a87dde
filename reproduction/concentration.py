"""How few rows DIHCL draws, beside D2ACE: what `paper` makes of its probabilities."""

from __future__ import annotations

import numpy as np
from beside import head, markdown_row
from evidence import BIBTEX
from judging import FIRST, main_study, side_study

from d2ace.report.collect import Laboratory
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.method_names import CANDIDATE
from d2ace.report.run_values import Array, curve

FROM = 20
"""The first epoch that counts: the tenth whose rows are selected."""
METHOD = "DIHCL"


def lines(laboratory: Laboratory) -> list[str]:
    """A table in Markdown."""
    columns = [
        *("model", "dataset", "training rows"),
        *(f"{METHOD}: distinct rows an epoch", "smallest epoch", "effective rows"),
        f"{CANDIDATE}: distinct rows an epoch",
    ]
    rows = []
    for one in (main_study(laboratory, FIRST), side_study(laboratory, BIBTEX)):
        for dataset in one.datasets:
            training = (one.runs(dataset, METHOD)[0].result or {})["dataset"]["train"]
            drawn = _late(one, dataset, METHOD, "distinct_rows")
            effective = _late(one, dataset, METHOD, "effective_rows")
            other = _late(one, dataset, CANDIDATE, "distinct_rows")
            rows.append(
                [
                    *(one.model, dataset, f"{training:,}"),
                    *(_share(np.median(drawn), training), f"{drawn.min():,.0f} of {training:,}"),
                    *(f"{np.median(effective):.1f}", _share(np.median(other), training)),
                ]
            )
    return [*head(columns, words=2), *map(markdown_row, rows)]


def _late(one: MethodComparison, dataset: str, method: str, what: str) -> Array:
    """Values of all runs and epochs from `FROM` on."""
    return np.concatenate([curve(run, what)[FROM - 1 :] for run in one.runs(dataset, method)])


def _share(rows: float, of: int) -> str:
    return f"{rows:,.0f} ({rows / of:.0%})"
