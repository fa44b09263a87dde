"""Every ARFF file of the data folder, value for value against liac-arff."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import arff
import numpy as np
import pytest
import scipy.sparse as sp

from d2ace.data import load

PROJECT = Path(__file__).resolve().parents[2]
ROOT = Path(os.environ.get("D2ACE_DATA") or PROJECT.parent / "shared" / "data")
FILES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("*/*.arff*"))


def read_with_liac(path: Path) -> tuple[list[str], Any]:
    """Names, and the whole table with nominal values as positions."""
    stored = path.read_bytes()
    text = (gzip.decompress(stored) if path.suffix == ".gz" else stored).decode()
    sparse = text[text.lower().index("@data") + 5 :].lstrip().startswith("{")
    form = arff.LOD if sparse else arff.DENSE
    content = arff.loads(text, encode_nominal=True, return_type=form)
    names = [name for name, _ in content["attributes"]]
    if not sparse:
        return names, np.array(content["data"], dtype=np.float64).astype(np.float32)
    rows = list(content["data"])
    row = np.repeat(np.arange(len(rows)), [len(cells) for cells in rows])
    column = np.array([index for cells in rows for index in cells])
    value = np.array([value for cells in rows for value in cells.values()], dtype=np.float64)
    table = sp.csr_matrix((value.astype(np.float32), (row, column)), shape=(len(rows), len(names)))
    table.eliminate_zeros()
    return names, table


@pytest.mark.skipif(not FILES, reason=f"no real datasets: no ARFF files in {ROOT}")
@pytest.mark.parametrize("file", FILES or ["none"])
@pytest.mark.filterwarnings("ignore::d2ace.data.DataWarning")
def test_equal_to_liac_arff_value_for_value(file: str) -> None:
    ours = load(ROOT / file, drop=(), cache=False)
    names, table = read_with_liac(ROOT / file)
    # liac-arff takes the backslash out of one unquoted name; the label list has it.
    place = {name.replace("\\", ""): column for column, name in enumerate(names)}
    labels = [place[name.replace("\\", "")] for name in ours.label_names]
    features = [place[name.replace("\\", "")] for name in ours.feature_names]
    assert sorted(features + labels) == list(range(len(names)))
    assert labels == sorted(labels)
    for mine, theirs in ((ours.X, table[:, features]), (ours.Y, table[:, labels])):
        assert mine.shape == theirs.shape
        if sp.issparse(mine):
            theirs.sort_indices()
            assert mine.has_sorted_indices
            np.testing.assert_array_equal(mine.indptr, theirs.indptr)
            np.testing.assert_array_equal(mine.indices, theirs.indices)
            np.testing.assert_array_equal(mine.data, theirs.data)
        else:
            np.testing.assert_array_equal(mine, theirs)
