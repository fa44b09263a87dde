"""Data whose wrong labels are known: what corrects them, what a run found, and true scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from d2ace.data import AnnotatedData
from d2ace.evaluation import evaluate
from d2ace.insights import Insights, Records
from d2ace.training import RunConfig, SavedRun, make_problem

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FoundErrors:
    """How many of a run's suspects are truly wrong; a label here is one label of one row."""

    wrong: int
    """Truly wrong labels among those trained on."""
    pairs: int
    """All labels trained on."""
    hits: Flags
    """Which of the most suspicious labels are truly wrong; there are as many as ``wrong``."""
    flagged: int
    flagged_hits: int
    """Labels above the usual limit, and those of them that are truly wrong."""

    @property
    def precision(self) -> float:
        """The share of the most suspicious labels that are truly wrong."""
        return float(self.hits.mean()) if len(self.hits) else 0.0

    @property
    def chance(self) -> float:
        """The same of labels picked at random."""
        return self.wrong / self.pairs


class KnownErrors:
    """The truth about ``data``."""

    def __init__(self, data: AnnotatedData) -> None:
        self.data = data
        self.true_Y = np.asarray(data.true_Y)
        self.wrong: Flags = np.asarray(data.Y) != self.true_Y

    def corrections(self, config: RunConfig) -> bytes:
        """A table for ``labels_from``: the true labels of the rows that a run trains on."""
        problem = make_problem(config, self.data)
        rows = np.sort(problem.loaded.rows[problem.train.rows])
        place, label = np.nonzero(self.wrong[rows])
        row = rows[place]
        true = self.true_Y[row, label].astype(np.int64)
        return Records({"row": row, "label": label, "given": 1 - true, "suggested": true}).csv()

    def found(self, insights: Insights) -> FoundErrors:
        """How many suspects of a run are truly wrong."""
        trained = np.ones(insights.n, dtype=np.bool_)
        trained[insights.unobserved] = False
        wrong = int(self.wrong[trained].sum())
        first, flagged = most_suspicious(insights, wrong), insights.label_issues()
        return FoundErrors(
            wrong=wrong,
            pairs=int(trained.sum()) * insights.q,
            hits=self.wrong[first["row"], first["label"]][:wrong],
            flagged=len(flagged),
            flagged_hits=int(self.wrong[flagged["row"], flagged["label"]].sum()),
        )

    def test_scores(self, runs: Sequence[SavedRun]) -> list[dict[str, float]]:
        """The scores of runs of one fold on its test rows, by their true labels."""
        problem = make_problem(RunConfig.from_dict(runs[0].result.config), self.data)
        rows = problem.loaded.rows[problem.test.rows]
        truth = self.true_Y[rows][:, problem.loaded.labels]
        return [
            evaluate(truth, run.predict_proba(self.data.X[rows]), thresholds=run.thresholds).values
            for run in runs
        ]


def most_suspicious(insights: Insights, count: int) -> Records:
    """The ``count`` most suspicious labels, flagged or not, and any that tie with the last."""
    score = insights.suspicion().cpu().numpy().ravel()
    score = score[np.isfinite(score)]
    count = min(count, len(score))
    if not count:
        return insights.label_issues(float(np.finfo(np.float32).max))
    last = np.partition(score, -count)[-count]
    return insights.label_issues(float(np.nextafter(last, np.float32(-np.inf))))
