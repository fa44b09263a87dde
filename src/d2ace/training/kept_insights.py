"""The insights of a run: written at its end, and read back with the row indices of your data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from d2ace._util.errors import RunError
from d2ace.insights import Insights

from .result import RunResult
from .verified import FORMAT, Parts, load_tensors

if TYPE_CHECKING:
    from .config import RunConfig
    from .problem import Problem

__all__ = ["INSIGHTS", "insights_content", "load_insights"]

INSIGHTS = "insights.pt"
_PARTS: Parts = {
    "format": int,
    "config": str,
    "data": str,
    "rows": Tensor,
    "label_rows": Tensor,
    "label_columns": Tensor,
    "label_names": list,
    "row_names": (list, type(None)),
    "state": dict,
}
"""``label_rows`` and ``label_columns`` are the positive pairs of all rows of the data."""


def insights_content(config: RunConfig, problem: Problem, insights: Insights) -> dict[str, Any]:
    """The content of ``insights.pt``: sums of the training rows, their indices, and all names."""
    labels, rows = problem.loaded.with_training(problem.train)
    names = problem.loaded.row_names
    return {
        "format": FORMAT,
        "config": json.dumps(config.to_dict()),
        "data": problem.digest,
        "rows": torch.from_numpy(rows),
        "label_rows": torch.from_numpy(labels.indptr.astype(np.int64)),
        "label_columns": torch.from_numpy(labels.indices.astype(np.int64)),
        "label_names": list(problem.label_names),
        "row_names": None if names is None else list(names),
        "state": insights.state_dict(),
    }


def load_insights(path: Path, result: RunResult, again: str) -> Insights:
    """The insights of a finished run; ``again`` is the remedy for an unusable file."""
    saved = load_tensors(path, "the insights of a run", _PARTS, remedy=lambda: again)
    try:
        theirs = json.loads(saved["config"]), saved["data"]
    except ValueError:
        theirs = None, saved["data"]
    if theirs != (json.loads(json.dumps(result.config)), result.dataset["digest"]):
        raise RunError(
            f"{path} belongs to another run than result.json; both were left alone: {again}."
        )
    try:
        return _restored(saved)
    except Exception as problem:  # parts of other shapes fail in many ways
        why = " ".join(f"{type(problem).__name__}: {problem}".split()).rstrip(".")
        raise RunError(f"{path} does not fit this version ({why}); {again}.") from problem


def _restored(saved: dict[str, Any]) -> Insights:
    pointer, columns = (saved[name].numpy() for name in ("label_rows", "label_columns"))
    shape = (len(pointer) - 1, len(saved["label_names"]))
    ones = np.ones(len(columns), dtype=np.float32)
    labels = sp.csr_array((ones, columns, pointer), shape=shape)
    labels.check_format(full_check=True)
    rows = saved["rows"].numpy()
    insights = Insights(labels[rows])
    insights.load_state_dict(saved["state"])
    names = {"label_names": saved["label_names"], "row_names": saved["row_names"]}
    return insights.among(labels, rows, **names)
