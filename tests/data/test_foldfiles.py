from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from d2ace.data import (
    DataError,
    MultiLabelData,
    catalogue,
    fold_numbers,
    folds,
    labels_digest,
    make_multilabel,
    prepare,
    protocol_folds,
    read_folds,
    write_folds,
)

STORED = sorted(
    entry.name.removesuffix(".json")
    for entry in (resources.files("d2ace.data") / "folds").iterdir()
)


def labels() -> np.ndarray:
    return make_multilabel(60, 1, 5, seed=4).Y


def test_round_trip(tmp_path: Path) -> None:
    Y = labels()
    pairs = folds(Y, 4, seed=9)
    write_folds(tmp_path / "four.json", Y, pairs, dataset="made up", seed=9)
    stored = read_folds(tmp_path / "four.json", Y)
    assert (stored.dataset, stored.seed, stored.n_splits) == ("made up", 9, 4)
    assert stored.rows.size == 60
    np.testing.assert_array_equal(stored.numbers, fold_numbers(Y, 4, seed=9))
    for (train, test), (stored_train, stored_test) in zip(pairs, stored.folds(), strict=True):
        np.testing.assert_array_equal(train, stored_train)
        np.testing.assert_array_equal(test, stored_test)


def test_prepared_data_counts_rows_of_the_original(tmp_path: Path) -> None:
    prepared = prepare(make_multilabel(300, 3, 15, imbalance=2.0))
    Y, rows, n = prepared.data.Y, prepared.rows, prepared.report.rows
    assert rows.size < n
    stored = write_folds(tmp_path / "f.json", Y, folds(Y), rows=rows, n_rows=n)
    np.testing.assert_array_equal(stored.rows, rows)
    np.testing.assert_array_equal(stored.numbers[rows], fold_numbers(Y))
    assert stored.numbers.size == n
    np.testing.assert_array_equal(stored.folds()[2][1], folds(Y)[2][1])


def test_digest_sees_content_only() -> None:
    Y = labels()
    assert labels_digest(Y[:, ::-1]) == labels_digest(sp.csr_matrix(Y)) == labels_digest(Y)
    assert labels_digest(Y[::-1]) != labels_digest(Y)
    assert labels_digest(np.hstack([Y, np.zeros((60, 1))])) != labels_digest(Y)


def edited(path: Path, **changes: object) -> Path:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return path


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "folds.json"

    def fresh() -> Path:
        write_folds(path, labels(), folds(labels()))
        return path

    with pytest.raises(DataError, match="made for other labels"):
        read_folds(fresh(), labels()[::-1])
    for change in ({"folds": "0" * 60}, {"n_splits": 4}, {"seed": 1}, {"dataset": "other"}):
        with pytest.raises(DataError, match="does not match its own checksum"):
            read_folds(edited(fresh(), **change))
    with pytest.raises(DataError, match="has the unknown field 'sead'"):
        read_folds(edited(fresh(), sead=1))
    with pytest.raises(DataError, match="has format 'd2ace folds 2', which is newer; update d2ace"):
        read_folds(edited(fresh(), format="d2ace folds 2"))
    with pytest.raises(DataError, match="no usable field 'n_splits'"):
        read_folds(edited(fresh(), n_splits="5"))
    with pytest.raises(DataError, match="is not a fold file; its format"):
        read_folds(edited(fresh(), format="other"))
    for content in ("[1, 2]", "{", "[" * 100_000):
        path.write_text(content)
        with pytest.raises(DataError, match="is not a fold file"):
            read_folds(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="is not a fold file"):
        read_folds(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="is empty"):
        read_folds(path)
    with pytest.raises(DataError, match="no such file"):
        read_folds(tmp_path / "absent.json")


def test_a_flipped_byte_anywhere_is_reported_and_the_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "folds.json"
    write_folds(path, labels(), folds(labels()), dataset="made up", seed=3)
    good = path.read_bytes()
    numbers = read_folds(path).numbers
    for at in range(len(good)):
        for bit in (1, 16):
            damaged = bytearray(good)
            damaged[at] ^= bit
            path.write_bytes(damaged)
            with suppress(DataError):
                stored = read_folds(path)  # white space became other white space
                np.testing.assert_array_equal(stored.numbers, numbers)
                assert (stored.dataset, stored.seed, stored.n_splits) == ("made up", 3, 5)
            assert path.read_bytes() == damaged


