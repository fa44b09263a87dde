"""A run with Trim: Random's until the network overfits, and the same wherever it is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from smallrun import small_run, without_times

import d2ace
from d2ace.data import MultiLabelData, make_multilabel
from d2ace.training import RunResult, load_run
from d2ace.training.config import RunConfig
from d2ace.training.split import make_problem

SETTINGS: dict[str, Any] = {
    "epochs": 9,
    "warmup": 0,
    "learning_rate": 0.03,
    "model_options": {"h": 256, "L": 1, "p": 0.0},
}


@pytest.fixture(scope="module")
def noisy() -> MultiLabelData:
    """Labels that can be learnt by heart only, so that the validation loss turns up soon."""
    data = make_multilabel(240, 60, 5, seed=3)
    flipped = np.random.default_rng(0).random(data.Y.shape) < 0.25
    labels = np.asarray(data.Y.todense() if sp.issparse(data.Y) else data.Y)
    return MultiLabelData(
        "noisy", data.X, np.where(flipped, 1 - labels, labels), data.feature_names, data.label_names
    )


def run(data: MultiLabelData, selector: str = "trim", **options: Any) -> RunResult:
    return small_run(data, selector=selector, **(SETTINGS | options))


def losses(result: RunResult) -> list[float]:
    return [entry["train_loss"] for entry in result.history]


def test_it_is_random_until_the_network_overfits(noisy: MultiLabelData) -> None:
    told: list[float] = []

    class Told(d2ace.Trim):
        def validated(self, loss: Any) -> None:
            told.append(loss)
            super().validated(loss)

    d2ace.SELECTORS["told"] = Told
    try:
        trim = run(noisy, "told", epochs=16)
    finally:
        del d2ace.SELECTORS["told"]
    assert len(told) == 16
    random = run(noisy, "random", epochs=16)
    risen = [i for i in range(1, len(told)) if told[i] > 1.01 * min(told[:i])]
    own = losses(random)
    fallen = [i for i in risen if own[i] < 0.9 * own[int(np.argmin(told[:i]))]]
    first = fallen[0] + 1  # epochs that are Random's
    assert risen[0] + 1 < first < 15, "the data do not show what they should"
    same = [one == other for one, other in zip(losses(trim), losses(random), strict=True)]
    assert same == [True] * first + [False] * (16 - first)


def test_the_loss_told_is_the_mean_cross_entropy_of_the_validation_rows(
    noisy: MultiLabelData, tmp_path: Path
) -> None:
    told: list[float] = []

    class Told(d2ace.Random):
        def validated(self, loss: Any) -> None:
            told.append(loss)

    d2ace.SELECTORS["told"] = Told
    try:
        result = run(noisy, "told", out=tmp_path / "run")
    finally:
        del d2ace.SELECTORS["told"]
    model = load_run(tmp_path / "run").model  # of the best epoch
    config = RunConfig.from_dict({**result.config, "selector": "random"})
    validation = make_problem(config, noisy).validation
    x = torch.from_numpy(np.asarray(validation.X, dtype=np.float32))
    logits = model.eval()(x).logits
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        logits, torch.from_numpy(validation.Y.toarray()).float()
    )
    assert told[result.best_epoch - 1] == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("options", [{}, {"rows": "d2ace", "window": 3}], ids=["random", "d2ace"])
def test_killed_twice_around_the_start_it_ends_the_same(
    noisy: MultiLabelData, tmp_path: Path, options: dict[str, Any]
) -> None:
    chosen = {"selector_options": {"rise": 0.0, "fall": 0.02, **options}}
    whole = run(noisy, **chosen)
    random = run(noisy, selector_options={**options, "start": 9})
    same = [one == other for one, other in zip(losses(whole), losses(random), strict=True)]
    assert 2 < same.index(False) < 7, "the data do not show what they should"

    class Killed(Exception):
        pass

    for after in range(2, 7):
        out = tmp_path / str(after)
        for stop in (after, after + 1):

            def watch(entry: dict[str, Any], stop: int = stop) -> None:
                if entry["epoch"] == stop:
                    raise Killed

            with pytest.raises(Killed):
                run(noisy, out=out, checkpoint_every=2, watch=watch, **chosen)
        resumed = run(noisy, out=out, **chosen)
        assert without_times(resumed) == without_times(whole), f"killed after epoch {after}"


def test_the_rows_may_be_those_of_another_method(noisy: MultiLabelData) -> None:
    rows = run(noisy, "active", warmup=2)
    both = run(noisy, selector_options={"rows": "active", "start": 5}, warmup=2)
    same = [one == other for one, other in zip(losses(both), losses(rows), strict=True)]
    assert same == [True] * 4 + [False] * 5
