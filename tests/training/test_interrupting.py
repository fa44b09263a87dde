"""Runs that are killed, stopped, or find something else in their folder."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from smallrun import SMALL, small_run, without_times

from d2ace._util.errors import RunError, UserError
from d2ace.data import MultiLabelData
from d2ace.training import RunInterrupted, RunResult, folder

SETTINGS = SMALL | {
    "model": "clif",
    "model_options": {"h": 32, "e": 8},
    "epochs": 6,
    "record": True,
    "insights": True,
    "checkpoint_every": 1,
}

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["d2ace.training.loop", "d2ace.training.tuning"])


def whole_run(path: Path, out: Path, selector: str, steps_to_live: int | None = None) -> None:
    """The life of a process that is killed from outside, or kills itself at a step."""
    import d2ace
    from d2ace.training import verified as files

    if steps_to_live is not None:
        left = steps_to_live
        sync = os.fsync

        def dying_sync(handle: int) -> None:  # the worst moments are those around a write
            nonlocal left
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            sync(handle)

        files.os.fsync = dying_sync
    d2ace.train(str(path), selector=selector, out=out, **SETTINGS)


def same_end(one: Path, two: Path) -> None:
    results = [without_times(RunResult.read(folder / "result.json")) for folder in (one, two)]
    assert results[0] == results[1]
    for name, key in (("best.pt", "weights"), ("checkpoint.pt", "loop"), ("insights.pt", "state")):
        first, second = (torch.load(each / name, weights_only=True) for each in (one, two))
        equal_states(first[key], second[key])
    assert (one / "record.npz").read_bytes() == (two / "record.npz").read_bytes()


def equal_states(one: Any, two: Any) -> None:
    """The same tensors bit for bit, leaving out how long things took."""
    if isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one.keys() - {"seconds", "history"}:
            equal_states(one[key], two[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(two)
        for first, second in zip(one, two, strict=True):
            equal_states(first, second)
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, two) or bool(one.isnan().any())
        assert torch.equal(one.isnan(), two.isnan())
    else:
        assert one == two


@pytest.fixture(scope="module")
def undisturbed(
    table_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    folders: dict[str, Path] = {}

    def folder(selector: str) -> Path:
        if selector not in folders:
            folders[selector] = tmp_path_factory.mktemp("undisturbed") / selector
            whole_run(table_file, folders[selector], selector)
        return folders[selector]

    return folder


def killed_run(table_file: Path, out: Path, selector: str, kills: int, seed: int) -> None:
    """Kill processes at random moments, most of them while something is written."""
    luck = random.Random(seed)  # noqa: S311 - moments, not secrets
    for _ in range(kills):
        steps = luck.randint(1, 9) if luck.random() < 0.7 else None
        process = CONTEXT.Process(target=whole_run, args=(table_file, out, selector, steps))
        process.start()
        process.join(None if steps else luck.uniform(0.0, 1.5))
        process.kill()
        process.join()
        assert process.exitcode in (-signal.SIGKILL, 0)
    process = CONTEXT.Process(target=whole_run, args=(table_file, out, selector))
    process.start()
    process.join()
    assert process.exitcode == 0


@pytest.mark.parametrize("selector", ["d2ace", "balance"])
def test_killed_at_random_moments(
    table_file: Path, tmp_path: Path, selector: str, undisturbed: Callable[[str], Path]
) -> None:
    killed_run(table_file, tmp_path / "run", selector, kills=4, seed=len(selector))
    same_end(undisturbed(selector), tmp_path / "run")
    assert not (tmp_path / "run" / "unfinished").exists()


@pytest.mark.slow
@pytest.mark.parametrize("selector", ["random", "recent", "dihcl", "hard_imb", "ml_unc", "d2ace"])
def test_killed_at_many_random_moments(
    table_file: Path, tmp_path: Path, selector: str, undisturbed: Callable[[str], Path]
) -> None:
    for round_number in range(3):
        out = tmp_path / str(round_number)
        killed_run(table_file, out, selector, kills=9, seed=round_number)
        same_end(undisturbed(selector), out)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_signals_save_and_stop(table: MultiLabelData, tmp_path: Path, signum: int) -> None:
    def ask(entry: dict[str, Any]) -> None:
        if entry["epoch"] == 2:
            os.kill(os.getpid(), signum)

    before = signal.getsignal(signum)
    with pytest.raises(RunInterrupted, match="in epoch 3 of 5; the same command resumes"):
        small_run(table, out=tmp_path / "a", watch=ask)
    assert signal.getsignal(signum) is before
    resumed = small_run(table, out=tmp_path / "a")
    assert without_times(resumed) == without_times(small_run(table, out=tmp_path / "b"))


@pytest.mark.parametrize(
    "options", [["--threads", "1"], ["--devices", "2", "--accelerator", "cpu"]], ids=["one", "two"]
)
def test_a_signal_in_the_middle_of_an_epoch(
    table_file: Path, tmp_path: Path, options: list[str]
) -> None:
    command = [sys.executable, "-m", "d2ace", "train", str(table_file), "--model", "mlp"]
    command += ["--epochs", "100000", "--out", str(tmp_path / "run"), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "epoch 3/" not in (line := process.stderr.readline()):
            assert line, "the run ended before its third epoch"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert "Stopped by SIGTERM in epoch" in errors.splitlines()[-1]
    assert (tmp_path / "run" / "checkpoint.pt").exists()


def test_a_signal_ends_a_run_without_a_folder_and_nothing_else(table_file: Path) -> None:
    """Also one in a program that has processes of its own."""
    program = f"""
