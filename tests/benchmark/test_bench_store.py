"""The store: what goes in comes out, is there once, and survives a killed writer."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import result, spec

from d2ace._util.errors import RunError, UserError
from d2ace.benchmark.plan.specs import DEFAULTS, RunSpec, key_of
from d2ace.benchmark.store.database import Store

KILLS = 100
RESULTS = Path(__file__).resolve().parents[2] / "reproduction" / "results.csv"

WRITERS = """
import os, random, signal, sys
sys.path[:0] = sys.argv[3:]
from made_runs import result, spec
from d2ace.benchmark.store.database import Store


def write(path, lines):
    with Store(path) as store:
        seed = 1 + max((run.seed for run in store.runs(status=None)), default=-1)
        while True:
            run = spec(seed=seed)
            if seed % 7 == 3:
                store.fail(run, "no reason")
            else:
                store.add(run, result(run), b"x" * 20000)
            os.write(lines, (run.key + chr(10)).encode())
            seed += 1


moments = random.Random(6)
for _ in range(int(sys.argv[2])):
    reading, writing = os.pipe()
    writer = os.fork()
    if writer == 0:
        write(sys.argv[1], writing)
    os.close(writing)
    with os.fdopen(reading) as lines:
        for _ in range(moments.randrange(6)):
            print(lines.readline(), end="")
        for _ in range(moments.randrange(100_000)):  # to somewhere within the next transaction
            pass
        os.kill(writer, signal.SIGKILL)
        print(lines.read(), end="")
    os.waitpid(writer, 0)
