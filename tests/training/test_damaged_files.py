"""Whatever happens to a file of a run: the right numbers, or a sentence that names the file."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from smallrun import small_run, without_times

from d2ace._util.errors import RunError, UserError
from d2ace.data import MultiLabelData
from d2ace.training import RunInterrupted, RunResult, load_run
from d2ace.training.verified import save_json

SETTINGS: dict[str, Any] = {"epochs": 3, "warmup": 1, "record": True, "batch_size": 64}
FINISHED = ("run.json", "result.json", "best.pt", "checkpoint.pt", "record.npz")
STOPPED = ("run.json", "checkpoint.pt", "unfinished/previous.pt", "best")
"""Of a run that was stopped; ``best`` are the weights that its checkpoint names."""


def numbers(result: RunResult) -> dict[str, Any]:
    """All of a result that says something about the model and how it was trained."""
    content = without_times(result)
    return {name: content[name] for name in ("test", "validation", "best_epoch", "history")}


@pytest.fixture(scope="module")
def finished(table: MultiLabelData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished")
    small_run(table, out=out, **SETTINGS)
    return out


@pytest.fixture(scope="module")
def stopped(table: MultiLabelData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that stands after two of three epochs."""
    out = tmp_path_factory.mktemp("stopped")

    def stop(entry: dict[str, Any]) -> None:
        if entry["epoch"] == 2:
            raise RunInterrupted(15, "enough")

    with pytest.raises(RunInterrupted):
        small_run(table, out=out, watch=stop, **SETTINGS)
    return out


@pytest.fixture(scope="module")
def right(finished: Path) -> dict[str, Any]:
    return numbers(RunResult.read(finished / "result.json"))


@pytest.fixture(scope="module")
def predicted(finished: Path, table: MultiLabelData) -> Any:
    return load_run(finished).predict_proba(table.X)


def place_of(out: Path, name: str) -> Path:
    if name != "best":
        return out / name
    epoch = torch.load(out / "checkpoint.pt", weights_only=True)["loop"]["best_epoch"]
    return out / "unfinished" / f"best-{epoch}.pt"


def outcome(
    table: MultiLabelData, path: Path, out: Path, right: dict[str, Any], predicted: Any
) -> str | None:
    """The sentence that a damaged file is refused with; None where all numbers are right."""
    left = path.read_bytes() if path.is_file() else None
    try:
        assert numbers(small_run(table, out=out, **SETTINGS)) == right
        assert np.array_equal(load_run(out).predict_proba(table.X), predicted)
    except (RunError, UserError) as problem:
        sentence = str(problem)
        assert str(path) in sentence or (not path.exists() and str(path.parent) in sentence)
        assert sentence.endswith(".")
        assert "\n" not in sentence
        assert (path.read_bytes() if path.is_file() else None) == left
        return sentence
    return None


