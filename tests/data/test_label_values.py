"""Labels are 0 and 1, in MATLAB files also -1 and +1; whatever else is there is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
import torch

from d2ace.data import DataError, MultiLabelData, folds, load, prepare

N = 4


def mat(path: Path, Y: Any) -> Path:
    """A MATLAB file with ``target`` [q, n], as its authors have it."""
    scipy.io.savemat(path, {"data": np.ones((N, 2)), "target": Y.T})
    return path


def npz(path: Path, Y: Any) -> Path:
    arrays = {"X": np.ones((N, 2))}
    if sp.issparse(Y):
        csr = sp.csr_matrix(Y)
        arrays |= {f"Y_{part}": getattr(csr, part) for part in ("data", "indices", "indptr")}
        arrays["Y_shape"] = np.array(csr.shape)
    else:
        arrays["Y"] = Y
    np.savez(path, **arrays)
    return path


def labels(*odd: float, others: tuple[float, ...] = (1, 0, 1, 0, 1, 1)) -> Any:
    """[4, 2]; the odd ones stand last."""
    cells = [*(2 * N * others)[: 2 * N - len(odd)], *odd]
    return np.array(cells, dtype=float).reshape(N, 2)


SIGNS = (1, -1, -1, 1, -1, 1)


@pytest.mark.parametrize("sparse", [False, True])
def test_matlab_labels_may_be_signs(sparse: bool, tmp_path: Path) -> None:
    Y = labels(others=SIGNS)
    read = load(mat(tmp_path / "set.mat", sp.csc_matrix(Y) if sparse else Y)).Y
    read = read.toarray() if sparse else read
    np.testing.assert_array_equal(read, Y > 0)
    assert read.dtype == np.uint8


@pytest.mark.parametrize("value", [-999.0, -0.5, 2.0, 0.5, np.nan, np.inf, -np.inf, 1e-300])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize(("write", "others"), [(mat, (1, 0)), (mat, SIGNS), (npz, (1, 0))])
def test_any_other_value_is_named(
    write: Any, sparse: bool, others: Any, value: float, tmp_path: Path
) -> None:
    Y = labels(value, 1.0, others=others)
    path = write(tmp_path / f"set.{write.__name__}", sp.csc_matrix(Y) if sparse else Y)
    with pytest.raises(DataError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: row 3 ")
    assert f"has {value} as label 'label_0'" in message
    assert "write 0 or 1" in message


@pytest.mark.parametrize("sparse", [False, True])
def test_signs_and_zeros_together_are_refused(sparse: bool, tmp_path: Path) -> None:
    Y = labels(-1.0, 0.0, others=(1, 1))
    with pytest.raises(DataError, match=r"has labels of -1 and of 0, .* use 0/1 or -1/\+1"):
        load(mat(tmp_path / "set.mat", sp.csc_matrix(Y) if sparse else Y))


def test_a_sign_that_is_stored_twice_is_no_label(tmp_path: Path) -> None:
    """Two -1 in one cell are -2; a cell that is left out beside them is 0, not -1."""
    twice = sp.csc_matrix(
        (np.array([-1.0, -1.0, 1.0, 1.0]), np.array([0, 0, 0, 0]), np.array([0, 2, 3, 4, 4])),
        shape=(1, N),
    )
    scipy.io.savemat(tmp_path / "set.mat", {"data": np.ones((N, 2)), "target": twice})
    with pytest.raises(DataError, match=r"row 0 .* has -2.0 as label 'label_0'"):
        load(tmp_path / "set.mat")


def test_signs_outside_matlab_files_are_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"row 0 .* has -1.0 as label 'label_1'; write 0 or 1"):
        load(npz(tmp_path / "set.npz", labels(others=SIGNS)))


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint8, np.int64, np.float16, np.float32])
def test_zeros_and_ones_of_any_kind_are_labels(kind: Any, tmp_path: Path) -> None:
    Y = labels().astype(kind)
    for path in (mat(tmp_path / "set.mat", Y.astype(float)), npz(tmp_path / "set.npz", Y)):
        np.testing.assert_array_equal(load(path).Y, labels())


@pytest.mark.parametrize("value", ["-1", "2", "0.5", "-999", "1e-60", "0.99999999999"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_an_arff_label_of_another_value_is_named(sparse: bool, value: str, tmp_path: Path) -> None:
    path = tmp_path / "set.arff"
    head = "@relation r\n@attribute x numeric\n@attribute l numeric\n@data\n"
    path.write_text(head + (f"{{0 1,1 1}}\n{{1 {value}}}\n" if sparse else f"1,1\n0,{value}\n"))
    with pytest.raises(DataError) as caught:
        load(path, labels=1, cache=False)
    assert str(caught.value) == (
        f"{path}, line 6: has {value} as label 'l'; write 0 or 1, the only labels."
    )


@pytest.mark.parametrize("value", ["-1", "+1.5", "0.5", "x", "nan"])
def test_a_libsvm_label_is_a_whole_number(value: str, tmp_path: Path) -> None:
    path = tmp_path / "set.svm"
    path.write_text(f"1 1:1\n{value} 1:1\n")
    with pytest.raises(DataError, match=r"line 2: '.*' is no label, a whole number from 0"):
        load(path, cache=False)


@pytest.mark.parametrize("value", [-1.0, 2.0, 0.5, np.nan])
def test_labels_made_in_python_are_checked_before_they_are_used(value: float) -> None:
    Y = labels(value, 1.0)
    data = MultiLabelData("mine", np.ones((N, 2), np.float32), Y, ("a", "b"), ("k", "l"))
    with pytest.raises(DataError, match=rf"Y\[3, 0\] is {value}, but labels must be 0 or 1"):
        prepare(data, min_positives=0)
    for given in (Y, torch.tensor(Y), sp.csr_matrix(Y), sp.coo_matrix(Y), Y.tolist()):
        with pytest.raises(DataError, match=rf"Y\[3, 0\] is {value}, but labels must be 0 or 1"):
            folds(given, 2)


def test_words_are_no_labels() -> None:
    for given in ([["yes", "no"]] * N, np.full((N, 2), None), np.full((N, 2), "1")):
        with pytest.raises(DataError, match="Y must hold real numbers"):
            folds(given, 2)
