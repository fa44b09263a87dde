"""CSV tables: what a spreadsheet exports, with label columns named ``label:...``."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from d2ace.data import DataError, DataWarning, load, load_features

TABLE = 'height,label:red,"wide, really",label: blue\n1.5,1,-2,0\n2,0,1e3,1.0\n'


def test_a_table(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_text("\ufeff" + TABLE.replace("\n", "\r\n"), encoding="utf-8")
    data = load(path)
    assert (data.name, data.feature_names) == ("my", ("height", "wide, really"))
    assert data.label_names == ("red", "blue")
    np.testing.assert_array_equal(data.X, np.array([[1.5, -2], [2, 1000]], np.float32))
    np.testing.assert_array_equal(data.Y, [[1, 0], [0, 1]])


def test_a_compressed_table(tmp_path: Path) -> None:
    (tmp_path / "my.csv.gz").write_bytes(gzip.compress(TABLE.encode()))
    assert load(tmp_path / "my.csv.gz").n == 2


def test_empty_cells_are_missing_and_filled_with_the_mean(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_text("a,b,label:x\n1,,0\n3,5,1\n,7,1\n", encoding="utf-8")
    with pytest.warns(DataWarning, match="filled 2 empty cells in 2 columns"):
        data = load(path)
    np.testing.assert_array_equal(data.X, np.array([[1, 6], [3, 5], [2, 7]], np.float32))
    assert data.missing is not None
    np.testing.assert_array_equal(data.missing.cells.toarray(), [[0, 1], [0, 0], [1, 0]])
    with pytest.raises(DataError, match="has 2 empty cells"):
        load(path, missing="error")


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "a,label:x,b\n1,,2\n"])
def test_new_rows_need_no_labels(tmp_path: Path, text: str) -> None:
    path = tmp_path / "new.csv"
    path.write_text(text, encoding="utf-8")
    data = load_features(path, ["a", "b"])
    assert data.feature_names == ("a", "b")
    np.testing.assert_array_equal(data.X, [[1, 2]])


BAD = {
    "no labels": (b"a,b\n1,2\n", "line 1: has no label column; .*'label:red'"),
    "no features": (b"label:a\n1\n", "line 1: has no feature column"),
    "no rows": (b"a,label:b\n", "has no rows"),
    "text": (b"a,label:b\n1,0\nParis,1\n", "line 3: 'a' is 'Paris', which is no number"),
    "nan": (b"a,label:b\nnan,0\n", "line 2: 'a' is 'nan'"),
    "too large": (b"a,label:b\n1e39,0\n", "line 2: 'a' is '1e39'"),
    "label": (b"a,label:b\n1,2\n", "line 2: 'label:b' is '2'; a label must be 0 or 1"),
    "no label": (b"a,label:b\n1,\n", "line 2: 'label:b' is ''; a label must be 0 or 1"),
    "twice": (b"a,a,label:b\n1,2,0\n", "line 1: has two columns 'a'"),
    "label twice": (b"a,label:b,label: b\n1,0,0\n", "line 1: has two columns 'label:b'"),
    "label without a name": (b"a,label:\n1,0\n", "line 1: has a column without a name"),
    "semicolons": (b"a;label:b\n1,5;0\n", "line 1: has semicolons .*again, with commas, and"),
    "tabs": (b"a\tlabel:b\n1.5\t0\n", "line 1: has semicolons or tabs between cells; export"),
    "no name": (b"a,,label:b\n1,2,0\n", "line 1: has a column without a name"),
    "short row": (b"a,label:b\n1\n", "line 2: has 1 cells, but the first line 2"),
    "binary": (bytes(range(256)), "is no CSV text in UTF-8"),
    "quote": (b'a,label:b\n"1,0\n', "is no CSV text"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_tables(tmp_path: Path, kind: str) -> None:
    content, words = BAD[kind]
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        load(path, cache=False)
    assert str(path) in str(caught.value)


def test_tables_are_not_joined(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_text(TABLE, encoding="utf-8")
    with pytest.raises(DataError, match="only ARFF and LibSVM files can be joined"):
        load([path, path])
