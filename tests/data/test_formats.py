"""NPZ, MATLAB and LibSVM files."""

from __future__ import annotations

import gzip
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d2ace.data import DataError, MultiLabelData, UnknownDataError, load, save


def sample(sparse: bool, names: tuple[str, ...] = ("a", "b", "c", "d")) -> MultiLabelData:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(6, len(names))).astype(np.float32) * rng.integers(0, 2, (6, len(names)))
    X = X.astype(np.float32)
    Y = rng.integers(0, 2, (6, 3)).astype(np.uint8)
    if sparse:
        return MultiLabelData("set", sp.csr_matrix(X), sp.csr_matrix(Y), names, ("x", "y", "z"))
    return MultiLabelData("set", X, Y, names, ("x", "y", "z"))


def assert_same(a: MultiLabelData, b: MultiLabelData) -> None:
    assert (a.name, a.feature_names, a.label_names) == (b.name, b.feature_names, b.label_names)
    for one, two in ((a.X, b.X), (a.Y, b.Y)):
        assert sp.issparse(one) == sp.issparse(two)
        assert one.dtype == two.dtype
        if sp.issparse(one):
            for part in ("data", "indices", "indptr"):
                np.testing.assert_array_equal(getattr(one, part), getattr(two, part))
        else:
            np.testing.assert_array_equal(one, two)


# --- NPZ ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_saved_data_is_read_back_exactly(sparse: bool, tmp_path: Path) -> None:
    data = sample(sparse, ("plain", "", "line\nbreak", "\u00e9 \U0001f600 \ud800"))
    save(data, tmp_path / "other")
    assert_same(load(tmp_path / "other.npz"), data)
    assert [path.name for path in tmp_path.iterdir()] == ["other.npz"]


@settings(max_examples=30)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=6))
def test_any_names_are_kept(names: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "set.npz"
        save(sample(False, tuple(names)), path)
        assert load(path).feature_names == tuple(names)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"X": np.ones((6, 2))}, "mine has 6 rows in X and 5 in Y; give the labels of the same"),
        ({"X": np.ones((4, 2))}, "mine has 4 rows in X and 5 in Y"),
        ({"feature_names": ("a",)}, "mine has 1 feature names for 2 columns of X; give one for"),
        ({"label_names": tuple("abcd")}, "mine has 4 label names for 3 columns of Y"),
        ({"X": pd.DataFrame({"format": [1.0] * 5, "b": 0.0})}, r"X is a DataFrame; .*X\.to_numpy"),
        ({"Y": pd.DataFrame(np.ones((5, 3)))}, r"Y is a DataFrame; give a NumPy .*Y\.to_numpy"),
        ({"X": torch.ones(5, 2)}, r"X is a Tensor; give a NumPy array .* such as X\.numpy\(\)"),
        ({"Y": sp.coo_matrix(np.ones((5, 3)))}, r"Y is a coo_matrix; .* such as Y\.tocsr\(\)"),
        ({"X": [[1.0, 2.0]] * 5}, "X is a list; give a NumPy array or a SciPy CSR matrix.$"),
        ({"Y": np.ones(5)}, "Y is 1-dimensional float64; a two-dimensional table of numbers"),
        ({"X": np.full((5, 2), "a")}, "X is 2-dimensional <U1; a two-dimensional table"),
        (
            {"X": np.ma.masked_less(np.ones((5, 2)), 2)},
            r"X is a MaskedArray; .*X\.filled\(\.\.\.\)",
        ),
        (
            {"Y": np.ma.masked_less(np.ones((5, 3)), 2)},
            r"Y is a MaskedArray; .*Y\.filled\(\.\.\.\)",
        ),
        ({"X": np.ones((5, 2)).view(np.matrix)}, r"X is a matrix; .* such as np\.asarray\(X\)"),
        ({"name": None}, "the name of the data is None; give text"),
        ({"feature_names": ("a", b"b")}, r"mine has b'b' among its feature names; give text"),
        ({"label_names": ("x", "y", float("nan"))}, "mine has nan among its label names; give"),
    ],
)
def test_arrays_that_make_no_dataset_are_reported(changes: dict[str, Any], sentence: str) -> None:
    fitting = {
        "name": "mine",
        "X": np.ones((5, 2)),
        "Y": np.ones((5, 3)),
        "feature_names": ("a", "b"),
        "label_names": ("x", "y", "z"),
    }
    MultiLabelData(**fitting)
    with pytest.raises(DataError, match=sentence):
        MultiLabelData(**(fitting | changes))


