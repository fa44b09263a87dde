"""The ARFF reader on small files whose every value is known."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from d2ace.data import DataError, DataWarning, MultiLabelData, UnknownDataError, load

DENSE = """% a comment
@RELATION 'small set'

@attribute 'first feature' numeric
@Attribute "it\\'s" REAL
@attribute city {London, 'New York', "O'Hare", '?'}
@attribute a {0,1}
@attribute b {1, 0}   % the other way round
@data
1.5, 2,  London, 0, 1
% in between

-3e1,.25,'New York',1,0
7,?,"O'Hare",1,1
+8.,1,'?',0,0
"""


def write(folder: Path, text: str, name: str = "small.arff") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path, **options: Any) -> MultiLabelData:
    return load(path, cache=False, **({"labels": 2} | options))


def dense(table: Any) -> np.ndarray:
    return table.toarray() if sp.issparse(table) else table


def test_dense_rows_with_quotes_comments_and_missing_values(tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match="filled 1 missing values in 1 attributes"):
        data = read(write(tmp_path, DENSE))
    assert data.name == "small"
    assert data.feature_names == ("first feature", "it's", "city")
    assert data.label_names == ("a", "b")
    assert data.X.dtype == np.float32
    assert data.X.flags.c_contiguous
    assert data.Y.flags.c_contiguous
    mean = (2 + 0.25 + 1) / 3
    expected = [[1.5, 2, 0], [-30, 0.25, 1], [7, mean, 2], [8, 1, 3]]
    np.testing.assert_array_equal(data.X, np.array(expected, dtype=np.float32))
    assert data.Y.dtype == np.uint8
    assert data.Y.tolist() == [[0, 1], [1, 0], [1, 1], [0, 0]]


def test_warnings_point_at_the_caller(tmp_path: Path) -> None:
    with pytest.warns(DataWarning) as caught:
        load(write(tmp_path, DENSE), labels=2, cache=False)
    assert [warning.filename for warning in caught] == [__file__]


def test_missing_values_can_be_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has 1 missing values"):
        read(write(tmp_path, DENSE), missing="error")


@pytest.mark.filterwarnings("ignore::d2ace.data.DataWarning")
def test_one_hot(tmp_path: Path) -> None:
    data = read(write(tmp_path, DENSE), nominal="onehot")
    assert data.feature_names[2:] == ("city=London", "city=New York", "city=O'Hare", "city=?")
    assert data.X[:, 2:].tolist() == np.eye(4).tolist()


def test_a_missing_nominal_value_becomes_the_most_frequent_one(tmp_path: Path) -> None:
    text = "@relation r\n@attribute c {x,y,z}\n@attribute l {0,1}\n@data\ny,1\nz,0\n?,1\nz,0\n"
    with pytest.warns(DataWarning, match="most frequent"):
        data = read(write(tmp_path, text), labels=1)
    assert data.X.ravel().tolist() == [1, 2, 2, 2]


SPARSE = """@relation r
@attribute x numeric
@attribute c {no, yes, maybe}
@attribute y numeric
@attribute a {0,1}
@attribute b {1,0}
@data
{0 1.5, 1 maybe, 3 1}
{ }
{4 0,2 -2e-1}
{ 2 ?,0   4 , 1 'yes' }
"""


@pytest.mark.filterwarnings("ignore::d2ace.data.DataWarning")
def test_sparse_rows_omit_the_first_value(tmp_path: Path) -> None:
    data = read(write(tmp_path, SPARSE))
    assert sp.issparse(data.X)
    assert sp.issparse(data.Y)
    mean = np.float32((-0.2) / 3)  # two rows leave it out, which is zero
    expected = [[1.5, 2, 0], [0, 0, 0], [0, 0, -0.2], [4, 1, mean]]
    np.testing.assert_array_equal(data.X.toarray(), np.array(expected, dtype=np.float32))
    assert data.Y.toarray().tolist() == [[1, 1], [0, 1], [0, 0], [0, 1]]  # b: omitted means "1"
    hot = read(write(tmp_path, SPARSE), nominal="onehot")
    assert hot.feature_names == ("x", "c=no", "c=yes", "c=maybe", "y")
    assert hot.X.toarray()[:, 1:4].tolist() == [[0, 0, 1], [1, 0, 0], [1, 0, 0], [0, 1, 0]]


@pytest.mark.filterwarnings("ignore::d2ace.data.DataWarning")
@pytest.mark.parametrize("row", ["{0 1,\t1 ab,\t2 7}", "{0 1\t,1 '',2 7}", "{0\t1,1 '', 2\t7}"])
def test_tabs_and_empty_strings_in_sparse_rows(tmp_path: Path, row: str) -> None:
    head = "@relation r\n@attribute l {0,1}\n@attribute s string\n@attribute x numeric\n@data\n"
    data = read(write(tmp_path, f"{head}{row}\n"), labels=["l"])
    assert (data.X.toarray().tolist(), data.Y.toarray().tolist()) == ([[7]], [[1]])


def test_string_and_date_attributes(tmp_path: Path) -> None:
    text = (
        "@relation r\n@attribute s string\n@attribute t date 'yyyy-MM-dd HH:mm'\n"
        "@attribute u date\n@attribute l {0,1}\n@data\n"
        "'a, b','1970-01-02 00:00',1970-01-01T00:00:10,1\nc,\"1970-01-01 01:00\",?,0\n"
    )
    with pytest.warns(DataWarning) as caught:
        data = read(write(tmp_path, text), labels=1)
    assert any("left out 1 string attributes" in str(warning.message) for warning in caught)
    assert data.feature_names == ("t", "u")
    assert data.X.tolist() == [[86400, 10], [3600, 10]]


LABELLED = (
    "@relation r\n@attribute a {0,1}\n@attribute x numeric\n@attribute b {0,1}\n@data\n1,5,0\n"
)


@pytest.mark.parametrize(
    ("labels", "at", "expected"),
    [
        (1, "end", ("b",)),
        (1, "start", ("a",)),
        (["b", "a"], "end", ("a", "b")),
        (("b",), "start", ("b",)),
    ],
)
def test_labels_by_name_and_by_count(
    tmp_path: Path, labels: Any, at: str, expected: tuple[str, ...]
) -> None:
    data = read(write(tmp_path, LABELLED), labels=labels, labels_at=at)
    assert data.label_names == expected
    assert set(data.feature_names) == {"a", "x", "b"} - set(expected)


@pytest.mark.parametrize(("option", "expected"), [("-C 1", ("a",)), ("-C -1", ("b",))])
def test_meka_option(tmp_path: Path, option: str, expected: tuple[str, ...]) -> None:
    text = LABELLED.replace("@relation r", f"@relation 'r: {option}'")
    assert read(write(tmp_path, text), labels=None).label_names == expected


def label_list(*names: str) -> str:
    entries = "".join(f'<label name="{name}"></label>\n' for name in names)
    return f'<labels xmlns="http://mulan.sourceforge.net/labels">\n{entries}</labels>'


@pytest.mark.parametrize("name", ["set.arff", "set-train.arff", "set-test-sparse.arff"])
def test_label_list_beside_the_file(tmp_path: Path, name: str) -> None:
    listed = write(tmp_path, label_list("b", "a"), "set.xml")
    assert read(write(tmp_path, LABELLED, name), labels=None).label_names == ("a", "b")
    (tmp_path / "set.xml.gz").write_bytes(gzip.compress(listed.read_bytes()))
    listed.unlink()
    assert read(tmp_path / name, labels=None).label_names == ("a", "b")


def test_label_list_given_by_path_and_nested(tmp_path: Path) -> None:
    nested = '<labels><label name="a"><label name="b"/></label></labels>'
    listed = write(tmp_path, nested, "other.xml")
    assert read(write(tmp_path, LABELLED), labels=listed).label_names == ("a", "b")
    assert read(write(tmp_path, LABELLED), labels=str(listed)).label_names == ("a", "b")


def test_escaped_names_match_either_way(tmp_path: Path) -> None:
    for in_header in ("m\\'usica", "'m\\'usica'"):
        for in_list in ("m\\'usica", "m'usica"):
            text = LABELLED.replace("attribute b", f"attribute {in_header}")
            data = read(write(tmp_path, text), labels=[in_list])
            assert len(data.label_names) == 1


def test_without_any_label_the_error_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not say which attributes are labels; give labels="):
        read(write(tmp_path, LABELLED), labels=None)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (0, "does not fit"),
        (3, "does not fit"),
        (-1, "does not fit"),
        (True, "says nothing"),
        (["c"], "'c' of labels= is no attribute"),
        ("a", r"write labels=\['a'\]"),
        (["a", "a"], "twice; leave one out"),
        ([], "names no label"),
        (["a", "x", "b"], "every attribute"),
    ],
)
def test_labels_that_cannot_be(tmp_path: Path, labels: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(write(tmp_path, LABELLED), labels=labels)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_compressed_files(tmp_path: Path, suffix: str, pack: Any) -> None:
    path = tmp_path / f"small.arff{suffix}"
    path.write_bytes(pack(LABELLED.encode()))
    data = read(path, labels=1)
    assert (data.name, data.X.tolist()) == ("small", [[1, 5]])


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_line_ends_of_other_systems(tmp_path: Path, newline: str) -> None:
    path = tmp_path / "small.arff"
    path.write_bytes(LABELLED.replace("\n", newline).encode())
    assert read(path, labels=1).X.tolist() == [[1, 5]]


def test_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "small.arff"
    text = "@relation r\n@attribute caf\xe9 {\xe9t\xe9,hiver}\n@attribute l {0,1}\n@data\n"
    text += "hiver,1\n\xe9t\xe9,0\n"
    path.write_bytes(text.encode("latin-1"))
    data = read(path, labels=1)
    assert data.feature_names == ("caf\xe9",)
    assert data.X.tolist() == [[1], [0]]


def test_drop(tmp_path: Path) -> None:
    text = "@relation r\n@attribute name {p,q}\n@attribute x numeric\n@attribute l {0,1}\n"
    text += "@data\np,3,1\n"
    for drop in (["name"], "name"):
        assert read(write(tmp_path, text), labels=1, drop=drop).feature_names == ("x",)
    with pytest.raises(UnknownDataError, match=r"attribute 'nome' to drop \(did you mean 'name'"):
        read(write(tmp_path, text), labels=1, drop=["nome"])


def test_parts_are_joined_in_order(tmp_path: Path) -> None:
    head = "@relation {}\n@attribute x numeric\n@attribute c {}\n@attribute l {}\n@data\n"
    one = write(tmp_path, head.format("a", "{u,v,w}", "{0,1}") + "1,u,0\n2,w,1\n", "p-train.arff")
    two = write(tmp_path, head.format("b", "{w,u}", "{1,0}") + "3,w,1\n4,u,0\n", "p-test.arff")
    data = load([one, two], labels=1, cache=False)
    assert data.X.tolist() == [[1, 0], [2, 2], [3, 2], [4, 0]]
    assert data.Y.ravel().tolist() == [0, 1, 1, 0]
    swapped = "@relation b\n@attribute l {0,1}\n@attribute c {u,v,w}\n@attribute x numeric\n"
    swapped += "@data\n1,w,9\n"
    three = write(tmp_path, swapped, "p-more.arff")
    assert load([one, three], labels=["l"], cache=False).X.tolist()[-1] == [9, 2]


def test_sparse_parts_are_joined(tmp_path: Path) -> None:
    head = "@relation r\n@attribute x numeric\n@attribute c {u,v,w}\n@attribute l {0,1}\n@data\n"
    one = write(tmp_path, head + "{0 1,2 1}\n", "p-train.arff")
    two = write(tmp_path, head.replace("u,v,w", "u,w") + "{1 w}\n{}\n", "p-test.arff")
    data = load([one, two], labels=1, cache=False)
    assert data.X.toarray().tolist() == [[1, 0], [0, 2], [0, 0]]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            "@relation r\n@attribute z numeric\n@attribute l {0,1}\n@data\n1,1\n",
            "only one declares",
        ),
        ("@relation r\n@attribute x {0,1}\n@attribute l {0,1}\n@data\n1,1\n", "otherwise than"),
        (
            "@relation r\n@attribute x numeric\n@attribute l {0,1}\n@data\n{0 1}\n",
            "sparse or dense",
        ),
    ],
)
def test_parts_that_do_not_belong_together(tmp_path: Path, other: str, message: str) -> None:
    text = "@relation r\n@attribute x numeric\n@attribute l {0,1}\n@data\n1,1\n"
    paths = [write(tmp_path, text, "a.arff"), write(tmp_path, other, "b.arff")]
    with pytest.raises(DataError, match=message):
        load(paths, labels=1, cache=False)


def test_many_blocks_give_the_same_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 7)).astype(np.float32)
    Y = rng.integers(0, 2, size=(300, 2))
    head = "@relation r\n" + "".join(f"@attribute x{i} numeric\n" for i in range(7))
    head += "@attribute a {0,1}\n@attribute b {0,1}\n@data\n"
    rows = [
        ",".join([*map(repr, x), *map(str, y)]) for x, y in zip(X.tolist(), Y.tolist(), strict=True)
    ]
    path = write(tmp_path, head + "\n".join(rows))
    whole = read(path)
    monkeypatch.setattr("d2ace.data.readers.arff_rows._BLOCK", 100)
    pieces = read(path)
    for data in (whole, pieces):
        np.testing.assert_array_equal(data.X, X)
        np.testing.assert_array_equal(data.Y, Y)
