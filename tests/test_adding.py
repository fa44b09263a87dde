"""How many places it takes to add a method, a metric, a model or a table: as many as we say.

Each is added to a copy of the package, in the places that CONTRIBUTING.md names and no others, and
then found in what the commands print and write.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "d2ace"

SELECTOR = '''
"""Margin: prefer rows whose predictions are close to one half."""

import torch

from .base import Selector
from .history import Memory


class Margin(Selector):
    """Prefers rows that the model is least sure of."""

    name = "margin"
    title = "The Margin"

    def make_memory(self):
        return Memory(margin=torch.full((self.n,), 0.5, dtype=self.dtype))

    def update(self, index, probs):
        self.memory.margin[index] = (probs - 0.5).abs().amin(dim=1)

    def instance_weights(self):
        return {"margin": 0.5 - self.memory.margin}
'''

MODEL = '''
"""Straight: a linear map."""

from torch import nn

from .base import ModelOutput, MultiLabelModel


class Straight(MultiLabelModel):
    """One linear map to the logits."""

    name = "straight"
    title = "Straight-Line"

    def __init__(self, n_features, Y_train, *, preset="paper"):
        super().__init__(n_features, Y_train, preset)
        self.classifier = nn.Linear(self.n_features, self.n_labels)

    def forward(self, x):
        return ModelOutput(self.classifier(x))
'''

METRIC = '''
@metric("Micro-recall", higher_is_better=True)
def micro_recall(Y_true: Any, scores: Any, threshold: float = 0.5) -> float:
    """Share of the true pairs that are predicted."""
    counts = scored(Y_true, scores).counts(threshold)
    return float(counts.hits.sum() / counts.true.sum())


'''

TABLE = '''
"""Table of how many runs each method has."""

from d2ace.report.registry import register_table

from .table import Cell, ReportTable


@register_table("scores")
def run_counts(topic):
    """A row for every method."""
    compared = topic.comparison.methods
    rows = [[Cell(method, method), Cell("1", 1)] for method in compared]
    name = topic.name("run counts", topic.heading)
    yield ReportTable(name, "How often each ran", "Once each.", ["method", "runs"], rows)
'''

GRID = """
datasets = ["digits"]
models = ["straight"]
run_folds = [0]
selectors = ["random", "margin"]
monitor = "micro_recall"
epochs = 2
warmup = 1
"""


IMPORT_AND_EXPORT = """
from pathlib import Path
import d2ace, d2ace.testing
from d2ace import Margin
from d2ace.evaluation import METRICS, micro_recall
from d2ace.models import MODELS, Straight
assert d2ace.SELECTORS["margin"] is d2ace.selectors.Margin is Margin
assert "Margin" in d2ace.__all__ and "margin" in d2ace.testing.SETTINGS
assert METRICS["micro_recall"].function is micro_recall
assert MODELS["straight"] is Straight
from d2ace.benchmark.store.database import Store
with Store(Path("runs.db")) as store:
    store.export(Path("results.csv"))
"""


def insert(path: Path, before: str, text: str) -> None:
    """Put text into a file before the only place where ``before`` stands."""
    content = path.read_text(encoding="utf-8")
    assert content.count(before) == 1
    path.write_text(content.replace(before, text + before), encoding="utf-8")


def run(*words: str, cwd: Path) -> str:
    """What a command prints, with the package in ``cwd``."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(cwd)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_method_and_a_model_take_two_places_a_metric_and_a_table_one(tmp_path: Path) -> None:
    package = tmp_path / "d2ace"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "selectors" / "margin.py").write_text(SELECTOR)
    line = "from .margin import Margin as Margin\n"
    insert(package / "selectors" / "registry.py", "# isort: on\n", line)
    (package / "models" / "straight.py").write_text(MODEL)
    line = "from .straight import Straight as Straight\n"
    insert(package / "models" / "registry.py", "# isort: on\n", line)
    insert(package / "evaluation" / "metrics.py", "def _quotient(", METRIC.lstrip("\n"))
    (package / "report" / "tables" / "run_counts.py").write_text(TABLE)
    (tmp_path / "grid.toml").write_text(GRID)

    listed = json.loads(run("-m", "d2ace", "methods", "--json", cwd=tmp_path))["methods"]
    assert listed[-1] == {
        "name": "margin",
        "summary": "Prefers rows that the model is least sure of.",
        "options": [],
    }
    run("-m", "d2ace", "bench", "grid.toml", "--db", "runs.db", cwd=tmp_path)
    run("-c", IMPORT_AND_EXPORT, cwd=tmp_path)
    with (tmp_path / "results.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["Random", "The Margin"]
    assert {row["model"] for row in rows} == {"Straight-Line"}
    assert all(0 <= float(row["test_micro_recall"]) <= 1 for row in rows)
    run("-m", "d2ace", "report", "runs.db", "--out", "page", cwd=tmp_path)
    (page,) = (tmp_path / "page").glob("*.html")
    text = page.read_text(encoding="utf-8")
    assert "The Margin" in text
    assert "Straight-Line" in text
    assert "Micro-recall" in text  # which was monitored
    assert "How often each ran" in text
