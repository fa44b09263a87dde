"""What the recorded runs say to the paper's claims about its case studies (one fold, one seed)."""

from __future__ import annotations

import math

import numpy as np
from beside import head, markdown_row
from judging import LEVEL, SCORE, Finding, decided, in_part, joined

from d2ace.evaluation import METRICS
from d2ace.report import published
from d2ace.report.collect import Laboratory
from d2ace.report.figures.cases import PROPERTIES, label_weight_curves
from d2ace.report.method_names import CANDIDATE
from d2ace.report.run_values import Recording, mean_score
from d2ace.report.tables.cases import against_auc, top_share
from d2ace.report.tables.table import figure

EARLY, LATE = 20, 80
CLEAR = 2
"""Standard errors beyond which a difference of two shares is no chance."""


def fewer_outliers_early(laboratory: Laboratory) -> Finding:
    """Early, D2ACE prefers outliers less than Hard-Imb does."""
    return _more(laboratory, "Hard-Imb", CANDIDATE, EARLY, "outlier")


def more_hard_rows_late(laboratory: Laboratory) -> Finding:
    """Late, D2ACE prefers rows of high loss more than ML-Unc does."""
    return _more(laboratory, CANDIDATE, "ML-Unc", LATE, "loss")


def _more(laboratory: Laboratory, more: str, less: str, epoch: int, what: str) -> Finding:
    """Whether the first method has more of the highest tier among the rows that it draws most."""
    found, told = [], []
    for dataset in laboratory.cases[0].datasets:
        recordings = _recorded(laboratory, dataset)
        if not {more, less} <= recordings.keys():
            continue
        shares = {method: top_share(recordings[method], epoch, what) for method in (more, less)}
        (high, rows), (low, _) = shares.values()
        error = math.sqrt(sum(share * (1 - share) / rows for share, _ in shares.values()))
        clear = abs(high - low) > CLEAR * error
        found.append(decided(holds=clear and high > low, against=clear and high < low))
        here = ", ".join(f"{method} {share:.0%}" for method, (share, _) in shares.items())
        told.append(f"{dataset}: {here} of {rows} rows each")
    return joined(found), f"high {PROPERTIES[what]}. {'; '.join(told)}"


def weights_go_against_auc(laboratory: Laboratory) -> Finding:
    """At the end, labels with a low AUC have the larger weights."""
    (recording,) = _recorded(laboratory, "corel5k")[CANDIDATE]
    auc = np.asarray(recording["label_auc"], dtype=float)[-1]
    holds, told = [], []
    for kind, weights in label_weight_curves(recording).items():
        rho, p = against_auc(weights[-1], auc)
        holds.append(rho is not None and p is not None and rho < 0 and p < LEVEL)
        told.append(f"{kind} {'–' if rho is None else f'{rho:+.2f}'.replace('-', '−')}")
    return in_part(holds), f"rank correlation with AUC over {len(auc)} labels: {'; '.join(told)}"


def levels(laboratory: Laboratory) -> list[str]:
    """A table in Markdown: the scores of the recorded runs beside the paper's."""
    printed = published.load(None)
    (study,) = laboratory.cases
    rows = []
    for dataset in study.datasets:
        for method in study.methods:
            runs = study.runs(dataset, method)
            if not runs:
                continue
            theirs = printed.score(SCORE, study.model, dataset, method)
            scores = [figure(mean_score(runs, SCORE)).text, figure(theirs).text]
            best = ", ".join(str((run.result or {})["best_epoch"]) for run in runs)
            rows.append([dataset, method, str(len(runs)), *scores, best])
    columns = ["dataset", "method", "runs", METRICS[SCORE].title, "paper, five folds", "best epoch"]
    return [*head(columns, words=2), *map(markdown_row, rows)]


def _recorded(laboratory: Laboratory, dataset: str) -> dict[str, list[Recording]]:
    (study,) = laboratory.cases
    return laboratory.recorded(study, dataset)
