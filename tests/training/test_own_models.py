"""Models of one's own, named file.py:Class: trained, resumed, saved, loaded, compared in grids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d2ace
from d2ace._util.errors import RunError, UserError
from d2ace.benchmark.plan.grid import load_grid, make_grid
from d2ace.benchmark.plan.specs import RunSpec
from d2ace.data import MultiLabelData
from d2ace.models import find_model, make_model
from d2ace.training import RunConfig, load_run

CODE = """
from torch import nn
from d2ace.models import ModelOutput, MultiLabelModel

class Net(MultiLabelModel):
    def __init__(self, n_features, Y_train, *, preset="paper", h=8):
        super().__init__(n_features, Y_train, preset, {"h": h})
        self.layers = nn.Sequential(
            nn.Linear(self.n_features, self.hparams["h"]), nn.ReLU(),
            nn.Linear(self.hparams["h"], self.n_labels),
        )

    def forward(self, x):
        return ModelOutput(self.layers(x))
"""
SMALL: dict[str, Any] = {"epochs": 2, "warmup": 1, "batch_size": 64, "selector": "random"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    return path


def test_an_own_model_is_trained_and_loaded_from_anywhere(
    table: MultiLabelData, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    result = d2ace.train(table, "mine.py:Net", out="run", model_options={"h": 4}, **SMALL)
    elsewhere = file.parent / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    run = load_run(file.parent / "run")
    assert run.model.hparams["h"] == 4
    assert run.predict_proba(table.X[:5]).shape == (5, len(run.label_names))
    assert result.config["model"] == f"{file}:Net"


def test_a_saved_run_says_when_its_code_is_gone_or_has_changed(
    table: MultiLabelData, file: Path
) -> None:
    out = file.parent / "run"
    d2ace.train(table, f"{file}:Net", out=out, **SMALL)
    touched = file.parent / "touched"
    file.write_text(f"open({str(touched)!r}, 'w').close()\n{CODE}")
    with pytest.raises(RunError, match=r"whose code has changed since; restore the file"):
        load_run(out)
    assert not touched.exists()  # it was not run
    file.unlink()
    with pytest.raises(RunError, match=r"there is no file .*mine\.py.*; restore the file"):
        load_run(out)
    file.write_text(CODE)
    assert load_run(out).label_names


def test_a_run_does_not_go_on_with_other_code(table: MultiLabelData, file: Path) -> None:
    out = file.parent / "run"
    d2ace.train(table, f"{file}:Net", out=out, **SMALL)
    with file.open("a") as source:
        source.write("# changed\n")
    with pytest.raises(UserError, match=r"belongs to another run .*model_source"):
        d2ace.train(table, f"{file}:Net", out=out, **SMALL)


def test_code_that_changed_after_a_run_was_described_is_refused(file: Path) -> None:
    config = RunConfig.from_dict({"data": "digits", "model": f"{file}:Net"}).to_dict()
    with file.open("a") as source:
        source.write("# changed\n")
    with pytest.raises(UserError, match=r"mine\.py has changed since this run was described"):
        RunConfig.from_dict(config)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("none.py:Net", "The model 'none.py:Net' cannot be found .*there is no file"),
        ("mine.py:Nett", "has no model 'Nett'; it must be a subclass of d2ace.models"),
        ("no_such_module:Net", "The model 'no_such_module:Net' cannot be found"),
        ("clff", "There is no model 'clff' .did you mean 'clif'.*or name your own as"),
    ],
)
def test_a_class_that_is_no_model_is_refused(
    file: Path, name: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    with pytest.raises(ValueError, match=sentence):
        find_model(name)
    with pytest.raises(UserError, match=sentence):
        d2ace.train("digits", name)


def test_hyperparameters_of_an_own_model_are_checked(file: Path) -> None:
    Y = np.eye(3)
    assert make_model(f"{file}:Net", 5, Y, h=3).hparams == {"h": 3}
    with pytest.raises(TypeError, match=r"has no hyperparameter 'hh'.*it takes preset, h"):
        make_model(f"{file}:Net", 5, Y, hh=3)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("def forward(self, x): return self.layers(x)", "must return a ModelOutput, got Tensor"),
        (
            "def forward(self, x): return ModelOutput(self.layers(x)[:, 1:])",
            r"must return logits \[batch, .* of shape",
        ),
        (
            "def forward(self, x): return ModelOutput(self.layers(x).long())",
            "of floating point, got torch.int64",
        ),
        ("def terms(self, output, y, pairs, weight): return None", "dictionary of named scalars"),
        (
            "def terms(self, output, y, pairs, weight): return {'all': pairs.mean(1)}",
            "must return scalar tensors, got .* for 'all'; take the mean",
        ),
        ("def loss(self, output, y, weight=None): return None", "must return LossTerms, got None"),
        (
            "def forward(self, x): return ModelOutput(self.layers(x).detach())",
            "must return logits with a gradient",
        ),
    ],
)
def test_what_a_model_must_return_is_said(
    table: MultiLabelData, file: Path, body: str, sentence: str
) -> None:
    file.write_text(f"{CODE}\nclass Bad(Net):\n    {body}\n")
    with pytest.raises(RunError, match=rf"^Bad\.(forward|terms|loss) .*{sentence}"):
        d2ace.train(table, f"{file}:Bad", **SMALL)


@pytest.mark.parametrize(
    ("init", "sentence"),
    [
        ("def __init__(self): pass", r"too many positional .*write its __init__ as"),
        (
            "def __init__(self, n_features, Y_train, preset, h): pass",
            r"missing a required argument: 'preset'.*write its __init__ as",
        ),
        (
            "def __init__(self, n_features, Y_train):\n"
            "        super().__init__(n_features, Y_train)\n"
            "        self.layers = nn.Identity()",
            "has no parameters that can be trained",
        ),
        (
            "def __init__(self, n_features, Y_train): pass",
            r"does not call super\(\)\.__init__\(n_features, Y_train, preset",
        ),
    ],
)
def test_a_model_that_cannot_be_made_is_refused(
    table: MultiLabelData, file: Path, init: str, sentence: str
) -> None:
    file.write_text(f"{CODE}\nclass Bad(Net):\n    {init}\n")
    with pytest.raises(UserError, match=sentence):
        d2ace.train(table, f"{file}:Bad", **SMALL)


# In a grid ----------------------------------------------------------------------------------


def test_grids_take_own_models_by_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = file.parent / "grid.toml"
    grid.write_text('datasets = ["digits"]\nmodels = ["mine.py:Net"]\nselectors = ["random"]\n')
    spec = load_grid(grid).specs[0]
    assert spec.model == "Net"
    assert spec.config["model"] == f"{file}:Net"
    monkeypatch.chdir(file.parent)
    typed = {"datasets": ["digits"], "models": ["mine.py:Net"], "selectors": ["random"]}
    assert make_grid(typed).specs[0].key == spec.key
    moved = file.parent / "moved"
    moved.mkdir()
    (moved / "mine.py").write_text(CODE)
    assert make_grid(typed | {"models": [f"{moved / 'mine.py'}:Net"]}).specs[0].key == spec.key
    file.write_text(CODE + "# changed\n")
    assert load_grid(grid).specs[0].key != spec.key


def test_a_stored_run_is_described_without_its_code(file: Path) -> None:
    """Who reads a store of somebody else runs nothing of theirs."""
    file.write_text("raise SystemExit\n")
    spec = RunSpec("main", "Random", {"data": "digits", "model": f"{file}:Net", "seed": 1})
    assert spec.model == "Net"


def test_runs_without_an_own_model_keep_their_keys() -> None:
    spec = RunSpec("main", "D2ACE", {"data": "emotions", "model": "clif"})
    bare = {key: value for key, value in spec.config.items() if key != "model_source"}
    assert spec.key == RunSpec("main", "D2ACE", bare).key
    assert spec.key == "719d1f0211c606f1b1344b55880dad0d7d1263c21ce4c1701a64bf3d54a9123c"


def test_the_classifier_takes_an_own_model(file: Path) -> None:
    from d2ace.integrations.sklearn import MultiLabelClassifier

    X = np.random.default_rng(0).normal(size=(60, 4))
    Y = (X[:, :2] > 0).astype(int)
    mine = MultiLabelClassifier(f"{file}:Net", "random", epochs=2, warmup=1, random_state=0)
    assert mine.fit(X, Y).predict_proba(X).shape == (60, 2)
    assert type(mine.model_).__name__ == "Net"
