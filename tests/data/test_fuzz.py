"""Random damage to real files: the readers refuse it or read it, and do nothing else."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from d2ace.data import DataError, MultiLabelData, load, save

PIECES = [
    b"{",
    b"}",
    b",",
    b"\n",
    b" ",
    b"'",
    b'"',
    b"?",
    b"%",
    b"\\",
    b"@data\n",
    b"@attribute",
    b"-",
]
PIECES += [
    b"1e999",
    b"nan",
    b"9" * 30,
    b"\0",
    b"\xff",
    b"\r",
    b"\t",
    b":",
    b"0",
    b"1",
    b".",
    b"<",
    b"&",
]


def mutate(rng: np.random.Generator, content: bytes) -> bytes:
    """One to three small accidents: cut, repeat, overwrite, insert, swap, another digit."""
    for _ in range(int(rng.integers(1, 4))):
        if not content:
            return content
        i, j = sorted(int(k) for k in rng.integers(0, len(content) + 1, size=2))
        match int(rng.integers(0, 8)):
            case 0:
                content = content[:j]
            case 1:
                content = content[:i] + content[min(j, i + 40) :]
            case 2:
                content = content[:i] + content[i : i + 200] + content[i:]
            case 3:
                content = content[:i] + rng.bytes(int(rng.integers(1, 4))) + content[i + 1 :]
            case 4:
                piece = PIECES[int(rng.integers(0, len(PIECES)))]
                content = content[:i] + piece + content[i + int(rng.integers(0, 2)) :]
            case 5:
                content = content[:i] + content[j : j + 30] + content[i + 30 :]
            case _:
                digit = b"0123456789.-"[int(rng.integers(0, 12))]
                content = content[:i] + bytes([digit]) + content[i + 1 :]
    return content


def check(path: Path, **options: object) -> bool:
    """Whether the file was read; anything but data or a `DataError` comes through."""
    try:
        data = load(path, cache=False, **options)  # type: ignore[arg-type]
    except DataError:
        return False
    assert isinstance(data, MultiLabelData)
    assert data.X.shape == (data.n, len(data.feature_names))
    assert data.Y.shape == (data.n, len(data.label_names))
    return True


def seeds(data_root: Path) -> dict[str, bytes]:
    dense = (data_root / "emotions" / "emotions-test.arff").read_bytes()
    sparse = (data_root / "corel5k" / "Corel5k-test-sparse.arff").read_bytes()
    return {
        "flags": (data_root / "flags" / "flags.arff").read_bytes(),
        "emotions": dense[: dense.index(b"\n", dense.index(b"@data") + 6000)],
        "Corel5k": sparse[: sparse.index(b"\n", sparse.index(b"@data") + 4000)],
    }


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