@pytest.mark.parametrize("said", [3, 6])
def test_another_number_of_folds_is_noticed_with_a_right_checksum_too(
    tmp_path: Path, said: int
) -> None:
    path = tmp_path / "folds.json"
    write_folds(path, labels(), folds(labels()))
    content = json.loads(path.read_text()) | {"n_splits": said}
    del content["checksum"]
    checksum = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    with pytest.raises(DataError, match=f"tests 5 folds, but says that there are {said}"):
        read_folds(edited(path, n_splits=said, checksum=checksum))


def test_a_strangers_file_is_not_overwritten_by_folds(tmp_path: Path) -> None:
    path = tmp_path / "folds.json"
    for content in (b'{"mine": 1}', b"a letter", b"", bytes(range(256))):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"folds\.json: is not a fold file, and is left alone;"):
            write_folds(path, labels(), folds(labels()))
        assert path.read_bytes() == content
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match="is left alone"):
        write_folds(path, labels(), folds(labels()))
    path.rmdir()
    write_folds(path, labels(), folds(labels()))
    write_folds(path, labels(), folds(labels(), 3))  # one's own may be replaced
    assert read_folds(path).n_splits == 3
    assert [found.name for found in tmp_path.iterdir()] == ["folds.json"]


def test_a_link_is_replaced_and_what_it_points_to_is_not(tmp_path: Path) -> None:
    write_folds(tmp_path / "first.json", labels(), folds(labels()))
    (tmp_path / "link.json").symlink_to("first.json")
    write_folds(tmp_path / "link.json", labels(), folds(labels(), 3))
    assert read_folds(tmp_path / "first.json").n_splits == 5
    assert read_folds(tmp_path / "link.json").n_splits == 3


def test_folds_that_cannot_be_written_are_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"f\.json: cannot be written"):
        write_folds(tmp_path / "nowhere" / "f.json", labels(), folds(labels()))


def test_only_a_partition_is_written(tmp_path: Path) -> None:
    pairs = folds(labels(), 3)
    for wrong in (pairs[:2], [*pairs, pairs[0]], [(a, b + 60) for a, b in pairs]):
        with pytest.raises(DataError, match=r"each of the 60 rows|but there are 60 rows"):
            write_folds(tmp_path / "f.json", labels(), wrong)
    with pytest.raises(DataError, match="a file holds 2 to 36"):
        write_folds(tmp_path / "f.json", labels(), pairs[:1])
    for rows, n_rows, words in (
        ([1, 2], 60, "rows must say which of 60"),
        (range(60)[::-1], 60, "in ascending order"),
        ([0] * 60, 60, "in ascending order"),
        (range(1, 61), 60, "rows go from 1 to 60, but there are 60"),
        (range(60), 50, "but there are 50 rows"),
    ):
        with pytest.raises(DataError, match=words):
            write_folds(tmp_path / "f.json", labels(), pairs, rows=rows, n_rows=n_rows)
    assert not list(tmp_path.iterdir())


# -- the folds of the benchmark protocol


def test_stored_for_the_datasets_of_the_paper() -> None:
    paper = {name for name, entry in catalogue.catalogue().items() if entry.paper}
    assert paper - set(STORED) == {"mediamill"}
    assert len(STORED) == 12
    with pytest.raises(DataError, match="no folds are stored for 'nowhere'; there are some for"):
        protocol_folds("nowhere")


@pytest.mark.parametrize("name", STORED)
def test_stored_folds_are_whole(name: str) -> None:
    stored = protocol_folds(name)
    assert (stored.dataset, stored.seed, stored.n_splits) == (name, 0, 5)
    assert stored.numbers.size == catalogue.get(name).n
    sizes = np.bincount(stored.numbers[stored.rows])
    assert sizes.max() - sizes.min() <= 1
    content = json.loads((resources.files("d2ace.data") / "folds" / f"{name}.json").read_text())
    assert len(content["checksum"]) == 64  # so that damage to an installation is noticed


@pytest.mark.parametrize("name", STORED)
def test_anybody_gets_the_stored_folds(name: str, real: Callable[[str], MultiLabelData]) -> None:
    prepared = prepare(real(name))
    stored = protocol_folds(name.upper(), prepared.data.Y)
    np.testing.assert_array_equal(stored.rows, prepared.rows)
    for (train, test), (stored_train, stored_test) in zip(
        folds(prepared.data.Y, 5, seed=0), stored.folds(), strict=True
    ):
        np.testing.assert_array_equal(train, stored_train)
        np.testing.assert_array_equal(test, stored_test)
