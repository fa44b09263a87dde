"""Random and D2ACE beside the paper's: on each dataset, and the gain over datasets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from judging import RANKED, SCORE

from d2ace.evaluation import METRICS
from d2ace.report import published
from d2ace.report.collect import Laboratory
from d2ace.report.intervals import interval
from d2ace.report.judgement import judge
from d2ace.report.method_comparison import MethodComparison
from d2ace.report.method_names import BASELINE, CANDIDATE, base_of
from d2ace.report.published import Published
from d2ace.report.tables import gains as gain_tables
from d2ace.report.tables import scores as score_tables
from d2ace.report.tables.table import figure, signed

STUDIES = ("main", "bibtex")
"""Whose scores stand beside the paper's."""


def lines(laboratory: Laboratory) -> list[str]:
    """Two tables in Markdown."""
    printed = published.load(None)
    shown = [one for one in laboratory.comparisons if one.study in STUDIES]
    each = ["model", "dataset", "runs", BASELINE, "paper", CANDIDATE, "paper", "better by", "paper"]
    over = [
        *("model", "metric", "datasets", f"{CANDIDATE} better than {BASELINE} by"),
        *("paper, same datasets", "paper, its others"),
    ]
    return [
        *head(each, words=2),
        *(line for one in shown for line in _on_each(one, printed)),
        "",
        *head(over, words=2),
        *(line for one in shown if one.study == "main" for line in _over_all(one, printed)),
    ]


def _on_each(one: MethodComparison, printed: Published) -> list[str]:
    """Scores and their difference, dataset by dataset."""
    levels = score_tables.scores("", one, SCORE, judge(one, SCORE), printed).data or []
    of = {(row["dataset"], row["method"]): row for row in levels}
    found = []
    for gain in gain_tables.by_dataset("", one, SCORE, printed).data or []:
        dataset = str(gain["dataset"])
        if gain["method"] != CANDIDATE or gain["difference"] is None:
            continue
        ours = [of[dataset, method] for method in (BASELINE, CANDIDATE)]
        scores = [figure(row[key]).text for row in ours for key in ("mean", "published")]
        between = interval(one.differences(SCORE, CANDIDATE, datasets=[dataset]))
        found.append(
            markdown_row(
                [
                    *(one.model, dataset, str(gain["pairs"]), *scores),
                    *(signed(str(between)), figure(gain["published"], "+.4f").text),
                ]
            )
        )
    return found


def _over_all(one: MethodComparison, printed: Published) -> list[str]:
    """The mean gain over the datasets that the paper has, and the paper's there and elsewhere."""
    found = []
    for metric in RANKED:
        theirs = _published_gains(printed, metric, one.model)
        same = [dataset for dataset in one.datasets if dataset in theirs]
        others = [dataset for dataset in theirs if dataset not in same]
        ours = interval(one.differences(metric, CANDIDATE, datasets=same))
        means = [np.mean([theirs[dataset] for dataset in several]) for several in (same, others)]
        found.append(
            markdown_row(
                [
                    *(one.model, METRICS[metric].title, str(len(same)), signed(str(ours))),
                    *(figure(float(mean), "+.4f").text for mean in means),
                ]
            )
        )
    return found


def _published_gains(printed: Published, metric: str, model: str) -> dict[str, float]:
    """Dataset -> how much better than Random D2ACE is in the paper."""
    sign = 1 if METRICS[metric].higher_is_better else -1
    datasets = [
        dataset
        for what, whose, dataset, method in printed.numbers["score"]
        if (what, whose, method) == (metric, base_of(model).upper(), CANDIDATE)
    ]
    gains = {}
    for dataset in datasets:
        ours, base = (
            printed.score(metric, model, dataset, method) for method in (CANDIDATE, BASELINE)
        )
        if ours is not None and base is not None:
            gains[dataset] = sign * (ours - base)
    return gains


def head(columns: Sequence[str], words: int) -> list[str]:
    """The first two rows of a table; all columns but the first ``words`` are numbers."""
    rule = ["---"] * words + ["---:"] * (len(columns) - words)
    return [markdown_row(columns), markdown_row(rule)]


def markdown_row(words: Sequence[str]) -> str:
    """A row of a table."""
    return f"| {' | '.join(words)} |"