def damages(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Empty, cut, with flipped bits, bytes and runs of bytes, and with lost or added ones."""
    luck = random.Random(seed)  # noqa: S311 - places, not secrets
    yield b""
    yield content[: len(content) // 2]
    yield content + b"\0"
    for number in range(count):
        place = luck.randrange(len(content))
        length = (1, 1, 64, 1)[number % 4]
        piece = content[place : place + length]
        kinds: tuple[Callable[[], bytes], ...] = (
            lambda piece=piece: bytes(255 - byte for byte in piece),
            lambda piece=piece: bytes([piece[0] ^ 1 << luck.randrange(8)]),
            lambda piece=piece: bytes(len(piece)),
            lambda: b"",
        )
        yield content[:place] + kinds[number % 4]() + content[place + length :]


def check_damages(
    table: MultiLabelData,
    whole: Path,
    name: str,
    right: dict[str, Any],
    predicted: Any,
    folder: Path,
    count: int,
) -> list[str | None]:
    content = place_of(whole, name).read_bytes()
    told = []
    for number, damaged in enumerate(damages(content, len(content), count)):
        out = folder / str(number)
        shutil.copytree(whole, out)
        path = place_of(out, name)
        path.write_bytes(damaged)
        told.append(outcome(table, path, out, right, predicted))
        shutil.rmtree(out)
    return told


@pytest.mark.parametrize("name", FINISHED)
def test_a_finished_run_with_a_damaged_file(
    table: MultiLabelData,
    finished: Path,
    tmp_path: Path,
    right: dict[str, Any],
    predicted: Any,
    name: str,
) -> None:
    told = check_damages(table, finished, name, right, predicted, tmp_path, 4)
    if name in ("run.json", "result.json", "best.pt"):
        assert None not in told[:2]  # that an empty file is not used is no accident


@pytest.mark.parametrize("name", STOPPED)
def test_a_stopped_run_with_a_damaged_file(
    table: MultiLabelData,
    stopped: Path,
    tmp_path: Path,
    right: dict[str, Any],
    predicted: Any,
    name: str,
) -> None:
    told = check_damages(table, stopped, name, right, predicted, tmp_path, 4)
    if name != "unfinished/previous.pt":  # which nobody needs as long as the newest is there
        assert None not in told[:2]


def test_a_part_that_one_wrong_bit_calls_a_folder_is_noticed(
    finished: Path, tmp_path: Path
) -> None:
    """`torch.load` reads nothing of it, and its tensor is whatever the memory held."""
    content = (finished / "best.pt").read_bytes()
    shutil.copytree(finished, tmp_path / "run")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        places, names = [archive.start_dir], archive.namelist()
    for name in names:  # 46 bytes and the name: an entry of the directory, without more
        places.append(places[-1] + 46 + len(name))
    for place, name in zip(places, names, strict=False):
        damaged = bytearray(content)
        damaged[place + 38] ^= 0x10
        (tmp_path / "run" / "best.pt").write_bytes(damaged)
        with pytest.raises(RunError, match=f"best.pt cannot be read .*{name} in it is damaged"):
            load_run(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "name"),
    [*(("finished", name) for name in FINISHED), *(("stopped", name) for name in STOPPED)],
)
def test_many_damages(
    request: pytest.FixtureRequest,
    table: MultiLabelData,
    tmp_path: Path,
    right: dict[str, Any],
    predicted: Any,
    state: str,
    name: str,
) -> None:
    whole = request.getfixturevalue(state)
    check_damages(table, whole, name, right, predicted, tmp_path, 400)


def flip_inside(path: Path, count: int = 64) -> None:
    """Flip bytes in the middle of the largest part of a file of tensors."""
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda info: info.file_size)
        start = path.read_bytes().index(archive.read(largest))
    content = bytearray(path.read_bytes())
    middle = start + largest.file_size // 2
    for place in range(middle, middle + count):
        content[place] ^= 0xFF
    path.write_bytes(content)


def test_flipped_bytes_that_torch_load_does_not_see(
    table: MultiLabelData, stopped: Path, tmp_path: Path, right: dict[str, Any], predicted: Any
) -> None:
    """And the run goes on from the checkpoint before, if one does what the sentence says."""
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    flip_inside(out / "checkpoint.pt")
    torch.load(out / "checkpoint.pt", weights_only=True)  # sees nothing
    sentence = outcome(table, out / "checkpoint.pt", out, right, predicted)
    assert sentence is not None
    assert "is damaged); it was left alone: move checkpoint.pt away to resume" in sentence
    assert f"from {out / 'unfinished/previous.pt'}, an intact one, or" in sentence
    (out / "checkpoint.pt").rename(tmp_path / "damaged.pt")
    seen: list[int] = []
    result = small_run(table, out=out, watch=lambda entry: seen.append(entry["epoch"]), **SETTINGS)
    assert seen == [2, 3]
    assert numbers(result) == right


def test_damaged_weights_of_the_best_epoch(
    table: MultiLabelData, stopped: Path, tmp_path: Path, right: dict[str, Any], predicted: Any
) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    path = place_of(tmp_path / "run", "best")
    flip_inside(path, 4)
    sentence = outcome(table, path, tmp_path / "run", right, predicted)
    assert sentence is not None
    assert "move checkpoint.pt away" in sentence
    (tmp_path / "run" / "checkpoint.pt").unlink()
    assert numbers(small_run(table, out=tmp_path / "run", **SETTINGS)) == right


def test_two_damaged_checkpoints_offer_nothing(
    table: MultiLabelData, stopped: Path, tmp_path: Path
) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    for name in ("checkpoint.pt", "unfinished/previous.pt"):
        flip_inside(tmp_path / "run" / name)
    with pytest.raises(RunError, match=r"checkpoint\.pt .*away to start afresh, or choose another"):
        small_run(table, out=tmp_path / "run", **SETTINGS)
    (tmp_path / "run" / "checkpoint.pt").unlink()
    with pytest.raises(RunError, match=r"previous\.pt cannot be read as a checkpoint"):
        small_run(table, out=tmp_path / "run", **SETTINGS)


def test_a_flipped_digit_of_a_result_is_seen_and_the_run_ends_anew(
    table: MultiLabelData, finished: Path, tmp_path: Path, right: dict[str, Any], predicted: Any
) -> None:
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    path = out / "result.json"
    score = repr(RunResult.read(path).test["macro_auc"])
    path.write_text(path.read_text().replace(score, f"0.{10 - int(score[2])}{score[3:]}"))
    sentence = outcome(table, path, out, right, predicted)
    assert sentence is not None
    assert "its checksum is that of other content); it was left alone: move it away" in sentence
    path.unlink()
    seen: list[Any] = []
    result = small_run(table, out=out, watch=seen.append, **SETTINGS)
    assert numbers(result) == right
    assert not seen  # nothing is trained again


# Whole files with other content -------------------------------------------------------------------


def parts_of(content: Any, depth: int = 2) -> Iterator[tuple[str, ...]]:
    """Where the parts of a nested table are."""
    for name in content if isinstance(content, dict) and depth else ():
        yield (name,)
        yield from ((name, *inner) for inner in parts_of(content[name], depth - 1))


def changed(content: Any, place: tuple[str, ...], change: Callable[[Any, str], None]) -> Any:
    """A copy in which one part is changed."""
    copy = dict(content)
    if len(place) > 1:
        copy[place[0]] = changed(content[place[0]], place[1:], change)
    else:
        change(copy, place[0])
    return copy


def lacking(table: dict[str, Any], name: str) -> None:
    del table[name]


def of_another_kind(table: dict[str, Any], name: str) -> None:
    table[name] = ["?"] if isinstance(table[name], str | dict) else "?"


def beside_an_unknown_one(table: dict[str, Any], name: str) -> None:
    table[f"new {name}"] = table[name]


CHANGES = [lacking, of_another_kind, beside_an_unknown_one]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["run.json", "result.json"])
def test_a_json_file_with_other_parts(
    table: MultiLabelData,
    finished: Path,
    tmp_path: Path,
    right: dict[str, Any],
    predicted: Any,
    name: str,
    change: Callable[[dict[str, Any], str], None],
) -> None:
    content = json.loads((finished / name).read_text())
    for added in ("checksum", "format"):  # by save_json
        del content[added]
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    for place in parts_of(content):
        save_json(out / name, changed(content, place, change))
        told = outcome(table, out / name, out, right, predicted)
        # A setting that is missing has its default; results of before lack scores of labels.
        spare = place[0] in ("environment", "config", "seconds") and len(place) == 2
        assert told is not None or spare or place in (("tuning",), ("per_label",)), place


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("state", "name"), [("stopped", "checkpoint.pt"), ("stopped", "best"), ("finished", "best.pt")]
)
def test_a_file_of_tensors_with_other_parts(
    request: pytest.FixtureRequest,
    table: MultiLabelData,
    tmp_path: Path,
    right: dict[str, Any],
    predicted: Any,
    state: str,
    name: str,
    change: Callable[[dict[str, Any], str], None],
) -> None:
    whole = request.getfixturevalue(state)
    content = torch.load(place_of(whole, name), weights_only=True)
    for number, place in enumerate(parts_of(content)):
        out = tmp_path / str(number)
        shutil.copytree(whole, out)
        path = place_of(out, name)
        torch.save(changed(content, place, change), path)
        told = outcome(table, path, out, right, predicted)
        # Seconds are no numbers of the model, and what resuming does not need may differ.
        assert told is not None or place[0] in ("spent", "fill") or place[-1] in SPARE, place


SPARE = (
    *("precision", "seconds", "scaler", "low", "span", "features", "feature_names"),
    "thresholds",
)


@pytest.mark.parametrize("name", ["run.json", "result.json", "checkpoint.pt", "best.pt"])
@pytest.mark.parametrize("number", [2, 0, -1, 1.5, None, "1"])
def test_another_format_is_refused(
    table: MultiLabelData, finished: Path, tmp_path: Path, name: str, number: Any
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run" / name
    if path.suffix == ".json":
        path.write_text(json.dumps(json.loads(path.read_text()) | {"format": number}))
    else:
        torch.save(torch.load(path, weights_only=True) | {"format": number}, path)
    if name in ("checkpoint.pt", "best.pt"):
        (tmp_path / "run" / "result.json").unlink()
    left = path.read_bytes()
    sentence = "has format 2, and .* up to 1: update d2ace" if number == 2 else "its format is"
    with pytest.raises(RunError, match=rf"{name} .*{sentence}.*it was left alone"):
        small_run(table, out=tmp_path / "run", **SETTINGS)
    assert path.read_bytes() == left


@pytest.mark.parametrize("content", ["[" * 100_000, '{"format": 1' + "0" * 5000 + "}", "\ud800"])
def test_json_that_no_reader_takes(
    table: MultiLabelData, finished: Path, tmp_path: Path, content: str
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    for name in ("result.json", "run.json"):
        path = tmp_path / "run" / name
        path.write_bytes(content.encode(errors="surrogatepass"))
        with pytest.raises(RunError, match=f"{name} cannot be read as"):
            small_run(table, out=tmp_path / "run", **SETTINGS)


@pytest.mark.parametrize("name", ["result.json", "best.pt"])
def test_a_pipe_or_a_folder_in_place_of_a_file_is_not_waited_for(
    finished: Path, tmp_path: Path, name: str
) -> None:
    for make in (os.mkfifo, os.mkdir):
        out = tmp_path / make.__name__
        shutil.copytree(finished, out)
        (out / name).unlink()
        make(out / name)
        with pytest.raises(RunError, match=rf"{name} cannot be read as .* \(it is no file\)"):
            load_run(out)


def test_weights_of_another_run_are_not_used(
    table: MultiLabelData, finished: Path, tmp_path: Path
) -> None:
    small_run(table, out=tmp_path, **SETTINGS | {"seed": 4})
    shutil.copy(finished / "best.pt", tmp_path / "best.pt")
    with pytest.raises(
        RunError, match=r"best\.pt belongs to another run than .*seed 0 instead of 4"
    ):
        load_run(tmp_path)


def test_a_result_of_another_run_is_not_given(
    table: MultiLabelData, finished: Path, tmp_path: Path
) -> None:
    small_run(table, out=tmp_path, **SETTINGS | {"seed": 4})
    shutil.copy(finished / "result.json", tmp_path / "result.json")
    with pytest.raises(UserError, match=r"result\.json belongs to another run \(seed 0 instead"):
        small_run(table, out=tmp_path, **SETTINGS | {"seed": 4})