import multiprocessing, os, signal, d2ace

def ask(entry):
    print("child", child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

child = multiprocessing.get_context("fork").Process(target=signal.pause)
child.start()
d2ace.train({str(table_file)!r}, "mlp", epochs=3, warmup=1, watch=ask)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline().split()[1])
        assert process.wait() == -signal.SIGTERM
        os.kill(child, signal.SIGKILL)  # which is still there, and holds the output open
        assert process.stdout.read() == ""


def test_a_finished_run_is_not_trained_again(table: MultiLabelData, tmp_path: Path) -> None:
    first = small_run(table, out=tmp_path)
    seen: list[Any] = []
    assert small_run(table, out=tmp_path, watch=seen.append).to_dict() == first.to_dict()
    assert not seen
    again = small_run(table, out=tmp_path, watch=seen.append, resume=False)
    assert len(seen) == 5
    assert without_times(again) == without_times(first)


def test_a_folder_of_another_run_is_left_alone(table: MultiLabelData, tmp_path: Path) -> None:
    small_run(table, out=tmp_path)
    content = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match=r"another run \(seed 0 instead of 1\); it was left alone"):
        small_run(table, out=tmp_path, seed=1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == content


def stopped(table: MultiLabelData, out: Path) -> Path:
    """A run that stands after two epochs; its checkpoint."""

    def stop(entry: dict[str, Any]) -> None:
        if entry["epoch"] == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(RunInterrupted):
        small_run(table, out=out, watch=stop)
    return out / "checkpoint.pt"


@pytest.mark.parametrize("damage", ["truncated", "empty", "text", "flipped", "foreign", "list"])
def test_a_damaged_checkpoint_is_named_and_left_alone(
    table: MultiLabelData, tmp_path: Path, damage: str
) -> None:
    checkpoint = stopped(table, tmp_path / "run")
    content = checkpoint.read_bytes()
    if damage == "truncated":
        checkpoint.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        checkpoint.write_bytes(b"")
    elif damage == "text":
        checkpoint.write_text("epoch: 2")
    elif damage == "flipped":
        checkpoint.write_bytes(bytes(255 - byte for byte in content))
    elif damage == "foreign":
        torch.save({"model": torch.zeros(3)}, checkpoint)
    else:
        torch.save([1, 2], checkpoint)
    left = checkpoint.read_bytes()
    with pytest.raises(RunError, match=r"checkpoint.pt .*left alone.*another folder with out"):
        small_run(table, out=tmp_path / "run")
    assert checkpoint.read_bytes() == left


def test_nothing_in_a_checkpoint_is_executed(table: MultiLabelData, tmp_path: Path) -> None:
    checkpoint = stopped(table, tmp_path / "run")
    trap = tmp_path / "executed"

    class Trap:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.mkdir, (str(trap),)

    torch.save({"format": 1, "loop": Trap()}, checkpoint)
    with pytest.raises(RunError, match="cannot be read as a checkpoint"):
        small_run(table, out=tmp_path / "run")
    assert not trap.exists()


def test_other_data_under_the_same_name_is_refused(table: MultiLabelData, tmp_path: Path) -> None:
    checkpoint = stopped(table, tmp_path / "run")
    left = checkpoint.read_bytes()
    X = table.X.copy()
    X[0, 0] += 1
    changed = MultiLabelData(table.name, X, table.Y, table.feature_names, table.label_names)
    with pytest.raises(RunError, match="saved with other data than"):
        small_run(changed, out=tmp_path / "run")
    assert checkpoint.read_bytes() == left


def test_a_checkpoint_without_description_is_refused(table: MultiLabelData, tmp_path: Path) -> None:
    stopped(table, tmp_path / "run")
    (tmp_path / "run" / "run.json").unlink()
    with pytest.raises(RunError, match=r"holds checkpoint\.pt without run\.json"):
        small_run(table, out=tmp_path / "run")


def test_missing_weights_are_named(table: MultiLabelData, tmp_path: Path) -> None:
    stopped(table, tmp_path / "run")
    for path in (tmp_path / "run" / "unfinished").glob("best-*.pt"):
        path.unlink()
    with pytest.raises(RunError, match="weights of the best epoch, is missing"):
        small_run(table, out=tmp_path / "run")


def full_disk_run(path: Path, out: Path, allowed: int, answer: Any) -> None:
    """A run whose files may not grow beyond ``allowed`` bytes, as on a full disk."""
    import d2ace

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (allowed, resource.RLIM_INFINITY))
    try:
        d2ace.train(str(path), selector="d2ace", out=out, **SETTINGS)
    except RunError as problem:
        answer.put(str(problem))