@pytest.mark.parametrize("names", [np.array(["a", "b"]), pd.Index(["a", "b"]), ["a", "b"]])
def test_names_of_any_kind_become_plain_text(names: Any) -> None:
    data = MultiLabelData("mine", np.ones((5, 2)), np.ones((5, 2)), names, range(2))  # type: ignore[arg-type]
    assert (data.feature_names, data.label_names) == (("a", "b"), ("0", "1"))
    assert {type(name) for name in data.feature_names} == {str}


def test_saved_files_hold_no_pickle(tmp_path: Path) -> None:
    save(sample(True), tmp_path / "set.npz")
    with np.load(tmp_path / "set.npz", allow_pickle=False) as archive:
        assert {archive[key].dtype.hasobject for key in archive} == {False}


def test_a_failed_save_leaves_nothing(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
    try:
        with pytest.raises(DataError, match=r"cannot be written \(File too large\)"):
            save(sample(False), tmp_path / "a.npz")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_a_strangers_file_is_not_overwritten_by_save(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez(tmp_path / "theirs.npz", X=np.ones(3), meta=np.array([1]))
    for content in (b"notes", b"", (tmp_path / "theirs.npz").read_bytes()):
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"{path}: was not written by .*, and is left alone;"):
            save(sample(False), path)
        assert path.read_bytes() == content
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match="is left alone"):
        save(sample(False), path)
    path.rmdir()
    save(sample(False), path)
    save(sample(True), path)  # one's own may be replaced
    assert_same(load(path), sample(True))
    assert sorted(found.name for found in tmp_path.iterdir()) == ["set.npz", "theirs.npz"]


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written"):
        save(sample(False), tmp_path / "nowhere" / "set.npz")


def test_arrays_of_other_people(tmp_path: Path) -> None:
    path = tmp_path / "theirs.npz"
    X, Y = np.arange(6).reshape(3, 2), np.array([[True], [False], [True]])
    np.savez_compressed(path, X=X, Y=Y, label_names=np.array(["only"]))
    data = load(path)
    assert (data.name, data.feature_names, data.label_names) == (
        "theirs",
        ("feature_0", "feature_1"),
        ("only",),
    )
    assert data.X.dtype == np.float32
    assert data.Y.ravel().tolist() == [1, 0, 1]
    np.savez(path, X=np.asfortranarray(X), Y=Y, label_names=np.array([b"caf\xc3\xa9"]))
    np.testing.assert_array_equal(load(path).X, X)
    assert load(path).label_names == ("caf\u00e9",)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was loaded",))


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in members.items():
            target.writestr(f"{name}.npy", content)
    return path


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), allow_pickle=True)
    return stream.getvalue()


def declared(shape: str) -> bytes:
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(80)


