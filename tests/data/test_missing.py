"""Missing cells are remembered, and filled by what the training rows hold alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from d2ace.data import DataError, MultiLabelData, load, make_multilabel, prepare, save
from d2ace.data.readers.npz import read_npz
from d2ace.data.readers.source import Source

pytestmark = pytest.mark.filterwarnings("ignore::d2ace.data.DataWarning")

HEAD = """@relation gaps
@attribute size numeric
@attribute city {London, Paris, Rome}
@attribute open {no, yes}
@attribute label {0,1}
@attribute other {0,1}
@data
"""
ROWS = ["1,Rome,yes,1,0", "?,Rome,?,1,1", "3,?,no,0,1", "5,London,no,1,0", "90,Paris,yes,1,1"]
SPARSE = [
    "{0 1,1 Rome,2 yes,3 1}",
    "{0 ?,1 Rome,2 ?,3 1,4 1}",
    "{0 3,1 ?,4 1}",
    "{0 5,3 1}",
    "{0 90,1 Paris,2 yes,3 1,4 1}",
]
GAPS = [(1, 0), (1, 2), (2, 1)]


def gapped(folder: Path, rows: list[str] = ROWS, **options: Any) -> MultiLabelData:
    path = folder / "gaps.arff"
    path.write_text(HEAD + "\n".join(rows))
    return load(path, labels=2, **({"cache": False} | options))


def cells(data: MultiLabelData) -> list[tuple[int, int]]:
    assert data.missing is not None
    return list(zip(*(each.tolist() for each in data.missing.cells.nonzero()), strict=True))


def dense(X: Any) -> Any:
    return X.toarray() if sp.issparse(X) else X


@pytest.mark.parametrize("rows", [ROWS, SPARSE], ids=["dense", "sparse"])
def test_training_rows_alone_fill_missing_cells(tmp_path: Path, rows: list[str]) -> None:
    data = gapped(tmp_path, rows)
    assert sorted(cells(data)) == GAPS
    prepared = prepare(data, min_positives=1)
    fitted = prepared.fitted([0, 1, 2, 3])
    assert fitted.fill.tolist() == [3.0, 2.0, 0.0]  # of 1, 3, 5; of Rome, Rome, London; of no, ...
    changed = [*rows[:4], rows[4].replace("90", "-7").replace("Paris", "Rome")]
    again = prepare(gapped(tmp_path, changed), min_positives=1).fitted([0, 1, 2, 3])
    assert np.array_equal(dense(fitted.data.X)[:4], dense(again.data.X)[:4])
    raw = dense(again.data.X)[:4] * again.scaler.span + again.scaler.low
    assert raw == pytest.approx(np.array([[1, 2, 1], [3, 2, 0], [3, 2, 0], [5, 0, 0]]))


def test_one_hot_columns_of_an_attribute_are_filled_together(tmp_path: Path) -> None:
    data = gapped(tmp_path, nominal="onehot")
    assert data.feature_names == ("size", "city=London", "city=Paris", "city=Rome", "open")
    assert sorted(cells(data)) == [(1, 0), (1, 4), (2, 1), (2, 2), (2, 3)]
    fill = prepare(data, min_positives=1).fitted([2, 3, 4]).fill
    assert fill.tolist() == pytest.approx([98 / 3, 1, 0, 0, 0])


def test_dropped_rows_and_features_take_their_gaps_along(tmp_path: Path) -> None:
    rows = ["?,London,no,0,0", *ROWS]
    prepared = prepare(gapped(tmp_path, rows), min_positives=1, keep_features=0.67)
    assert prepared.features.tolist() == [0, 1]
    assert prepared.rows.tolist() == [1, 2, 3, 4, 5]
    assert sorted(cells(prepared.data)) == [(1, 0), (2, 1)]


def test_the_cache_and_saved_files_remember_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("D2ACE_CACHE", str(tmp_path / "cache"))
    for _ in range(2):
        assert sorted(cells(gapped(tmp_path, cache=True))) == GAPS
    data = gapped(tmp_path)
    save(data, tmp_path / "saved.npz")
    back = load(tmp_path / "saved.npz")
    assert sorted(cells(back)) == GAPS
    assert back.missing is not None
    assert back.missing.nominal.tolist() == [-1, 1, 2]
    with np.load(tmp_path / "saved.npz") as arrays:
        broken = dict(arrays) | {"nominal": np.zeros(2, dtype=np.int64)}
    np.savez(tmp_path / "broken.npz", **broken)
    with pytest.raises(DataError, match="tells of missing cells that X does not have"):
        read_npz(Source.read(tmp_path / "broken.npz"))


def test_joined_files_and_whole_ones(tmp_path: Path) -> None:
    (tmp_path / "a.arff").write_text(HEAD + "\n".join(ROWS[:2]))
    (tmp_path / "b.arff").write_text(HEAD + "\n".join(ROWS[2:]))
    both = load([tmp_path / "a.arff", tmp_path / "b.arff"], labels=2, cache=False)
    assert sorted(cells(both)) == GAPS
    assert gapped(tmp_path, [ROWS[0], *ROWS[3:]]).missing is None
    assert make_multilabel(20, 3, 5, seed=0).missing is None


def test_a_feature_without_any_known_cell_becomes_zero(tmp_path: Path) -> None:
    prepared = prepare(gapped(tmp_path), min_positives=1)
    assert prepared.fitted([1]).fill.tolist() == [0.0, 2.0, 0.0]
