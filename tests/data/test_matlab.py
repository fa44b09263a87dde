"""MATLAB files: read as SciPy reads them, and survived however they are damaged."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from d2ace.data import DataError, load

X = np.arange(12.0).reshape(4, 3)
Y = np.array([[1, 0], [0, 1], [1, 1], [0, 0]])

# Flipped bits may make SciPy's own reader end the process, so that a process is spent on them.
FLIP = """
import sys, warnings
from pathlib import Path
from d2ace.data import DataError, load
warnings.simplefilter("ignore")
for path in map(Path, sys.argv[1:]):
    good = path.read_bytes()
    for place in range(8 * 100, 8 * len(good), 5):
        damaged = bytearray(good)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            load(path)
        except DataError as error:
            assert str(error).startswith(str(path)), error
print("survived")
"""


def test_a_damaged_file_is_read_or_reported_and_ends_nothing(tmp_path: Path) -> None:
    paths = []
    for form in (np.asarray, sp.csc_matrix):
        for packed in (False, True):
            paths.append(tmp_path / f"{form.__name__}-{packed}.mat")
            content = {"data": form(X), "target": form(Y.T.astype(float))}
            scipy.io.savemat(paths[-1], content, do_compression=packed)
    command = [sys.executable, "-c", FLIP, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "survived\n", (done.returncode, done.stderr)


@pytest.mark.parametrize("kind", ["f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?"])
@pytest.mark.parametrize("packed", [False, True])
def test_numbers_of_every_kind_are_read(kind: str, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "set.mat"
    table = X.astype(kind)
    for columns in (3, 1):
        content = {"data": table[:, :columns], "target": Y.T.astype(kind), "other": "words"}
        scipy.io.savemat(path, content, do_compression=packed)
        data = load(path)
        np.testing.assert_array_equal(data.X, table[:, :columns].astype(np.float32))
        np.testing.assert_array_equal(data.Y, Y)
        assert data.X.flags.writeable
        assert data.X.flags.c_contiguous


def element(kind: int, content: bytes) -> bytes:
    return struct.pack(">II", kind, len(content)) + content + bytes(-len(content) % 8)


def test_files_of_machines_with_another_order_of_bytes_are_read(tmp_path: Path) -> None:
    def variable(name: bytes, table: Any) -> bytes:
        parts = (element(6, struct.pack(">II", 6, 0)), element(5, struct.pack(">ii", *table.shape)))
        cells = element(9, table.astype(">f8").tobytes(order="F"))
        return element(14, b"".join(parts) + element(1, name) + cells)

    head = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack(">H", 0x0100) + b"MI"
    path = tmp_path / "set.mat"
    path.write_bytes(head + variable(b"data", X) + variable(b"target", Y.T))
    data = load(path)
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.Y, Y)
    assert data.X.dtype.isnative


def test_complex_numbers_are_no_features(tmp_path: Path) -> None:
    path = tmp_path / "set.mat"
    scipy.io.savemat(path, {"data": X + 1j, "target": Y.T})
    with pytest.raises(DataError, match="it holds complex numbers"):
        load(path)
