"""Runs that train side by side: the numbers, files and errors of runs that train alone."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from smallrun import small_table

from d2ace.training import (
    RunConfig,
    RunInterrupted,
    RunResult,
    StackedRun,
    load_run,
    train_config,
    train_stack,
)

OWN = """
import d2ace

class Broken(d2ace.Recent):
    def update(self, index, probs):
        if self.epoch > 2:
            raise KeyError("mine")
        super().update(index, probs)
"""

METHODS: list[dict[str, Any]] = [
    {"selector": "random"},
    {"selector": "d2ace"},
    {"selector": "d2ace", "seed": 1},
    {"selector": "dihcl"},  # looks at the learning rate
    {"selector": "balance"},  # weighs pairs
    {"selector": "info_batch"},  # shortens epochs and weighs instances
    {"selector": "trim", "selector_options": {"start": 2}},
    {"selector": "d2ace", "selector_options": {"rows_per_epoch": 0.5, "replacement": True}},
    {"selector": "ml_unc", "selector_options": {"predictions": "full_pass"}},
    {"selector": "active", "selector_options": {"importance_weighting": True}},
]

Ended = list[Exception | None]


@pytest.fixture
def table(tmp_path) -> str:
    return small_table(tmp_path)


def configs(table: str, methods: list[dict[str, Any]], **settings: Any) -> list[RunConfig]:
    usual = {"model_options": {"h": 16, "L": 2}, "epochs": 4, "warmup": 1, "batch_size": 32}
    alike = {"data": table, "model": "mlp", **usual, **settings}
    return [RunConfig.from_dict({**alike, **method}) for method in methods]


def stacked(
    wanted: list[RunConfig], folder: Path, watch: Callable[[dict[str, Any]], None] | None = None
) -> Ended:
    """Train all side by side; how each ended."""
    ended: dict[int, Exception | None] = {}
    runs = [
        StackedRun(
            config,
            folder / str(number),
            watch or (lambda entry: None),
            lambda error, number=number: ended.update({number: error}),
        )
        for number, config in enumerate(wanted)
    ]
    train_stack(runs, threads=1)
    return [ended[number] for number in range(len(wanted))]


def numbers(folder: Path) -> dict[str, Any]:
    """A result but for times."""
    result = RunResult.read(folder / "result.json").to_dict()
    for name in ("seconds", "cpu_seconds", "checksum"):
        result.pop(name, None)
    return result | {"history": [{**each, "seconds": None} for each in result["history"]]}


def same(ours: Path, theirs: Path) -> None:
    assert json.dumps(numbers(ours)) == json.dumps(numbers(theirs))
    assert {path.name for path in ours.iterdir()} == {path.name for path in theirs.iterdir()}
    weights = [torch.load(place / "best.pt") for place in (ours, theirs)]
    torch.testing.assert_close(weights[0]["weights"], weights[1]["weights"], rtol=0, atol=0)
    np.testing.assert_array_equal(load_run(ours).thresholds, load_run(theirs).thresholds)


def test_all_methods_have_the_numbers_and_files_of_separate_runs(tmp_path, table):
    """To the last bit, in one stack."""
    wanted = configs(table, METHODS, record=True, insights=True)
    assert stacked(wanted, tmp_path / "one") == [None] * len(wanted)
    for number, config in enumerate(wanted):
        ours, theirs = tmp_path / "one" / str(number), tmp_path / "each" / str(number)
        train_config(config, out=theirs, threads=1)
        same(ours, theirs)
        one, each = (np.load(place / "record.npz") for place in (ours, theirs))
        assert one.files == each.files
        for name in one.files:
            np.testing.assert_array_equal(one[name], each[name])
        suspicion = [load_run(place).insights.suspicion() for place in (ours, theirs)]
        np.testing.assert_array_equal(*suspicion)
        result = RunResult.read(ours / "result.json")
        assert result.cpu_seconds > 0
        assert result.seconds["train"] > 0


@pytest.mark.parametrize("options", [{"h": 16, "L": 1, "p": 0}, {"h": 7, "L": 3, "p": 1.0}, {}])
def test_all_kinds_of_networks(tmp_path, table, options):
    """Without dropout, of nothing but dropout, and as they are by default."""
    wanted = configs(table, METHODS[:2], model_options=options)
    assert stacked(wanted, tmp_path / "one") == [None, None]
    for number, config in enumerate(wanted):
        train_config(config, out=tmp_path / "each" / str(number), threads=1)
        same(tmp_path / "one" / str(number), tmp_path / "each" / str(number))


def test_a_run_that_fails_ends_alone(tmp_path, table):
    (tmp_path / "mine.py").write_text(OWN)
    methods = [{"selector": "random"}, {"selector": f"{tmp_path / 'mine.py'}:Broken"}]
    wanted = [
        *configs(table, methods),
        *configs(table, [{"selector": "random", "seed": 3}]),
        *configs(table, [{"selector": "d2ace", "selector_options": {"window": 0}}]),
    ]
    errors = stacked(wanted, tmp_path / "one")
    assert [type(error).__name__ for error in errors[:3]] == ["NoneType", "KeyError", "NoneType"]
    assert "window" in str(errors[3])
    for number in (0, 2):
        train_config(wanted[number], out=tmp_path / "each" / str(number), threads=1)
        same(tmp_path / "one" / str(number), tmp_path / "each" / str(number))


def test_a_loss_that_becomes_nan_ends_a_run_as_it_does_alone(tmp_path, table):
    wanted = configs(table, METHODS[:2], learning_rate=1e30)
    for number, error in enumerate(stacked(wanted, tmp_path / "one")):
        with pytest.raises(type(error)) as alone:
            train_config(wanted[number], out=tmp_path / "each" / str(number), threads=1)
        assert str(error) == str(alone.value)


def test_runs_that_were_stopped_resume_alone_or_together(tmp_path, table):
    """A signal in the third epoch of some saves all, in the middle of an epoch or at its end."""

    def interrupt(entry: dict[str, Any]) -> None:
        if entry["epoch"] == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    wanted = configs(table, METHODS, epochs=6)
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # of a second one
    try:
        errors = stacked(wanted, tmp_path / "one", interrupt)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert {type(error) for error in errors} == {RunInterrupted}
    assert len(list((tmp_path / "one").glob("*/checkpoint.pt"))) == len(wanted)
    train_config(wanted[1], out=tmp_path / "one" / "1", threads=1)
    assert stacked(wanted, tmp_path / "one") == [None] * len(wanted)
    for number, config in enumerate(wanted):
        train_config(config, out=tmp_path / "each" / str(number), threads=1)
        same(tmp_path / "one" / str(number), tmp_path / "each" / str(number))
