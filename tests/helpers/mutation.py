"""Random damage to real files, shared by the tests and by ``benchmarks/arff.py --fuzz``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from d2ace.data import DataError, MultiLabelData, load

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
    """Real files, shortened where they are long: nominal, dense and sparse."""
    dense = (data_root / "emotions" / "emotions-test.arff").read_bytes()
    sparse = (data_root / "corel5k" / "Corel5k-test-sparse.arff").read_bytes()
    return {
        "flags": (data_root / "flags" / "flags.arff").read_bytes(),
        "emotions": dense[: dense.index(b"\n", dense.index(b"@data") + 6000)],
        "Corel5k": sparse[: sparse.index(b"\n", sparse.index(b"@data") + 4000)],
    }
