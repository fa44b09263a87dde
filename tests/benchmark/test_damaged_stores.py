"""Damaged stores and result files: a sentence that names the file, which is left alone."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import report_data
from made_runs import result, spec

from d2ace._util.errors import UserError
from d2ace.benchmark.plan.grid import load_grid, make_grid
from d2ace.benchmark.plan.specs import RunSpec
from d2ace.benchmark.store.database import Store
from d2ace.benchmark.store.file import RUN, checksum
from d2ace.report import compare, published, sections
from d2ace.report.collect import collect


def filled(path: Path) -> Store:
    """Finished runs with and without a recording, two labels of one run, and a failure."""
    store = Store(path)
    for seed in range(4):
        run = spec(seed=seed, record=seed == 1)
        recorded = report_data.recording(run, report_data.LABELS) if seed == 1 else None
        store.add(run, result(run, 0.8 + seed / 97), recorded)
    store.link([spec("K=6", "sweep", selector_options={"neighbors": 6})])
    store.fail(spec(seed=9), "it was killed")
    return store


def everything(path: Path, *, read_only: bool = True) -> Any:
    """All that a store tells."""
    with Store(path, read_only=read_only) as store:
        runs = store.runs(status=None)
        recordings = [store.recording(run.id) or {} for run in runs]
        return (
            runs,
            [{name: array.tolist() for name, array in one.items()} for one in recordings],
            store.studies(),
            store.mean_seconds(),
            [store.status(spec(seed=seed)) for seed in range(10)],
        )


def altered(path: Path, *statements: str) -> None:
    """The store after somebody was at it with SQLite."""
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def vouched_for(path: Path) -> None:
    """The store with checksums that are right, as somebody who knows how would make them."""
    connection = sqlite3.connect(path)
    for row in connection.execute(f"SELECT id, {', '.join(RUN)} FROM runs").fetchall():  # noqa: S608
        number, *values = row
        connection.execute("UPDATE runs SET checksum = ? WHERE id = ?", (checksum(*values), number))
    connection.commit()
    connection.close()


# Flipped bytes ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_give_a_sentence_or_change_nothing(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "runs.db"
    filled(path).close()
    whole, content = everything(path), path.read_bytes()
    draw = random.Random(seed)  # noqa: S311
    refused = []
    for _ in range(40):
        damaged = bytearray(content)
        at = draw.randrange(len(content) - 8)
        for place in range(at, at + draw.choice([1, 1, 8])):
            damaged[place] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        try:
            assert everything(path, read_only=draw.random() < 0.5) == whole
        except UserError as error:
            refused.append(str(error))
            left_alone = path.read_bytes() == damaged
            assert left_alone
            assert [file.name for file in tmp_path.iterdir()] == ["runs.db"]
    assert len(refused) > 10
    assert all("runs.db" in sentence and "\n" not in sentence for sentence in refused)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE runs SET result = replace(result, '0.8', '0.9')", "is not as it was stored"),
        ("UPDATE runs SET fold = 3", "is not as it was stored"),
        ("UPDATE runs SET status = 'failed' WHERE status = 'finished'", "is not as it was"),
        ("UPDATE runs SET recording = zeroblob(9) WHERE recording NOTNULL", "is not as it was"),
        ("UPDATE memberships SET method = 'Random'", "the label 'Random' is not as it was stored"),
        ("UPDATE memberships SET run_id = 2 WHERE study = 'sweep'", "is not as it was stored"),
        ("ALTER TABLE runs DROP COLUMN result", "its table runs lacks result"),
        ("ALTER TABLE runs RENAME TO walks", "it has no table runs"),
        ("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END", "a trigger t"),
        ("CREATE VIEW v AS SELECT * FROM runs", "a view v"),
        ("UPDATE runs SET dataset = x'ff00'", "dataset in its table runs"),
    ],
)
@pytest.mark.parametrize("read_only", [True, False])
def test_changes_made_outside_are_reported(
    tmp_path: Path, statement: str, said: str, read_only: bool
) -> None:
    path = tmp_path / "runs.db"
    filled(path).close()
    altered(path, statement)
    before = path.read_bytes()
    with pytest.raises(
        UserError, match=rf"runs\.db cannot be read: .*{said}.*left alone: .*--from"
    ):
        Store(path, read_only=read_only)
    assert path.read_bytes() == before


def at(content: Any, *keys: Any, value: Any) -> Any:
    """The content with one thing in it replaced, or without it where the value is Ellipsis."""
    copy = json.loads(json.dumps(content))
    place = copy
    for key in keys[:-1]:
        place = place[key]
    if value is ...:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("column", "keys", "value"),
    [
        ("result", ("test", "macro_auc"), "high"),
        ("result", ("test",), ...),
        ("result", ("dataset", "train"), 0),
        ("result", ("dataset", "test"), ...),
        ("result", ("history",), {}),
        ("result", ("history", 0), 3),
        ("result", ("history", 1, "seconds"), 3),
        ("result", ("history", 1, "train_loss"), {}),
        ("result", ("environment",), [1]),
        ("result", ("seconds",), None),
        ("config", ("weight_decay",), ...),
        ("config", ("selector_options",), 3),
        ("config", ("monitor",), "luck"),
        ("config", ("data",), None),
        ("config", ("selector_source",), 5),
    ],
)
def test_runs_whose_parts_do_not_fit_are_reported(
    tmp_path: Path, column: str, keys: tuple[Any, ...], value: Any
) -> None:
    path = tmp_path / "runs.db"
    run = spec()
    with Store(path) as store:
        store.add(run, result(run))
    content = {"result": result(run), "config": run.config}[column]
    text = json.dumps(at(content, *keys, value=value)).replace("'", "''")
    altered(path, f"UPDATE runs SET {column} = '{text}'")  # noqa: S608
    vouched_for(path)
    with (
        Store(path, read_only=True) as store,
        pytest.raises(
            UserError, match=rf"runs\.db cannot be read: the run {run.key} (has|lacks|is)"
        ),
    ):
        collect(store)


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": NaN}', "[" * 5000])
def test_invalid_json_is_reported(tmp_path: Path, text: str) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        store.add(spec(), result(spec()))
    altered(path, f"UPDATE runs SET config = '{text}'")  # noqa: S608
    vouched_for(path)
    with (
        Store(path, read_only=True) as store,
        pytest.raises(UserError, match=r"cannot be read: the run \w+ holds"),
    ):
        store.runs()


def test_odd_options_of_a_sweep_are_shown_as_they_are(tmp_path: Path) -> None:
    odd: list[Any] = [None, True, "x", [], ["a", 1], [[1]], {"a": [{}]}, 10**30]
    with Store(tmp_path / "runs.db") as store:
        for value in odd:
            options = {"neighbors": value}
            run = RunSpec("sweep", str(value), {"data": "yeast", "selector_options": options})
            store.add(run, result(run))
        run = RunSpec("sweep", "nothing varied", {"data": "yeast"})
        store.add(run, result(run))
        (sweep,) = collect(store).sweeps
        assert len(sweep.points) == len(odd)
        sections.build(collect(store), published.load(None))
        compare(store, store)


# Recordings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content: content[:-40], "cannot be read"),
        (lambda content: b"", "cannot be read"),
        (lambda content: b"PK", "cannot be read"),
        (lambda content: without(content, "P.npy"), "without P"),
        (lambda content: without(content, "outlier.npy", "rows.npy"), "outlier does not fit"),
    ],
)
def test_a_recording_that_is_none_is_reported(
    tmp_path: Path, change: Callable[[bytes], bytes], said: str
) -> None:
    run = spec(record=True)
    with Store(tmp_path / "runs.db") as store:
        content = report_data.recording(run, report_data.LABELS)
        store.add(run, result(run), change(content))
        with pytest.raises(UserError, match=rf"runs\.db .*{run.key} has a recording .*{said}"):
            sections.build(collect(store), published.load(None))


def without(content: bytes, name: str, instead: str | None = None) -> bytes:
    """An archive without a member, or with a cut copy of another in its place."""
    import numpy as np

    with np.load(io.BytesIO(content)) as arrays:
        kept = dict(arrays)
    del kept[name.removesuffix(".npy")]
    if instead is not None:
        kept[name.removesuffix(".npy")] = kept[instead.removesuffix(".npy")][:-1]
    file = io.BytesIO()
    np.savez(file, **kept)
    return file.getvalue()


# Files that runs are taken from -------------------------------------------------------------


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    with filled(tmp_path / "from.db") as store:
        store.export(tmp_path / "results.csv")
    return tmp_path / "results.csv"


def edited(path: Path, line: int, **fields: str) -> None:
    """The file with other fields in one of its lines."""
    csv.field_size_limit(2**31 - 1)
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    csv.field_size_limit(131072)
    rows[line] |= fields
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def config_with(**changes: Any) -> str:
    return json.dumps({**spec().config, **changes})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"key": "0" * 64}, "the configuration is not that of the run 000000000000"),
        ({"config": config_with(seed=77)}, "the configuration is not that of the run"),
        ({"config": "x" * 200_000}, "Expecting value"),
        ({"config": "{}"}, "name or path of its data"),
        ({"config": "[]"}, "unsupported operand"),
        ({"config": config_with(seed=2**63)}, "for the setting seed"),
        ({"memberships": "[]"}, "no study and method"),
        ({"memberships": '[["main", 3, {}]]'}, "called by words"),
        ({"memberships": '[["main", "A", {}, 3]]'}, "own values"),
        ({"memberships": '[["main", "A", {}, {}, {}]]'}, "positional argument"),
        ({"test_macro_auc": "0.8l"}, "could not convert"),
        ({"size_train": ""}, "training and test rows"),
        ({"status": "almost"}, "status is 'almost'"),
    ],
)
def test_of_a_file_with_a_bad_line_nothing_is_taken(
    tmp_path: Path, exported: Path, fields: dict[str, str], said: str
) -> None:
    edited(exported, 3, **fields)
    before = exported.read_bytes()
    with Store(tmp_path / "to.db") as store:
        run = spec(seed=1, record=True)
        store.fail(run, "failed here")
        with pytest.raises(UserError, match=rf"results\.csv, line 5: .*{said}"):
            store.import_(exported)
        (left,) = store.runs(status=None)
        assert (left.key, left.error) == (run.key, "failed here")
    assert exported.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: len(text) // 2], r"results\.csv"),
        (lambda text: text + '"', r"results\.csv cannot be read"),
        (lambda text: text.replace("{", '"{', 1), r"results\.csv"),
        (lambda text: text.replace(",finished,", ",fin\0shed,", 1), r"results\.csv"),
        (lambda text: text.replace("test_macro_auc", "test_macro_auk"), "column test_macro_auk"),
        (lambda text: text + text.splitlines()[1].replace("finished", "failed"), "take one out"),
        (lambda text: text.rstrip() + ",more\n", "as many fields as there are columns"),
        (lambda text: "", "not a results file"),
    ],
)
def test_a_damaged_results_file_is_reported(
    tmp_path: Path, exported: Path, change: Callable[[str], str], said: str
) -> None:
    exported.write_text(change(exported.read_text(encoding="utf-8")), encoding="utf-8")
    with Store(tmp_path / "to.db") as store:
        with pytest.raises(UserError, match=said):
            store.import_(exported)
        assert store.runs(status=None) == []


def test_long_fields_are_taken(tmp_path: Path) -> None:
    """An option may be a table of neighbours, with more numbers than csv takes by itself."""
    run = spec(selector_options={"neighbors": [[7, 8, 9]] * 17_000})
    limit = csv.field_size_limit()
    with Store(tmp_path / "one.db") as one, Store(tmp_path / "two.db") as two:
        one.add(run, result(run))
        one.export(tmp_path / "results.csv")
        assert two.import_(tmp_path / "results.csv") == 1
        assert two.has(run)
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize("name", ["curves.csv.gz", "recordings.zip"])
@pytest.mark.parametrize("seed", range(10))
def test_flipped_bytes_beside_a_results_file_are_reported(
    tmp_path: Path, exported: Path, name: str, seed: int
) -> None:
    path = exported.with_name(name)
    with Store(tmp_path / "whole.db") as store:
        store.import_(exported)
    damaged = bytearray(path.read_bytes())
    draw = random.Random(seed)  # noqa: S311
    damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
    path.write_bytes(damaged)
    with Store(tmp_path / "to.db") as store:
        try:
            store.import_(exported)
        except UserError as error:
            sentence = str(error)
            assert store.runs(status=None) == []
            assert name in sentence
            return
    assert everything(tmp_path / "to.db") == everything(tmp_path / "whole.db")


def test_other_content_beside_a_results_file_is_reported(tmp_path: Path, exported: Path) -> None:
    with Store(tmp_path / "to.db") as store:
        curves, recordings = (exported.with_name(n) for n in ("curves.csv.gz", "recordings.zip"))
        for content in (b"key,epoch\n1,2\n", b"\xff\n", b"x" * 500_000):
            curves.write_bytes(gzip.compress(content))
            if content.startswith(b"x"):  # which holds no line at all
                continue
            with pytest.raises(UserError, match=r"curves\.csv\.gz cannot be read"):
                store.import_(exported)
        curves.unlink()
        with zipfile.ZipFile(recordings, "w") as archive:
            archive.writestr("notes.txt", "mine")
        with pytest.raises(UserError, match=r"recordings\.zip cannot be read"):
            store.import_(exported)


# Grid files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "\0",
        "datasets = [",
        "a = " + "[" * 3000,
        "datasets = 3\nmodels = 3",
        'datasets = [["digits"]]\nmodels = ["mlp"]',
        'datasets = ["digits"]\nmodels = [{name = "mlp", options = {h = {a = 1}}}]',
        'datasets = ["digits"]\nmodels = ["mlp"]\nfolds = "five"',
        'datasets = ["digits"]\nmodels = ["mlp"]\nepochs = 1979-05-27',
        'datasets = ["digits"]\nmodels = ["mlp"]\nseeds = [inf]',
        'datasets = ["digits"]\nmodels = ["mlp"]\nselectors = [{name = "d2ace", options = 3}]',
        'datasets = ["digits"]\nmodels = ["mlp"]\nselectors = ["a:b:c", ":", "x.py:"]',
        'datasets = ["digits"]\nmodels = ["mlp"]\nkind = "sweep"\nvary = {K = [[[1]]]}',
        'datasets = ["digits"]\nmodels = ["mlp"]\nkind = ["sweep"]',
        'datasets = ["digits"]\nmodels = ["mlp"]\nkind = "ablation"\nvariants = [["A"]]',
        "study = [[1]]",
        "study = 3",
        'datasets = [{name = "digits", epochs = [1]}]\nmodels = ["mlp"]',
        'datasets = [{name = "a\\u0000b"}]\nmodels = ["mlp"]',
        f'datasets = ["{"x" * 5000}"]\nmodels = ["mlp"]',
        'fallback = 3\ndatasets = ["no-such"]\nmodels = ["mlp"]',
        'datasets = ["digits"]\nmodels = ["mlp"]\nroot = 3',
    ],
)
def test_a_grid_file_that_is_none_is_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"mine\.toml") as error:
        load_grid(path)
    assert "\n" not in str(error.value)


def test_a_grid_with_too_long_a_name_is_a_sentence() -> None:
    with pytest.raises(UserError, match="there is no grid"):
        load_grid("x" * 5000)
    with pytest.raises(UserError, match="models must be a list"):
        make_grid({"datasets": ["digits"]})
