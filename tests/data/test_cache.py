"""The second load comes from the cache; whatever is wrong with the cache, the data is right."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from d2ace.data import DataWarning, load
from d2ace.data.cache import cache_dir

TEXT = "@relation r\n@attribute x numeric\n@attribute c {u,v,w}\n@attribute l {0,1}\n"
TEXT += "@data\n1,v,1\n?,w,0\n3,w,1\n"

pytestmark = pytest.mark.filterwarnings("ignore::d2ace.data.DataWarning")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("D2ACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "parsed"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "set.arff"
    path.write_text(TEXT)
    return path


def entries(cache: Path) -> list[Path]:
    return sorted(cache.iterdir()) if cache.is_dir() else []


def test_the_second_load_is_the_first_with_its_notes(cache: Path, file: Path) -> None:
    with pytest.warns(DataWarning, match="filled 1 missing values"):
        first = load(file, labels=1)
    (entry,) = entries(cache)
    kept = entry.read_bytes()
    with pytest.warns(DataWarning, match="filled 1 missing values"):
        second = load(file, labels=1)
    np.testing.assert_array_equal(first.X, second.X)
    np.testing.assert_array_equal(first.Y, second.Y)
    assert first.feature_names == second.feature_names
    assert entries(cache) == [entry]
    assert entry.read_bytes() == kept


def test_the_cached_copy_is_used(cache: Path, file: Path) -> None:
    """An entry that was changed as a whole is given out: the file is not parsed."""
    good = load(file, labels=1)
    (entry,) = entries(cache)
    with np.load(entry) as archive:
        arrays = {key: archive[key] for key in archive}
    np.savez(entry, **(arrays | {"X": good.X + 1}))
    np.testing.assert_array_equal(load(file, labels=1).X, good.X + 1)


def test_an_entry_under_the_key_of_another_file_is_not_used(cache: Path, file: Path) -> None:
    load(file, labels=1)
    (entry,) = entries(cache)
    file.write_text(TEXT.replace("3,w,1", "4,w,1"))
    load(file, labels=1)
    (other,) = set(entries(cache)) - {entry}
    os.replace(entry, other)
    with pytest.warns(DataWarning, match=f"{other}: belongs to another file: this cached copy is"):
        assert load(file, labels=1).X[2, 0] == 4


def test_every_option_has_its_own_entry(cache: Path, file: Path) -> None:
    variants = [{"labels": 1}, {"labels": ["l"]}, {"labels": 1, "nominal": "onehot"}]
    variants += [{"labels": 1, "drop": ["x"]}]
    assert load(file, labels=iter(["l"])).d == 2
    shapes = [load(file, **options).d for options in variants]  # type: ignore[arg-type]
    assert shapes == [2, 2, 4, 1]
    assert len(entries(cache)) == len(variants)
    again = [load(file, **options).d for options in variants]  # type: ignore[arg-type]
    assert again == shapes
    assert len(entries(cache)) == len(variants)


def test_the_label_list_belongs_to_the_key(cache: Path, file: Path) -> None:
    listed = file.with_suffix(".xml")
    listed.write_text('<labels><label name="l"/></labels>')
    assert load(file).label_names == ("l",)
    file.write_text(TEXT.replace("x numeric", "x {0,1,3}").replace("?", "0"))
    file.write_text(
        "@relation r\n@attribute x {0,1}\n@attribute y numeric\n@attribute l {0,1}\n@data\n1,2,0\n"
    )
    assert load(file).label_names == ("l",)
    listed.write_text('<labels><label name="x"/></labels>')
    assert load(file).label_names == ("x",)


@pytest.mark.parametrize("damage", ["cut", "empty", "garbage", "folder", "flipped"])
def test_a_damaged_entry_is_made_again(damage: str, cache: Path, file: Path) -> None:
    good = load(file, labels=1)
    (entry,) = entries(cache)
    content = entry.read_bytes()
    if damage == "folder":
        entry.unlink()
        entry.mkdir()
    else:
        at = content.index(good.X.tobytes()) + 2
        flipped = content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :]
        damaged = {
            "cut": content[:-40],
            "empty": b"",
            "garbage": b"PK\3\4 nonsense",
            "flipped": flipped,
        }
        entry.write_bytes(damaged[damage])
    with pytest.warns(DataWarning, match=f"{entry}: .* this cached copy is not used"):
        again = load(file, labels=1)
    np.testing.assert_array_equal(again.X, good.X)
    if damage != "folder":
        assert entry.read_bytes() == content


def test_no_flipped_byte_of_an_entry_is_ever_used(cache: Path, file: Path) -> None:
    good = load(file, labels=1)
    (entry,) = entries(cache)
    content = entry.read_bytes()
    for at in range(0, len(content), 7):
        entry.write_bytes(content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :])
        again = load(file, labels=1)
        np.testing.assert_array_equal(again.X, good.X)
        np.testing.assert_array_equal(again.Y, good.Y)
        assert again.feature_names == good.feature_names
        assert again.missing is not None
        assert (again.missing.cells != good.missing.cells).nnz == 0  # type: ignore[union-attr]


def test_without_cache_nothing_is_written(cache: Path, file: Path) -> None:
    load(file, labels=1, cache=False)
    assert entries(cache) == []


def test_a_cache_that_cannot_be_written_does_no_harm(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "occupied").write_text("a file where a folder should be")
    monkeypatch.setenv("D2ACE_CACHE", str(tmp_path / "occupied"))
    assert load(file, labels=1).n == 3


def test_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("D2ACE_CACHE", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "d2ace"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "d2ace"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_dir() == tmp_path / "Library" / "Caches" / "d2ace"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "Local"))
    assert cache_dir() == tmp_path / "Local" / "d2ace"
