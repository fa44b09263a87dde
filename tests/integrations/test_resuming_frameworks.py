"""Trainings that are stopped and resumed in fresh processes, under the real frameworks.

The batches are those of a training that was never stopped, whatever the framework counts and
however far its loader draws ahead.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning_parts
import pytest
import torch
import transformers_parts
from resuming_legs import AFTER, BEFORE, INSIDE, Stop

import d2ace

HELPERS = Path(__file__).resolve().parents[1] / "helpers"
LOOPS: dict[str, dict[str, Any]] = {
    "plain": {"framework": "plain"},
    "plain, set_epoch from 0": {"framework": "plain", "counts_from": 0},
    "plain, set_epoch from 1": {"framework": "plain", "counts_from": 1},
    "Fabric": {"framework": "fabric"},
    "Fabric, set_epoch from 1": {"framework": "fabric", "counts_from": 1},
    "accelerate": {"framework": "accelerate"},
}
WRAPPED: dict[str, dict[str, Any]] = {
    f"{name}, {form}": {**LOOPS[name], form: True}
    for name in ("Fabric", "accelerate")
    for form in ("shared", "flat")
} | {"accelerate, set_epoch from 0": {"framework": "accelerate", "counts_from": 0}}
TRAINERS: dict[str, dict[str, Any]] = {
    "Lightning": {"framework": "lightning"},
    "Hugging Face": {"framework": "checkpoint"},
    "Hugging Face, by hand": {"framework": "by hand"},
}
VARYING: dict[str, dict[str, Any]] = {
    "InfoBatch": {"method": "info_batch"},
    "DIHCL": {"method": "dihcl", "options": {"preset": "original"}},
    "longer and longer": {"options": {"draw": "epoch", "rows_per_epoch": (0.3, 1.0)}},
    "shorter and shorter": {"options": {"draw": "once", "rows_per_epoch": (1.0, 0.2)}},
}
"""Selectors whose epochs differ in their number of batches."""
Cases = dict[str, dict[str, Any]]


def drawn(script: str, cases: Cases, folder: Path) -> dict[str, Any]:
    """What each case drew: a list of batches, or a sentence that says what went wrong."""
    (folder / "cases.json").write_text(json.dumps(cases))
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", str(HELPERS / script), str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HELPERS), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return json.loads((folder / "drawn.json").read_text())


def crossed(kinds: Cases, stops: list[list[Stop]], workers: tuple[int, ...]) -> Cases:
    combinations = itertools.product(kinds, stops, workers)
    return {
        f"{kind}, {workers} workers, {stops}": {**kinds[kind], "stops": stops, "workers": workers}
        for kind, stops, workers in combinations
    }


def quick(kinds: Cases, per_epoch: int, between: str) -> Cases:
    """Stopped in an epoch and between epochs; with workers, both in one training."""
    once: list[list[Stop]] = [[(10, INSIDE)], [(2 * per_epoch, AFTER)]]
    twice: list[list[Stop]] = [[(2 * per_epoch, between), (3 * per_epoch + 3, INSIDE)]]
    return crossed(kinds, once, (0,)) | crossed(kinds, twice, (2,))


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    cases = quick(LOOPS, lightning_parts.BATCHES, BEFORE)
    return drawn("resuming_loops.py", cases, tmp_path_factory.mktemp("loops"))


@pytest.fixture(scope="module")
def trainers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    lightning = quick({"Lightning": TRAINERS["Lightning"]}, lightning_parts.BATCHES, AFTER)
    others = {name: kind for name, kind in TRAINERS.items() if name != "Lightning"}
    cases = lightning | quick(others, transformers_parts.BATCHES, AFTER)
    return drawn("resuming_trainers.py", cases, tmp_path_factory.mktemp("trainers"))


def cases_of(told: dict[str, Any], kind: str) -> dict[str, Any]:
    found = {name: rows for name, rows in told.items() if name.startswith(f"{kind}, ")}
    found = {name: rows for name, rows in found.items() if name[len(kind) + 2].isdigit()}
    assert found
    return found


@pytest.mark.parametrize("kind", LOOPS)
def test_a_loop_goes_on_with_the_batches_of_one_never_stopped(loops, kind):
    whole, _ = lightning_parts.by_hand()
    for case, rows in cases_of(loops, kind).items():
        assert rows == whole, case


@pytest.mark.parametrize("kind", TRAINERS)
def test_a_trainer_goes_on_with_the_batches_of_one_never_stopped(trainers, kind):
    if kind == "Lightning":
        whole, _ = lightning_parts.by_hand()
    else:
        whole = transformers_parts.by_hand(optimizer=plain_descent)[0]
    for case, rows in cases_of(trainers, kind).items():
        assert rows == whole, case


def plain_descent(parameters: Any) -> torch.optim.Optimizer:
    """As resuming_trainers has it."""
    return torch.optim.SGD(parameters, lr=0.5)


# Epochs of different lengths ---------------------------------------------------------------------


def ends_of_epochs(
    parts: Any, case: dict[str, Any], **options: Any
) -> tuple[list[list[int]], list[int]]:
    """The batches of a training that is never stopped, and how many of them end each epoch."""
    lengths: list[int] = []
    whole, _ = parts.by_hand(
        method=case.get("method", "d2ace"), lengths=lengths, **options, **case.get("options", {})
    )
    return whole, list(itertools.accumulate(lengths))


def stopped_everywhere(kind: dict[str, Any], ends: list[int], moments: tuple[str, ...]) -> Cases:
    """Stopped in an epoch, at the end of one, and with workers both."""
    middle = len(ends) // 2
    inside: Stop = (ends[middle] - 1, INSIDE)
    edges: list[Stop] = [(ends[middle - 1], moment) for moment in moments]
    stops: list[list[Stop]] = [[inside], *([edge] for edge in edges)]
    return crossed({"": kind}, stops, (0,)) | crossed({"": kind}, [[edges[-1], inside]], (2,))


@pytest.mark.parametrize("kind", ["plain", "Fabric", "accelerate"])
@pytest.mark.parametrize(
    "varying", ["InfoBatch", pytest.param("longer and longer", marks=pytest.mark.slow)]
)
def test_a_loop_resumes_epochs_of_different_lengths(tmp_path, kind, varying):
    case = VARYING[varying]
    whole, ends = ends_of_epochs(lightning_parts, case)
    told = drawn(
        "resuming_loops.py",
        stopped_everywhere(LOOPS[kind] | case, ends, (INSIDE, AFTER, BEFORE)),
        tmp_path,
    )
    assert [name for name, rows in told.items() if rows != whole] == []


@pytest.mark.parametrize("kind", TRAINERS)
@pytest.mark.parametrize(
    "varying",
    [
        case if case == "longer and longer" else pytest.param(case, marks=pytest.mark.slow)
        for case in VARYING
    ],
)
def test_a_trainer_resumes_epochs_of_different_lengths(tmp_path, kind, varying):
    case = VARYING[varying]
    if kind == "Lightning":
        whole, ends = ends_of_epochs(lightning_parts, case)
    else:
        whole, ends = ends_of_epochs(transformers_parts, case, optimizer=plain_descent)
    told = drawn(
        "resuming_trainers.py",
        stopped_everywhere(TRAINERS[kind] | case, ends, (INSIDE, AFTER)),
        tmp_path,
    )
    assert [name for name, rows in told.items() if rows != whole] == []


# All of it --------------------------------------------------------------------------------------


def everywhere(per_epoch: int, moments: tuple[str, ...]) -> list[list[Stop]]:
    edges: list[Stop] = [(2 * per_epoch, moment) for moment in moments]
    stops: list[list[Stop]] = [[], [(3, INSIDE)], [(10, INSIDE)], *([edge] for edge in edges)]
    stops += [[edge, (3 * per_epoch + 3, INSIDE)] for edge in edges]
    stops += [[(10, INSIDE), (12, INSIDE)], [(10, INSIDE), (3 * per_epoch, moments[-1])]]
    return stops


@pytest.mark.slow
def test_loops_of_every_kind_stopped_everywhere(tmp_path):
    stops = everywhere(lightning_parts.BATCHES, (INSIDE, AFTER, BEFORE))
    told = drawn("resuming_loops.py", crossed(LOOPS | WRAPPED, stops, (0, 2)), tmp_path)
    whole, _ = lightning_parts.by_hand()
    assert [name for name, rows in told.items() if rows != whole] == []


@pytest.mark.slow
@pytest.mark.parametrize("method", list(d2ace.SELECTORS))
def test_every_method_resumes_in_every_loop(tmp_path, method):
    kinds = {name: {**kind, "method": method} for name, kind in LOOPS.items()}
    told = drawn("resuming_loops.py", quick(kinds, lightning_parts.BATCHES, BEFORE), tmp_path)
    whole, _ = lightning_parts.by_hand(method)
    assert [name for name, rows in told.items() if rows != whole] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRAINERS)
def test_trainers_stopped_everywhere(tmp_path, kind):
    parts: Any = lightning_parts if kind == "Lightning" else transformers_parts
    options = {} if kind == "Lightning" else {"optimizer": plain_descent}
    stops = everywhere(parts.BATCHES, (INSIDE, AFTER))
    told = drawn("resuming_trainers.py", crossed({kind: TRAINERS[kind]}, stops, (0, 2)), tmp_path)
    whole, _ = parts.by_hand(**options)
    assert [name for name, rows in told.items() if rows != whole] == []


# A loop that leaves epochs early -----------------------------------------------------------------


def cut_short(prepare: Callable[[Any], Any], *, ends: bool, batches: int = 3) -> list[int]:
    """The epoch that the selector is in at each batch."""
    selector = lightning_parts.make_selector("active")
    loader = prepare(lightning_parts.make_loader(selector))
    epochs = []
    for _ in range(3):
        for number, (index, x, _) in enumerate(loader, start=1):
            epochs.append(selector.epoch)
            selector.observe(index, logits=x[:, :4])
            if number == batches:
                break
        if ends:
            selector.end_epoch()
    return epochs


@pytest.mark.parametrize("batches", [3, 7])
@pytest.mark.parametrize("framework", ["plain", "fabric", "accelerate"])
def test_epochs_that_a_loop_ends_early_are_counted(framework, batches):
    """Accelerate counts an epoch once its loader came to the end, and would stay in the first."""
    if framework == "fabric":
        from lightning.fabric import Fabric

        prepare: Callable[[Any], Any] = Fabric(accelerator="cpu", devices=1).setup_dataloaders
    elif framework == "accelerate":
        from accelerate import Accelerator

        prepare = Accelerator(cpu=True).prepare
    else:

        def prepare(loader: Any) -> Any:
            return loader

    epochs = cut_short(prepare, ends=True, batches=batches)
    assert epochs == [epoch for epoch in (1, 2, 3) for _ in range(batches)]


def test_an_epoch_that_accelerate_begins_again_is_reported():
    from accelerate import Accelerator

    with pytest.warns(UserWarning, match=r"Epoch 1 of Active, left .*call selector.end_epoch\(\)"):
        cut_short(Accelerator(cpu=True).prepare, ends=False)