"""


# Keys ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [None, {}, {"test": 1}, [1], {"test": {"macro_auc": float("nan")}}, {"test": {1, 2}}]
)
def test_a_result_that_is_none_is_refused_and_the_store_stays_readable(store, given):
    kept = spec()
    store.add(kept, result(kept))
    with pytest.raises(
        UserError, match=r"(has no result; store|cannot be stored \(.*\); give what)"
    ):
        store.add(spec(seed=1), given)
    assert [run.key for run in store.runs(status=None)] == [kept.key]


def test_a_folder_in_the_place_of_a_store_gets_one_sentence(tmp_path):
    with pytest.raises(UserError) as problem:
        Store(tmp_path)
    example = tmp_path / "runs.db"
    assert str(problem.value) == (
        f"{tmp_path} is a folder; name a file for the store, such as {example}."
    )


def test_a_key_names_the_work_not_the_spelling():
    plain = spec()
    assert plain.key == spec(seed=0, epochs=100, learning_rate=0.0001).key
    assert plain.key == spec("K=6", "sweep", selector_options={"neighbors": 6}).key
    assert plain.key == spec(selector_options={"mix": (0.7, 0.3), "preset": "paper"}).key
    assert plain.key == spec(data="Emotions").key
    assert (
        spec(selector_options={"mix": [1, 1]}).key == spec(selector_options={"mix": [1.0, 1]}).key
    )
    others = [
        spec(seed=1),
        spec(fold=1),
        spec(selector="random"),
        spec(selector_options={"neighbors": 5}),
        spec(selector_options={"preset": "reference"}),
        spec(selector_options={"preset": "reference", "neighbors": 6}),
        spec(model_options={"preset": "reference"}),
    ]
    assert len({run.key for run in [plain, *others]}) == len(others) + 1


def test_runs_under_version_control_keep_their_keys():
    """Whatever settings come to be: a run that was stored is found again."""
    with RESULTS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        assert RunSpec("main", row["method"], json.loads(row["config"])).key == row["key"]
    assert spec().key == "719d1f0211c606f1b1344b55880dad0d7d1263c21ce4c1701a64bf3d54a9123c"
    assert (
        spec(data="/somewhere/mine.arff", model="mlp").key
        == "3743592fa78af18a18e562c0d904b83238b1b2819b8e5a0c81a3b7c0a49f168f"
    )
    own = spec(selector="/a/mine.py:Mine", selector_source="1" * 64)
    assert own.key == "51ea28ae82f5d167485215d7d49db2940696e4dc3c1abea8c4ccab6dd26cbc84"


def test_a_setting_that_comes_to_be_leaves_keys_as_they_are(monkeypatch):
    before = spec().key
    monkeypatch.setitem(DEFAULTS, "image_size", None)
    assert spec().key == spec(image_size=None).key == before
    assert spec(image_size=448).key != before


def test_the_code_of_an_own_selector_is_part_of_the_key():
    here = spec(selector="/a/mine.py:Mine", selector_source="1" * 64)
    moved = spec(selector="/b/mine.py:Mine", selector_source="1" * 64)
    changed = spec(selector="/a/mine.py:Mine", selector_source="2" * 64)
    assert here.key == moved.key != changed.key


def test_the_content_of_a_data_file_is_part_of_the_key():
    here = spec(data="/a/mine.npz", data_source="1" * 64)
    moved = spec(data="/b/mine.npz", data_source="1" * 64)
    changed = spec(data="/a/mine.npz", data_source="2" * 64)
    assert here.key == moved.key != changed.key
    assert spec(data="/a/mine.npz").key not in (here.key, changed.key)


@given(st.permutations([*DEFAULTS]))
def test_a_key_does_not_depend_on_the_order_of_settings(names):
    config = {"data": "emotions", **{name: DEFAULTS[name] for name in names}}
    assert key_of(config) == spec().key


def test_names_in_tables():
    run = spec(data="yahoo-Arts1", model_options={"preset": "reference"})
    assert (run.dataset, run.model) == ("yahoo-arts1", "CLIF (reference)")
    assert spec(data="rcv1subset1", repair=True).dataset == "rcv1subset1 (repaired)"
    assert spec(data="some/where/mine.arff").dataset == "mine"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"epoch": 3}, r"no setting 'epoch' \(did you mean 'epochs'\?\)"),
        ({"data": 3}, "name or path of its data, got 3"),
        ({"data": "a\udcff.npz"}, r"data is 'a\\udcff\.npz', which is not UTF-8; rename the file"),
        ({"seed": object()}, "the setting seed is <object"),
        ({"learning_rate": float("nan")}, "the setting learning_rate is nan; write a plain value"),
    ],
)
def test_settings_that_a_run_does_not_have(config, said):
    with pytest.raises(UserError, match=said):
        spec(**config)


# In and out ---------------------------------------------------------------------------------


def test_a_run_comes_back_as_it_was(store):
    run = spec("D2ACE (mine)", seed=4, fold=2, model_options={"preset": "reference"})
    store.add(run, result(run))
    (found,) = store.runs()
    assert found.key == run.key
    assert (found.study, found.method) == ("main", "D2ACE (mine)")
    assert (found.dataset, found.model, found.selector) == ("emotions", "CLIF (reference)", "d2ace")
    assert (found.fold, found.seed, found.status, found.error) == (2, 4, "finished", None)
    assert found.config == run.config
    assert found.result == result(run)
    assert store.has(run)
    assert not store.has(spec(seed=5))


def test_a_run_serves_several_studies_and_is_stored_once(store):
    first = spec()
    store.add(first, result(first))
    again = [
        spec("A", "ablation"),
        spec("K=6", "sweep", selector_options={"neighbors": 6}),
        spec("K=5", "sweep", selector_options={"neighbors": 5}),
    ]
    store.link(again)
    assert [(run.study, run.method) for run in store.runs()] == [
        ("main", "D2ACE"),
        ("ablation", "A"),
        ("sweep", "K=6"),
    ]
    assert len({run.id for run in store.runs()}) == 1
    (swept,) = store.runs("sweep")
    assert swept.config["selector_options"] == {"neighbors": 6}
    assert store.studies() == ["main", "ablation", "sweep"]


def test_finished_runs_stay(store):
    run = spec()
    store.fail(run, "the disk is full")
    assert [failed.error for failed in store.failed()] == ["the disk is full"]
    assert not store.has(run)
    store.fail(run, "still full")
    assert [failed.error for failed in store.failed()] == ["still full"]
    store.add(run, result(run, 0.7))
    store.fail(run, "too late")
    store.add(run, result(run, 0.9))
    assert store.failed() == []
    (found,) = store.runs()
    assert found.result["test"]["macro_auc"] == 0.7


def packed(**arrays: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()


def test_recordings(store):
    arrays = {"P": np.linspace(0, 1, 5), "label_names": np.array(["sun", "sea"])}
    with_it, without = spec(record=True), spec()
    store.add(with_it, result(with_it), packed(**arrays))
    store.add(without, result(without))
    found = store.recording(store.runs()[0].id)
    assert found is not None
    assert {name: list(array) for name, array in found.items()} == {
        name: list(array) for name, array in arrays.items()
    }
    assert store.recording(store.runs()[1].id) is None
    assert store.recording(99) is None


def test_readers_and_writers_at_the_same_time(tmp_path):
    path = tmp_path / "runs.db"
    with Store(path) as one, Store(path) as two:
        for seed in range(20):
            run = spec(seed=seed)
            (one if seed % 2 else two).add(run, result(run))
            assert one.has(run)
            assert two.has(run)


def test_mean_seconds(store):
    for seed in range(2):
        run = spec(seed=seed)
        store.add(run, result(run) | {"seconds": {"total": 1.0 + seed}})
    assert store.mean_seconds() == {("emotions", "CLIF"): 1.5}


# Files that are no stores -------------------------------------------------------------------


def no_database(path: Path) -> None:
    path.write_text("name,value\n" * 40)


def other_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE letters (text)")
    connection.commit()
    connection.close()


def newer(path: Path) -> None:
    Store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (no_database, "not a store of d2ace"),
        (other_database, "not a store of d2ace"),
        (newer, "format 99, this d2ace reads 2"),
    ],
)
def test_other_files_are_refused_and_left_alone(tmp_path, make, said):
    path = tmp_path / "file.db"
    make(path)
    before = path.read_bytes()
    with pytest.raises(UserError, match=said):
        Store(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["file.db"]


def test_a_torn_store_is_a_sentence(tmp_path):
    path = tmp_path / "runs.db"
    with Store(path) as store:
        for seed in range(20):
            store.add(spec(seed=seed), result(spec(seed=seed)))
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(UserError, match=r"runs\.db cannot be read"):
        Store(path)


def test_places_where_no_store_can_be(tmp_path):
    with pytest.raises(UserError, match="is a folder"):
        Store(tmp_path)
    with pytest.raises(UserError, match=r"folder .*absent of the store runs\.db does not exist"):
        Store(tmp_path / "absent" / "runs.db")
    with pytest.raises(UserError, match=r"there is no store .*runs\.db"):
        Store(tmp_path / "runs.db", create=False)
    assert list(tmp_path.iterdir()) == []


# Kill safety --------------------------------------------------------------------------------


def test_killed_writers_lose_nothing_they_reported(tmp_path):
    """Each is killed after a random number of reported runs, at a random moment of the next."""
    path = tmp_path / "runs.db"
    arguments = [str(path), str(KILLS), *sys.path]
    command = [sys.executable, "-c", WRITERS, *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert finished.returncode == 0, finished.stderr
    reported = finished.stdout.split()
    assert len(reported) == len(set(reported)) > KILLS
    with Store(path) as store:
        runs = store.runs(status=None)
    stored = {run.key for run in runs}
    assert set(reported) <= stored
    assert len(stored) <= len(reported) + KILLS  # at most one unreported run per kill
    assert all(run.error if run.status == "failed" else run.result for run in runs)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


# CSV ----------------------------------------------------------------------------------------


def filled(path: Path) -> Store:
    store = Store(path)
    for number, run in enumerate(
        [
            spec("Random", selector="random"),
            spec(),
            spec('Müller\'s; "own",\nway', seed=1),
            spec("K=5", "sweep", selector_options={"neighbors": 5}),
        ]
    ):
        store.add(run, result(run, 0.8 + number / 97))
    store.link([spec("K=6", "sweep", selector_options={"neighbors": 6})])
    store.fail(spec(seed=9), "it was killed (signal 9)")
    return store


def test_a_store_is_rebuilt_from_its_csv(tmp_path):
    with filled(tmp_path / "one.db") as one, Store(tmp_path / "two.db") as two:
        one.export(tmp_path / "results.csv")
        assert two.import_(tmp_path / "results.csv") == 5
        before, after = one.runs(status=None), two.runs(status=None)
        assert len(before) == len(after) == 6
        for old, new in zip(before, after, strict=True):
            for field in ("key", "study", "method", "dataset", "model", "config", "error"):
                assert getattr(old, field) == getattr(new, field)
            assert (old.status, old.finished_at) == (new.status, new.finished_at)
            if old.result is None:
                assert new.result is None
                continue
            for part in ("test", "validation", "undefined", "seconds", "cpu_seconds", "best_epoch"):
                assert new.result[part] == old.result[part]
            assert new.result["dataset"] == old.result["dataset"]
            assert new.result["environment"]["d2ace"] == "0.1.0"
            for was, now in zip(old.result["history"], new.result["history"], strict=True):
                assert now["train_loss"] == pytest.approx(was["train_loss"], rel=1e-6)
                assert now["validation"]["macro_auc"] == pytest.approx(0.8, abs=0.1)
                assert now["seconds"] == {"sum": 1.0}
                assert now["epoch_loss"] is None
        two.export(tmp_path / "again" / "results.csv")
    for name in ("results.csv", "curves.csv.gz"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_recordings_are_exported_and_come_back(tmp_path):
    run, path, beside = spec(record=True), tmp_path / "results.csv", tmp_path / "recordings.zip"
    with Store(tmp_path / "one.db") as one, Store(tmp_path / "two.db") as two:
        one.add(run, result(run), packed(P=np.linspace(0, 1, 5)))
        one.add(spec(), result(spec()))
        one.export(path)
        exported = beside.read_bytes()
        two.import_(path)
        recorded, plain = two.runs()
        found = two.recording(recorded.id)
        assert found is not None
        assert list(found["P"]) == [0, 0.25, 0.5, 0.75, 1]
        assert two.recording(plain.id) is None
        two.export(path)
        assert beside.read_bytes() == exported
        beside.write_bytes(exported[:-30])
        with Store(tmp_path / "three.db") as three:
            with pytest.raises(UserError, match=r"recordings\.zip cannot be read"):
                three.import_(path)
            three.export(path)
        assert not beside.exists()  # what recorded nothing leaves none


def test_importing_never_overwrites_what_is_stored(tmp_path):
    with filled(tmp_path / "one.db") as one, Store(tmp_path / "two.db") as two:
        one.export(tmp_path / "results.csv")
        run = spec()
        two.add(run, result(run, 0.5, epochs=7))
        two.fail(spec(seed=1), "failed here")
        assert two.import_(tmp_path / "results.csv") == 4
        assert two.import_(tmp_path / "results.csv") == 0
        kept = {stored.key: stored for stored in two.runs()}
        assert kept[run.key].result == result(run, 0.5, epochs=7)
        assert two.has(spec(seed=1))
        two.add(spec(seed=1), result(spec(seed=1), 0.6))  # with all its details
        kept = {stored.key: stored for stored in two.runs()}
        assert kept[spec(seed=1).key].result["test"]["macro_auc"] == 0.6
        (six,) = [stored for stored in two.runs("sweep") if stored.method == "K=6"]
        assert six.key == run.key


def test_without_curves_the_scores_come_alone(tmp_path):
    with filled(tmp_path / "one.db") as one, Store(tmp_path / "two.db") as two:
        one.export(tmp_path / "results.csv")
        (tmp_path / "curves.csv.gz").unlink()
        two.import_(tmp_path / "results.csv")
        assert all(run.result["history"] == [] for run in two.runs())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (",finished,", ",done,", "line 2: status is 'done'"),
        ('""epochs"":100', '""epoch"":100', "line 2: a run has no setting 'epoch'"),
        ("key,study", "name,study", "not a results file of d2ace"),
        (",finished,", ",\udcff,", r"results.csv is not UTF-8 \(invalid start byte\); save it"),
    ],
)
def test_a_file_of_another_kind(tmp_path, old, new, said):
    with filled(tmp_path / "one.db") as one, Store(tmp_path / "two.db") as two:
        path = tmp_path / "results.csv"
        one.export(path)
        path.write_text(path.read_text().replace(old, new, 1), errors="surrogateescape")
        with pytest.raises(UserError, match=said):
            two.import_(path)
        with pytest.raises(UserError, match="there is no file"):
            two.import_(tmp_path / "absent.csv")


def test_a_file_that_went_through_another_program(tmp_path):
    """Excel marks UTF-8, pandas writes nan for what is missing, and a column may be gone."""
    with filled(tmp_path / "one.db") as one, Store(tmp_path / "two.db") as two:
        path = tmp_path / "results.csv"
        one.export(path)
        rows = list(csv.DictReader(io.StringIO(path.read_text())))
        for row in rows:
            del row["cpu_seconds"]
            row["test_macro_f1"] = "nan"
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        assert two.import_(path) == 5
        results = [run.result for run in two.runs()]
        assert {result["test"]["macro_f1"] for result in results} == {None}
        assert {result["test"]["macro_auc"] for result in results} == {
            run.result["test"]["macro_auc"] for run in one.runs()
        }


def test_a_full_disk_is_reported_and_harms_nothing(tmp_path):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(tmp_path)],  # noqa: S607
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        with Store(tmp_path / "runs.db") as store:
            stored = 0
            with pytest.raises(RunError, match="make room and start again: what was"):  # noqa: PT012
                while True:
                    store.add(spec(seed=stored), result(spec(seed=stored)))
                    stored += 1
            assert len(store.runs()) == stored > 0
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)  # noqa: S607


def test_every_setting_of_a_run_is_filled_in():
    assert set(RunSpec("main", "x", {"data": "digits"}).config) == {"data", *DEFAULTS}