def test_a_full_disk_is_named_and_what_was_saved_survives(
    table_file: Path, tmp_path: Path, undisturbed: Callable[[str], Path]
) -> None:
    out = tmp_path / "run"
    checkpoint = stopped_by_kill(table_file, out)
    saved = checkpoint.read_bytes()
    answer = CONTEXT.SimpleQueue()
    process = CONTEXT.Process(target=full_disk_run, args=(table_file, out, 5000, answer))
    process.start()
    process.join()
    assert "could not be written (File too large); free some space or" in answer.get()
    assert checkpoint.read_bytes() == saved
    assert not list(out.glob(".*.tmp"))
    whole_run(table_file, out, "d2ace")
    same_end(undisturbed("d2ace"), out)


def stopped_by_kill(table_file: Path, out: Path) -> Path:
    process = CONTEXT.Process(target=whole_run, args=(table_file, out, "d2ace", 30))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    return out / "checkpoint.pt"


def test_a_result_that_is_none_is_named(table: MultiLabelData, tmp_path: Path) -> None:
    small_run(table, out=tmp_path)
    (tmp_path / "result.json").write_text(json.dumps({"format": 7}))
    with pytest.raises(RunError, match=r"result\.json cannot be read as the result of a run"):
        small_run(table, out=tmp_path)


def test_a_finished_run_with_other_data_is_refused(table: MultiLabelData, tmp_path: Path) -> None:
    small_run(table, out=tmp_path)
    X = table.X + 1.0
    X[0, 0] += 1
    changed = MultiLabelData(table.name, X, table.Y, table.feature_names, table.label_names)
    with pytest.raises(RunError, match=r"result\.json was saved with other data"):
        small_run(changed, out=tmp_path)


@pytest.mark.parametrize("kind", ["feature_names", "label_names"])
@pytest.mark.parametrize("ended", [True, False], ids=["finished", "stopped"])
def test_a_run_whose_data_got_other_names_is_refused(
    table: MultiLabelData, tmp_path: Path, kind: str, ended: bool
) -> None:
    """Or it would predict under the names of before."""
    if ended:
        small_run(table, out=tmp_path)
    else:
        stopped(table, tmp_path)
    content = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    names = tuple(f"other {name}" for name in getattr(table, kind))
    renamed = dataclasses.replace(table, **{kind: names})
    words = f"saved with other {kind.replace('_', ' ')} than {table.name} has now; it was left"
    with pytest.raises(RunError, match=words):
        small_run(renamed, out=tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == content
    assert small_run(table, out=tmp_path).best_epoch


def test_the_number_of_processes_belongs_to_a_run(table: MultiLabelData, tmp_path: Path) -> None:
    small_run(table, out=tmp_path)
    with pytest.raises(UserError, match=r"saved by 1 process\(es\), but"):
        small_run(table, out=tmp_path, devices=2, accelerator="cpu")


def test_files_of_others_stay(table: MultiLabelData, tmp_path: Path) -> None:
    others = [tmp_path / name for name in ("best_resnet.pt", "best-one.pt", "notes.json")]
    for path in others:
        path.write_text("mine")
    small_run(table, out=tmp_path)
    small_run(table, out=tmp_path, resume=False)
    assert [path.read_text() for path in others] == ["mine"] * 3
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "best.pt").write_text("mine")
    with pytest.raises(RunError, match=r"holds best\.pt without run\.json"):
        small_run(table, out=elsewhere, resume=False)
    assert (elsewhere / "best.pt").read_text() == "mine"


def test_one_process_at_a_time_in_a_folder(
    table: MultiLabelData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "PATIENCE", 0.1)
    refused: list[str] = []

    def intrude(entry: dict[str, Any]) -> None:
        shutil.copytree(tmp_path / "run", tmp_path / f"backup {entry['epoch']}")
        with pytest.raises(RunError, match="Another process is training in") as error:
            small_run(table, out=tmp_path / "run")
        refused.append(str(error.value))

    small_run(table, out=tmp_path / "run", watch=intrude)
    assert len(refused) == 5


def test_tuning_leaves_another_run_alone(table: MultiLabelData, tmp_path: Path) -> None:
    small_run(table, out=tmp_path)
    before = (tmp_path / "result.json").read_bytes()
    with pytest.raises(UserError, match="holds the result of another run"):
        small_run(table, out=tmp_path, tune=True, seed=7)
    assert (tmp_path / "result.json").read_bytes() == before


def test_a_copied_folder_goes_on_elsewhere(table: MultiLabelData, tmp_path: Path) -> None:
    stopped(table, tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "moved")
    resumed = small_run(table, out=tmp_path / "moved")
    assert without_times(resumed) == without_times(small_run(table))
