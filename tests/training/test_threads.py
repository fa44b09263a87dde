"""Trainings in threads of one process: each gives the numbers it gives alone."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from smallrun import small_run, without_times

import d2ace
from d2ace.data import MultiLabelData
from d2ace.training import RunResult

KINDS: list[dict[str, Any]] = [
    {"seed": 1},
    {"model": "clif", "model_options": {"h": 32, "e": 8}, "threads": 2},
    {"seed": 2, "precision": "64-true"},
]


def side_by_side(*work: Callable[[], Any]) -> list[Any]:
    """What each returns when they begin together, a thread for each."""
    start = threading.Barrier(len(work))

    def begin(one: Callable[[], Any]) -> Any:
        start.wait()
        return one()

    with ThreadPoolExecutor(len(work)) as threads:
        return list(threads.map(begin, work))


def test_trainings_in_threads_give_the_numbers_they_give_alone(table: MultiLabelData) -> None:
    alone = [small_run(table, **kind) for kind in KINDS]
    together = side_by_side(*(lambda kind=kind: small_run(table, **kind) for kind in KINDS))
    for one, other in zip(alone, together, strict=True):
        assert without_times(one) == without_times(other)


def states() -> list[Any]:
    """What a program may have set for itself."""
    return [
        torch.get_rng_state().tolist(),
        str(np.random.get_state()),  # noqa: NPY002 - the global one is what is asked about
        random.getstate(),
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
    ]


def test_randomness_of_the_caller_is_untouched_between_steps(table: MultiLabelData) -> None:
    """Also what is seeded or drawn while a run goes on stays so."""
    seen: list[list[Any]] = []

    def draw(entry: dict[str, Any]) -> None:
        seen.append([torch.rand(3).tolist(), torch.get_num_threads()])
        torch.manual_seed(entry["epoch"])

    torch.manual_seed(0)
    threads = torch.get_num_threads()
    undisturbed = without_times(small_run(table, threads=2))
    before = states()
    result = without_times(small_run(table, threads=2, watch=draw))
    assert result == undisturbed
    expected = []
    torch.manual_seed(0)
    for epoch in range(1, 6):
        expected.append([torch.rand(3).tolist(), threads])
        torch.manual_seed(epoch)
    assert seen == expected
    assert states()[1:] == before[1:]


def test_a_run_loaded_in_another_thread_disturbs_nothing(
    table: MultiLabelData, tmp_path: Path
) -> None:
    small_run(table, out=tmp_path)
    alone = without_times(small_run(table, epochs=20))
    ended = threading.Event()

    def train() -> RunResult:
        try:
            return small_run(table, epochs=20)
        finally:
            ended.set()

    def look() -> int:
        loaded = 0
        while not ended.is_set():
            d2ace.load_run(tmp_path).predict_proba(np.asarray(table.X))
            loaded += 1
        return loaded

    result, loaded = side_by_side(train, look)
    assert loaded
    assert without_times(result) == alone


@pytest.mark.parametrize("wait", [True, False], ids=["joined", "not joined"])
def test_a_training_that_waits_for_another_one_ends(table: MultiLabelData, wait: bool) -> None:
    """A watch may start trainings of its own, in this thread or in another."""
    alone = without_times(small_run(table, seed=1))
    inner: list[dict[str, Any]] = []

    def start(entry: dict[str, Any]) -> None:
        if entry["epoch"] == 2:
            one = threading.Thread(
                target=lambda: inner.append(without_times(small_run(table, seed=1)))
            )
            one.start()
            begun.append(one)
            if wait:
                one.join()

    begun: list[threading.Thread] = []
    outer = small_run(table, watch=start)
    begun[0].join()
    assert inner == [alone]
    assert without_times(outer) == without_times(small_run(table))
