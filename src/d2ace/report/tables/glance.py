"""Table of the findings: who is best in which metric, and whether that is more than noise."""

from __future__ import annotations

from collections.abc import Iterator

from d2ace.evaluation import METRICS
from d2ace.report.judgement import FEWEST, Judgement
from d2ace.report.method_names import BASELINE, CANDIDATE
from d2ace.report.registry import register_table
from d2ace.report.topics import StoreTopic
from d2ace.report.wording import in_short

from .table import Cell, ReportTable, figure, p_text, signed, word


def glance(name: str, found: list[Judgement]) -> ReportTable:
    """The findings as a table."""
    rows = []
    for judgement in found:
        gain = judgement.gain
        p = judgement.tests_of(judgement.best).holm.get(BASELINE) if judgement.enough else None
        spread = "between datasets" if gain is not None and gain.between_datasets else ""
        candidate = judgement.average_ranks.get(CANDIDATE)
        rows.append(
            [
                word(judgement.comparison.heading),
                word(METRICS[judgement.metric].title),
                word(judgement.best),
                figure(judgement.average_ranks[judgement.best], ".2f"),
                figure(candidate, ".2f"),
                figure(judgement.average_ranks.get(BASELINE), ".2f"),
                Cell("–") if gain is None else Cell(signed(str(gain)), gain.mean, note=spread),
                Cell("–") if p is None else Cell(p_text(p), p),
                word(in_short(judgement.verdict, judgement.enough)),
                Cell(str(judgement.datasets), judgement.datasets),
            ]
        )
    return ReportTable(
        name=name,
        title="At a glance",
        caption=(
            f"The method with the best average rank, how much better it is than {BASELINE} (mean "
            "difference with its 95 % interval, positive is better), and the p-value of the "
            f"one-sided Wilcoxon test against {BASELINE}, corrected by Holm, if there are at least "
            f"{FEWEST} datasets. The best method was chosen by the same scores, which favours the "
            "winner."
        ),
        columns=[
            "Model",
            "Metric",
            "Best",
            "Its rank",
            f"Rank of {CANDIDATE}",
            f"Rank of {BASELINE}",
            f"Better than {BASELINE} by",
            "p (Holm)",
            "In short",
            "Datasets",
        ],
        rows=rows,
    )


@register_table("summary", order=10)
def _glance(topic: StoreTopic) -> Iterator[ReportTable]:
    if topic.findings:
        yield glance(topic.name("findings"), topic.findings)
