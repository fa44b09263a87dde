"""Several processes train as one would: the same global batches, the same probabilities."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from smallrun import SMALL, small_run, without_times

import d2ace
from d2ace._util.errors import RunError, UserError
from d2ace.data import MultiLabelData
from d2ace.selectors import DistributedSelector, SharedSelector
from d2ace.training import RunResult

N, Q, BATCH, EPOCHS = 101, 4, 16, 6  # the last batch has 5 rows

# Predictions here are a fixed function of instance and epoch, so that both sides see the same.
PROGRAM = """
import sys, torch, numpy as np, d2ace
from d2ace.selectors import SharedSelector

def predictions(rows, epoch):
    rows = torch.tensor(rows, dtype=torch.float64)[:, None]
    labels = torch.arange({Q}, dtype=torch.float64)
    return (3 * torch.sin(rows * (labels + 1) * 0.7 + epoch)).float()

def drawn(method, labels, features, rank, world):
    selector = d2ace.make_selector(
        method, labels, features, batch_size={BATCH}, epochs={EPOCHS}, warmup=2, seed=5,
        insights=True)
    shared = SharedSelector(selector, rank, world)
    batches, parts, P, weights = [], [], [], []
    for epoch in range(1, {EPOCHS} + 1):
        P.append(selector.probabilities.clone())
        for part in shared:
            weight = shared.loss_weight(part)
            batches.append(part.batch)
            parts.append((part.rows, part.scale))
            weights.append(None if weight is None else weight.clone())
            selector.learning_rate = 1.0 / len(batches)  # as a schedule has it, step by step
            shared.observe(part, predictions(part.rows, epoch))
        shared.share()
        shared.validated(0.4 + 0.1 * epoch + 0.1 * (rank - (world - 1) / 2))  # on rows of its own
    return batches, parts, torch.stack(P), weights, selector.insights.suspicion()