ONE = npy(np.ones((2, 1), np.uint8))
BAD_NPZ: dict[str, tuple[dict[str, bytes], str]] = {
    "objects": ({"X": npy(np.array([[Evil()]], dtype=object)), "Y": ONE}, "Python objects"),
    "no Y": ({"X": ONE}, "has no array 'Y'"),
    "nothing": ({}, "has no array 'X'"),
    "huge shape": ({"X": declared("(10**12,)"), "Y": ONE}, "damaged|declares"),
    "large shape": ({"X": declared("(1000000000, 1000)"), "Y": ONE}, "more than the file holds"),
    "negative shape": ({"X": declared("(-2, -5)"), "Y": ONE}, "damaged|more than"),
    "cut": ({"X": npy(np.ones((50, 2)))[:-100], "Y": ONE}, "not as long as it says|more than"),
    "no array": ({"X": b"hello", "Y": ONE}, "damaged"),
    "rows differ": ({"X": npy(np.ones((3, 1))), "Y": ONE}, "X has 3 rows and Y has 2"),
    "flat": ({"X": npy(np.ones(2)), "Y": ONE}, "X is 1-dimensional"),
    "text": ({"X": npy(np.array([["a"], ["b"]])), "Y": ONE}, "a two-dimensional table of numbers"),
    "label 2": ({"X": ONE, "Y": npy(np.array([[1], [2]]))}, "row 1 .*has 2 as label"),
    "label nan": ({"X": ONE, "Y": npy(np.array([[np.nan], [1]]))}, "row 0 .*has nan as label"),
    "not finite": ({"X": npy(np.array([[1], [np.inf]])), "Y": ONE}, "row 1 .*has inf as"),
    "names": (
        {"X": ONE, "Y": ONE, "label_names": npy(np.array(["a", "b"]))},
        "2 label names for 1",
    ),
    "meta": ({"X": ONE, "Y": ONE, "meta": npy(np.frombuffer(b"{", np.uint8))}, "is damaged"),
    "format": (
        {"X": ONE, "Y": ONE, "meta": npy(np.frombuffer(b'{"format": "d2ace-9"}', np.uint8))},
        "has format 'd2ace-9'",
    ),
    "sparse": (
        {f"X_{part}": npy(np.array([5, 7])) for part in ("data", "indices", "indptr", "shape")}
        | {"Y": ONE},
        "broken sparse table 'X'",
    ),
    "stored twice": (
        {"X": ONE, "Y_data": npy(np.array([1, 1])), "Y_indices": npy(np.array([0, 0]))}
        | {"Y_indptr": npy(np.array([0, 0, 2])), "Y_shape": npy(np.array([2, 1]))},
        "row 1 .*has 2 as label",
    ),
}


