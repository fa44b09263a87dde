"""What a run promises beyond its numbers: who takes part in them, and what they cost."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import numpy as np
import pytest
import torch
from smallrun import small_run
from torch.nn.modules.module import register_module_forward_hook

import d2ace
from d2ace.cli import main
from d2ace.data import MultiLabelData, folds, prepare
from d2ace.models import MLP
from d2ace.training import RunConfig, RunResult


def without_seconds(result: RunResult) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in entry.items() if key != "seconds"} for entry in result.history
    ]


def test_features_of_test_rows_reach_nothing_but_the_test(table: MultiLabelData) -> None:
    prepared = prepare(table)
    tested = prepared.rows[folds(prepared.data.Y, 5, seed=0)[0][1]]
    X = np.array(table.X)
    X[tested] = 100 * X[tested] - 37
    before = small_run(table, epochs=4)
    after = small_run(dataclasses.replace(table, X=X), epochs=4)
    assert without_seconds(after) == without_seconds(before)
    assert after.validation == before.validation
    assert after.test != before.test


def test_methods_start_from_the_same_weights_and_see_the_same_masks(table: MultiLabelData) -> None:
    """The first epoch is warm-up for all: with the same dropout, the losses agree to the bit."""
    options = {"h": 16, "L": 2, "p": 0.5}
    losses = {
        name: small_run(table, selector=name, epochs=2, warmup=1, model_options=options).history[0][
            "train_loss"
        ]
        for name in d2ace.SELECTORS
    }
    assert len(set(losses.values())) == 1, losses


def test_selection_makes_no_second_forward_pass(table: MultiLabelData) -> None:
    passes = {name: {True: 0, False: 0} for name in ("random", "d2ace")}
    for name, counted in passes.items():

        def count(module: torch.nn.Module, *_: Any, counted: dict[bool, int] = counted) -> None:
            counted[module.training] += isinstance(module, MLP)

        hook = register_module_forward_hook(count)
        try:
            small_run(table, selector=name, epochs=4)
        finally:
            hook.remove()
    assert passes["d2ace"] == passes["random"]
    assert passes["d2ace"][True] > 0


def test_the_command_knows_every_setting_by_its_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = set(re.findall(r"--([\w-]+)", capsys.readouterr().out))
    settings = {field.name for field in dataclasses.fields(RunConfig)}
    settings |= set(inspect.signature(d2ace.train).parameters)
    settings -= {"settings", "watch"}  # the rest by name; a function, which nobody can type
    settings -= {"model_source", "selector_source", "labels_source"}  # found out, not given
    spelt = {"model_options": "model-option", "selector_options": "selector-option"}
    for name in settings:
        assert spelt.get(name, name.replace("_", "-")) in shown