"""


def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return (rng.random((N, Q)) < 0.4).astype(np.uint8), rng.random((N, 3)).astype(np.float32)


def namespace() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(PROGRAM.format(Q=Q, BATCH=BATCH, EPOCHS=EPOCHS), names)  # noqa: S102 - our own text
    return names


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Every method driven by two real processes that talk by gloo; what each of them saw."""
    folder = tmp_path_factory.mktemp("gloo")
    script = folder / "drive.py"
    script.write_text(
        PROGRAM.format(Q=Q, BATCH=BATCH, EPOCHS=EPOCHS)
        + f"""
import os
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
rng = np.random.default_rng(0)
Y, X = (rng.random(({N}, {Q})) < 0.4).astype(np.uint8), rng.random(({N}, 3)).astype(np.float32)
seen = {{method: drawn(method, Y, X, rank, 2) for method in d2ace.SELECTORS}}
torch.save(seen, os.path.join({str(folder)!r}, f"{{rank}}.pt"))
torch.distributed.destroy_process_group()
"""
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(script)], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    ranks = [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    return {method: [rank[method] for rank in ranks] for method in d2ace.SELECTORS}


@pytest.mark.parametrize("method", list(d2ace.SELECTORS))
def test_two_processes_draw_what_one_with_twice_the_batch_draws(
    two_processes: dict[str, list[Any]], method: str
) -> None:
    labels, features = problem()
    batches, _, P, weights, suspicion = namespace()["drawn"](method, labels, features, 0, 1)
    for rank in (0, 1):
        theirs = two_processes[method][rank]
        assert theirs[0] == batches
        assert torch.equal(theirs[2], P)  # bit for bit
        assert torch.equal(theirs[4], suspicion)
    for step, batch in enumerate(batches):
        parts = [two_processes[method][rank][1][step] for rank in (0, 1)]
        assert parts[0][0] + parts[1][0] == batch
        assert sum(len(rows) for rows, _ in parts) == len(batch)
        assert sum(scale for _, scale in parts) == pytest.approx(2.0)
        if weights[step] is not None:
            both = torch.cat([two_processes[method][rank][3][step] for rank in (0, 1)])
            assert torch.equal(both, weights[step])


def test_a_batch_smaller_than_the_processes() -> None:
    labels, _ = problem()
    shares = [
        SharedSelector(d2ace.Random(labels[:3], batch_size=2, seed=1), rank, 4) for rank in range(4)
    ]
    for parts in zip(*shares, strict=True):
        counted = [row for part in parts for row in part.rows if part.scale]
        assert sorted(counted) == sorted(parts[0].batch)
        assert all(len(part.rows) == 1 for part in parts)
        assert sum(part.scale for part in parts) == pytest.approx(4.0)


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
def test_parts_are_disjoint_and_complete(world: int) -> None:
    labels, _ = problem()
    shares = [SharedSelector(d2ace.Random(labels, batch_size=20, seed=1), rank, world)
              for rank in range(world)]  # fmt: skip
    for parts in zip(*shares, strict=True):
        assert [row for part in parts if part.scale for row in part.rows] == parts[0].batch
        sizes = [len(part.rows) if part.scale else 0 for part in parts]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("shape", [(), (Q,), (1, 1), (1, Q), (20, 1), (20, Q), (20,)])
@pytest.mark.parametrize("world", [1, 3])
def test_weights_of_any_shape_are_split_by_rows(shape: tuple[int, ...], world: int) -> None:
    labels, _ = problem()
    given = torch.rand(shape)

    class Weighing(d2ace.Random):
        def loss_weight(self, index: Any) -> torch.Tensor:
            return given

    shares = [
        SharedSelector(Weighing(labels, batch_size=20, seed=1), rank, world)
        for rank in range(world)
    ]
    first = [next(iter(share)) for share in shares]
    whole = (given.unsqueeze(1) if shape == (20,) else given).expand(20, Q)
    got = [share.loss_weight(part) for share, part in zip(shares, first, strict=True)]
    for part, weight in zip(first, got, strict=True):
        assert weight is not None
        assert len(weight) == len(part.rows)
    together = torch.cat([w for w in got if w is not None])
    assert torch.equal(
        (together.unsqueeze(1) if together.ndim == 1 else together).expand(20, Q), whole
    )


def test_weights_of_labels_train(table: MultiLabelData, tmp_path: Path) -> None:
    (tmp_path / "labels.py").write_text(
        "import torch, d2ace\n\n\nclass Labels(d2ace.Random):\n"
        "    def loss_weight(self, index):\n"
        "        return torch.linspace(0.5, 1.5, self.q).unsqueeze(0)\n"
    )
    selector = f"{tmp_path / 'labels.py'}:Labels"
    weighed = small_run(table, selector=selector, epochs=2, warmup=1)
    plain = small_run(table, selector="random", epochs=2, warmup=1)
    assert weighed.history[0]["train_loss"] != plain.history[0]["train_loss"]


def test_a_state_waits_for_what_was_observed() -> None:
    labels, _ = problem()
    shared = SharedSelector(d2ace.Random(labels, batch_size=20), 0, 2)
    part = next(iter(shared))
    shared.observe(part, torch.zeros(len(part.rows), Q))
    with pytest.raises(RuntimeError, match="not been shared yet"):
        shared.state_dict()


@pytest.mark.parametrize("rank", [0, 1])
def test_waiting_observations_are_copies_of_their_own_size(rank: int) -> None:
    """Logits may be a view of much more, and the first process has no part in a batch of 1."""
    labels, _ = problem()
    shared = SharedSelector(d2ace.Random(labels, batch_size=1), rank, 2)
    part = next(iter(shared))
    shared.observe(part, torch.zeros(1000, Q)[:1])
    shared.selector.end_epoch()  # nothing of it is drawn ahead
    assert len(pickle.dumps(shared)) < len(pickle.dumps(shared.selector)) + 2000  # not 1000 rows


def test_a_loaded_state_forgets_what_was_observed_after_it() -> None:
    labels, _ = problem()
    shared = SharedSelector(d2ace.Active(labels, batch_size=20), 0, 2)
    before = shared.state_dict()
    shared.observe(part := next(iter(shared)), torch.ones(len(part.rows), Q))
    assert shared.waiting
    shared.selector.load_state_dict(before)
    shared.forget()
    after = shared.state_dict()["memory"]  # nothing waits, so that nobody else need be asked
    assert all(torch.equal(after[name], value) for name, value in before["memory"].items())


def test_a_loaded_state_forgets_what_was_drawn_after_it() -> None:
    labels, _ = problem()
    batches = DistributedSelector(d2ace.Active(labels, batch_size=20))
    before = batches.state_dict()
    rows = next(iter(batches))
    batches.load_state_dict(before)
    with pytest.raises(UserError, match="is not the one drawn next"):
        batches.observe(rows, logits=torch.ones(20, Q))


PLAIN = SMALL | {"model_options": {"h": 16, "L": 2, "p": 0.0}, "threads": None}  # no dropout


def test_training_on_two_processes_equals_twice_the_batch(table_file: Path, tmp_path: Path) -> None:
    two = d2ace.train(str(table_file), devices=2, accelerator="cpu", out=tmp_path / "two", **PLAIN)
    one = d2ace.train(str(table_file), **(PLAIN | {"batch_size": 64}))
    assert two.environment["devices"] == 2
    for mine, theirs in zip(one.history, two.history, strict=True):
        assert mine["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-4)
        assert mine["distinct_rows"] == theirs["distinct_rows"]
        assert mine["effective_rows"] == pytest.approx(theirs["effective_rows"], rel=1e-3)
    assert one.test == pytest.approx(two.test, abs=1e-3)
    again = d2ace.train(str(table_file), devices=2, out=tmp_path / "two", **PLAIN)
    assert again.to_dict() == two.to_dict()


def test_launchers_and_resuming_on_two_processes(table_file: Path, tmp_path: Path) -> None:
    """By torchrun, killed after a checkpoint in mid-epoch and started again; and by fabric run."""
    settings = ["--model", "mlp", "--epochs", "4", "--warmup", "1", "--batch-size", "16"]
    settings += ["--accelerator", "cpu", "--checkpoint-every", "1", "--json"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node=2", "-m", "d2ace"]
    fabric_run = [sys.executable, "-c", "from lightning_fabric.cli import _main; _main()", "run"]
    fabric_run += ["--devices", "2", "--accelerator", "cpu"]
    fabric_run += [str(Path(sys.executable).with_name("d2ace"))]

    def run(launcher: list[str], out: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*launcher, "train", str(table_file), *settings, "--out", str(out)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    with run(torchrun, tmp_path / "killed") as process:
        assert process.stderr is not None
        while "epoch 2/4" not in (line := process.stderr.readline()):
            assert line, "the run ended before its second epoch"
        os.killpg(process.pid, signal.SIGKILL)
    with (
        run(torchrun, tmp_path / "killed") as resumed,
        run(fabric_run, tmp_path / "whole") as whole,
    ):
        outputs = [each.communicate(timeout=180) for each in (resumed, whole)]
    assert [resumed.returncode, whole.returncode] == [0, 0], outputs
    ends = [RunResult.read(tmp_path / name / "result.json") for name in ("killed", "whole")]
    assert without_times(ends[0]) == without_times(ends[1])
    printed = json.loads(outputs[0][0])  # one process speaks for both
    assert printed.pop("still_improving") == ends[0].still_improving
    assert printed == ends[0].to_dict()


def test_errors_of_other_processes_are_reported_in_one_sentence(
    table: MultiLabelData, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"mlp has no hyperparameter 'hh'"):
        small_run(table, devices=2, accelerator="cpu", model_options={"hh": 1})
    with pytest.raises(RunError, match="The loss became infinite or NaN in epoch 1"):
        small_run(table, devices=2, accelerator="cpu", learning_rate=1e30, warmup=0)


class Unknown:
    """Stands for a function that new processes do not find."""

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (os, "nowhere")


@pytest.mark.parametrize(
    "watch", [lambda entry: None, pytest.param(Unknown(), marks=pytest.mark.slow)]
)
def test_arguments_that_new_processes_cannot_take_are_refused(
    table: MultiLabelData, watch: Any
) -> None:
    with pytest.raises(UserError, match=r"cannot be sent to new processes \(.*; define watch at"):
        small_run(table, devices=2, accelerator="cpu", watch=watch)


def test_a_script_that_is_no_file_is_reported(
    table: MultiLabelData, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__spec__", None)
    monkeypatch.setattr(main, "__file__", "<stdin>", raising=False)  # as of: python - < script
    with pytest.raises(
        UserError, match=r"but <stdin> is not a file; save the script, or use devices="
    ):
        small_run(table, devices=2, accelerator="cpu")


@pytest.mark.parametrize("devices", [99, 10**9])
def test_more_processes_than_the_machine_can_bear_are_refused(
    table: MultiLabelData, devices: int
) -> None:
    if devices <= 4 * (os.cpu_count() or 1):
        pytest.skip("this machine can bear them")
    with pytest.raises(UserError, match=rf"devices is {devices}, but the processor has \d+ core"):
        small_run(table, devices=devices, accelerator="cpu")