@pytest.mark.parametrize("case", BAD_NPZ)
def test_bad_npz(case: str, tmp_path: Path) -> None:
    members, words = BAD_NPZ[case]
    path = archive(tmp_path / "bad.npz", **members)
    with pytest.raises(DataError, match=words) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_pickle_or_a_zip_bomb_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(DataError, match="not an NPZ archive"):
        load(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as target:  # far beyond what deflate reaches
        target.writestr("X.npy", bytes(1 << 27))
    with pytest.raises(DataError, match="expand to 128 MiB"):
        load(path)


# --- MATLAB ------------------------------------------------------------------------------------


@pytest.mark.parametrize("transposed", [False, True])
def test_mat_in_either_orientation(transposed: bool, tmp_path: Path) -> None:
    data, path = sample(False), tmp_path / "set.mat"
    scipy.io.savemat(path, {"data": data.X, "target": data.Y.T if transposed else data.Y})
    got = load(path)
    np.testing.assert_array_equal(got.X, data.X)
    np.testing.assert_array_equal(got.Y, data.Y)


def test_mat_with_signs_and_sparse_tables(tmp_path: Path) -> None:
    data, path = sample(True), tmp_path / "set.mat"
    signs = data.Y.toarray().astype(float).T * 2 - 1
    scipy.io.savemat(path, {"data": data.X.astype(float), "target": sp.csc_matrix(signs)})
    got = load(path)
    np.testing.assert_array_equal(got.X.toarray(), data.X.toarray())
    np.testing.assert_array_equal(got.Y.toarray(), data.Y.toarray())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"data": np.ones((2, 2))}, "has no variables 'data' and 'target'"),
        ({"data": np.ones((2, 2)), "target": np.ones((5, 5))}, "X has 2 rows and Y has 5"),
        ({"data": np.ones((2, 2)), "target": np.full((1, 2), 3)}, "has 3 as label"),
        ({"data": np.array([["a"]]), "target": np.ones((1, 1))}, "table of numbers"),
        ({"data": np.ones((3, 2)), "target": np.array([[1, 0, -1]])}, "labels of -1 and of 0"),
        (
            {"data": np.ones((3, 2)), "target": sp.csc_matrix([[1.0, 0, -1]])},
            "labels of -1 and of 0",
        ),
    ],
)
def test_bad_mat(content: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.mat"
    scipy.io.savemat(path, content)
    with pytest.raises(DataError, match=words):
        load(path)
    path.write_bytes(path.read_bytes()[:150])
    with pytest.raises(DataError, match=r"bad\.mat"):
        load(path)


def test_the_circulating_mat_files(data_root: Path) -> None:
    for number in (1, 2, 3):
        name = f"rcv1subset{number}"
        data = load(data_root / name / f"{name}_top944.mat")
        assert (data.n, data.d, data.q) == (6000, 944, 101)
        with pytest.warns(UserWarning, match="circulate"):
            whole = load(data_root / name / f"{name}.arff.gz", cache=False)
        np.testing.assert_array_equal(data.Y, whole.Y.toarray())


# --- LibSVM ------------------------------------------------------------------------------------

LIBSVM = "2,5 1:0.5 3:-1e-2\n# a comment\n 3:4\n7 2:1   # at the end\n\n5,2,7 1:1 2:2 3:3\n1:9\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_libsvm(tmp_path: Path, newline: str) -> None:
    path = tmp_path / "set.svm"
    path.write_bytes(LIBSVM.replace("\n", newline).encode())
    data = load(path, cache=False)
    assert data.label_names == ("label_2", "label_5", "label_7")
    assert data.feature_names == ("index_1", "index_2", "index_3")
    expected = [[0.5, 0, -0.01], [0, 0, 4], [0, 1, 0], [1, 2, 3], [9, 0, 0]]
    np.testing.assert_array_equal(data.X.toarray(), np.array(expected, dtype=np.float32))
    labels = [[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 1, 1], [0, 0, 0]]
    np.testing.assert_array_equal(data.Y.toarray(), labels)
    assert data.Y.dtype == np.uint8


def test_libsvm_agrees_with_scikit_learn(tmp_path: Path) -> None:
    from sklearn.datasets import dump_svmlight_file, load_svmlight_file

    rng = np.random.default_rng(0)
    X = (rng.random((200, 30)) * rng.integers(0, 2, (200, 30))).astype(np.float32)
    Y = rng.integers(0, 2, (200, 5))
    path = tmp_path / "set.libsvm"
    dump_svmlight_file(X, Y, str(path), multilabel=True, zero_based=False)
    theirs, labels = load_svmlight_file(str(path), multilabel=True, zero_based=False)
    ours = load(path, cache=False)
    np.testing.assert_array_equal(ours.X.toarray(), theirs.toarray().astype(np.float32))
    rows = [tuple(float(j) for j in np.flatnonzero(row)) for row in ours.Y.toarray()]
    assert rows == [tuple(sorted(row)) for row in labels]


def test_libsvm_with_sizes_parts_and_gzip(tmp_path: Path) -> None:
    path = tmp_path / "set.txt.gz"
    path.write_bytes(gzip.compress(b"2 4 6\n0,5 0:1 3:2\n2 1:1\n"))
    data = load(path, cache=False)
    assert (data.n, data.d, data.q, data.name) == (2, 4, 6, "set")
    for name, text in (("a.svm", "1 1:1\n"), ("b.svm", "3 5:2\n")):
        (tmp_path / name).write_text(text)
    joined = load([tmp_path / "a.svm", tmp_path / "b.svm"], cache=False)
    assert joined.X.toarray().tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 0, 2]]
    assert joined.Y.toarray().tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("1 1:1\nx 1:1\n", 2, "'x' is no label"),
        ("1 1:1\n1 a:1\n", 2, "'a' is no feature index"),
        ("1 1:1\n1 2:b\n", 2, "'b' is not a number"),
        ("1 1:1\n1 2:1e99\n", 2, "'1e99' is not a number that a 32-bit"),
        ("1 1:1\n1 2\n", 2, "'2' is not a pair"),
        ("1 1:1\n1 1:2:3\n", 2, "not a"),
        ("1 1:1 1:2\n", 1, "gives feature 1 twice"),
        ("1,1 1:1\n", 1, "gives label 1 twice"),
        ("-1 1:1\n", 1, "'-1' is no label"),
        ("1 qid:3 1:1\n", 1, "'qid' is no feature index"),
        ("1 2 2\n1 5:1\n", 1, "beyond the sizes"),
        ("1 2 2\n5 1:1\n", 1, "beyond the sizes"),
    ],
)
def test_bad_libsvm(text: str, line: int, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.svm"
    path.write_text(text)
    with pytest.raises(DataError, match=words) as caught:
        load(path, cache=False)
    assert str(caught.value).startswith(f"{path}, line {line}: ")


@pytest.mark.parametrize("text", ["# nothing\n", "\n\n", "1\n2\n", " 1:1\n", "\0\0"])
def test_libsvm_without_content(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.svm"
    path.write_text(text)
    with pytest.raises(DataError, match=r"no rows|no features|binary"):
        load(path, cache=False)


def test_options_that_do_not_apply(tmp_path: Path) -> None:
    (tmp_path / "set.svm").write_text("1 1:1\n")
    save(sample(False), tmp_path / "set.npz")
    for name in ("set.svm", "set.npz"):
        with pytest.raises(UnknownDataError, match="apply to ARFF files only"):
            load(tmp_path / name, labels=2)
    with pytest.raises(UnknownDataError, match="different formats"):
        load([tmp_path / "set.svm", tmp_path / "set.npz"])
    with pytest.raises(UnknownDataError, match=r"set\.npz\.gz: \.npz files are .* decompress it"):
        load(tmp_path / "set.npz.gz")
    with pytest.raises(UnknownDataError, match="can be joined"):
        load([tmp_path / "set.npz", tmp_path / "set.npz"])
    with pytest.raises(
        UnknownDataError, match="nominal='binary' is unknown; use ordinal or onehot"
    ):
        load(tmp_path / "set.svm", nominal="binary")  # type: ignore[arg-type]


def test_a_file_that_holds_fewer_rows_than_it_declares(tmp_path: Path) -> None:
    cut = tmp_path / "cut.svm"
    cut.write_text("1000 3 4\n0 0:1\n1,3 2:1\n")
    with pytest.raises(DataError, match="declares 1000 rows but holds 2"):
        load(cut)


def test_parts_of_other_sizes_do_not_belong_together(tmp_path: Path) -> None:
    one, other = tmp_path / "one.svm", tmp_path / "other.svm"
    one.write_text("1 3 4\n0 0:1\n")
    other.write_text("1 9 9\n0 0:1\n")
    with pytest.raises(DataError, match="declares other sizes"):
        load([one, other])


def test_the_mark_of_windows_editors_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "marked.arff"
    text = "@relation r\n@attribute x numeric\n@attribute y {0,1}\n@data\n2,1\n"
    path.write_text(text, encoding="utf-8-sig")
    data = load(path, labels=np.int64(1))
    assert (data.X.tolist(), data.Y.tolist()) == ([[2.0]], [[1]])
    with pytest.raises(DataError, match=r"labels=1\.0 is neither"):
        load(path, labels=1.0)  # type: ignore[arg-type]
