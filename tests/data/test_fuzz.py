"""Random damage to real files: the readers refuse it or read it, and do nothing else."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from mutation import check, mutate, seeds

from d2ace.data import MultiLabelData, save


@pytest.mark.filterwarnings("ignore::d2ace.data.DataWarning")
@pytest.mark.parametrize("name", ["flags", "emotions", "Corel5k"])
def test_mutated_arff(name: str, data_root: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(sum(map(ord, name)))
    content = seeds(data_root)[name]
    listed = next(data_root.glob(f"*/{name}.xml")).read_bytes()
    path = tmp_path / f"{name}.arff"
    read = 0
    for round_ in range(150):
        path.write_bytes(mutate(rng, content))
        path.with_suffix(".xml").write_bytes(mutate(rng, listed) if round_ % 5 == 0 else listed)
        read += check(path, nominal="onehot" if round_ % 2 else "ordinal")
    assert 0 < read < 150


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("suffix", [".svm", ".npz", ".mat", ".arff.gz"])
def test_mutated_other_formats(suffix: str, tmp_path: Path, data_root: Path) -> None:
    rng = np.random.default_rng(sum(map(ord, suffix)))
    X, Y = rng.random((20, 6)).astype(np.float32), rng.integers(0, 2, (20, 3)).astype(np.uint8)
    path = tmp_path / f"set{suffix}"
    if suffix == ".svm":
        path.write_text("".join(f"{i % 3},{i % 3 + 1} 1:{i / 7} 4:{i}\n" for i in range(20)))
    elif suffix == ".npz":
        save(MultiLabelData("set", X, Y, tuple("abcdef"), tuple("xyz")), path)
    elif suffix == ".mat":
        scipy.io.savemat(path, {"data": X, "target": Y.T}, do_compression=True)
    else:
        path.write_bytes(gzip.compress((data_root / "flags" / "flags.arff").read_bytes()))
    options = {"labels": 7} if "arff" in suffix else {}
    content = path.read_bytes()
    assert check(path, **options)
    for _ in range(150):
        path.write_bytes(mutate(rng, content))
        check(path, **options)
