"""Small files that would take gigabytes if they were believed: refused before memory is taken."""

from __future__ import annotations

import gzip
import io
import json
import struct
import subprocess
import sys
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from d2ace.data import DataError, load
from d2ace.data.images import load_images

ZEROS = 128 << 20
RUN = """
import json, resource, sys
from d2ace.data import DataError, load
from d2ace.data.images import load_images
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for kind, path in json.loads(sys.argv[1]):
    try:
        load(path, cache=False) if kind == "table" else load_images(kind, path)
    except DataError as error:
        print(error)
    else:
        print(path, "was read")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
HEAD = "{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d), }"


def deflated(head: bytes, wbits: int = zlib.MAX_WBITS) -> bytes:
    """``head`` and 128 MiB of zeros, never held in memory."""
    packer = zlib.compressobj(1, wbits=wbits)
    pieces = [packer.compress(head)]
    pieces += [packer.compress(bytes(1 << 22)) for _ in range(ZEROS >> 22)]
    return b"".join([*pieces, packer.flush()])


def archive(path: Path, member: str, head: bytes = b"") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as target:
        with target.open(member, "w") as stream:
            stream.write(head)
            for _ in range(ZEROS >> 22):
                stream.write(bytes(1 << 22))
        for other, content in OTHERS.items():
            target.writestr(other, content)
    return path


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array)
    return stream.getvalue()


OTHERS = {"Y.npy": npy(np.ones((4, 1), np.uint8)), "annotations/instances_val2014.json": b"{}"}


def npz_of_zeros(folder: Path) -> Path:
    head = (HEAD % (4, ZEROS // 4)).encode()
    head = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head
    return archive(folder / "zeros.npz", "X.npy", head)


def npz_of_many_columns(folder: Path) -> Path:
    parts = {"data": np.ones(1), "indices": np.zeros(1, np.int64), "indptr": np.array([0, 1])}
    np.savez(folder / "wide.npz", Y=np.ones((1, 1)), X_shape=np.array([1, 10**9]),
             **{f"X_{part}": value for part, value in parts.items()})  # fmt: skip
    return folder / "wide.npz"


def element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def variable(name: bytes, cls: int, dims: tuple[int, int], data: bytes) -> bytes:
    """The inside of a MATLAB matrix, ``data`` being its last element (or the start of it)."""
    return (
        element(6, struct.pack("<II", cls, 1))
        + element(5, struct.pack("<ii", *dims))
        + element(1, name)
        + data
    )


def matlab(path: Path, *variables: bytes) -> Path:
    head = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    path.write_bytes(head + b"".join(variables))
    return path


def packed_zeros(dims: tuple[int, int]) -> bytes:
    """``data`` [4, 64 Mi] of uint8, as MATLAB packs whole numbers."""
    inside = variable(b"data", 9, dims, struct.pack("<II", 2, ZEROS))
    stream = deflated(struct.pack("<II", 14, len(inside) + ZEROS) + inside)
    return struct.pack("<II", 15, len(stream)) + stream


TARGET = element(14, variable(b"target", 9, (1, 4), element(2, bytes([1, 1, 1, 1]))))


def mat_of_zeros(folder: Path) -> Path:
    return matlab(folder / "zeros.mat", packed_zeros((4, ZEROS // 4)), TARGET)


def mat_that_lies(folder: Path) -> Path:
    return matlab(folder / "lies.mat", packed_zeros((4, 4)), TARGET)


def mat_of_cells(folder: Path) -> Path:
    cells = element(14, variable(b"data", 1, (10**5, 10**4), b""))
    return matlab(folder / "cells.mat", cells, TARGET)


def mat_of_empty_rows(folder: Path) -> Path:
    inside = element(5, struct.pack("<i", 0)) + element(5, struct.pack("<ii", 0, 1))
    inside += element(9, struct.pack("<d", 1.0))
    return matlab(
        folder / "rows.mat",
        element(14, variable(b"data", 5, (2 * 10**9, 1), inside)),
        element(14, variable(b"target", 5, (2 * 10**9, 1), inside)),
    )


def zipped_coco(folder: Path) -> Path:
    return archive(folder / "coco.zip", "annotations/instances_train2014.json")


def zipped_csv(folder: Path) -> Path:
    return archive(folder / "csv.zip", "labels.csv", b"image,l\n")


def packed_text(folder: Path) -> Path:
    (folder / "text.svm.gz").write_bytes(deflated(b"1 1:1\n", wbits=31))
    return folder / "text.svm.gz"


BOMBS = {
    npz_of_zeros: ("table", "expand to 128 MiB"),
    npz_of_many_columns: ("table", "X has 1000000000 columns; at most 2000000"),
    mat_of_zeros: ("table", "expand to"),
    mat_that_lies: ("table", "expand to"),
    mat_of_cells: ("table", "'data' is a MATLAB cell; a two-dimensional table of numbers"),
    mat_of_empty_rows: ("table", "expand to"),
    zipped_coco: ("coco", "expand to 128 MiB"),
    zipped_csv: ("csv", "expand to 128 MiB"),
    packed_text: ("table", "expand to"),
}


def test_bombs_are_refused_in_little_memory(tmp_path: Path) -> None:
    files = [(kind, make(tmp_path)) for make, (kind, _) in BOMBS.items()]
    named = json.dumps([(kind, str(path)) for kind, path in files])
    done = subprocess.run(
        [sys.executable, "-c", RUN, named], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *said, more = done.stdout.splitlines()
    for (_, path), (_, words), message in zip(files, BOMBS.values(), said, strict=True):
        assert path.stat().st_size < 2 << 20
        assert message.startswith(str(path))
        assert words in message
    assert int(more) < 200


def test_files_that_pack_well_are_read_all_the_same(tmp_path: Path) -> None:
    X, Y = np.zeros((2000, 500)), np.zeros((2000, 3), np.uint8)
    X[3, 4] = Y[0, 0] = 1
    np.savez_compressed(tmp_path / "set.npz", X=X, Y=Y)
    scipy.io.savemat(tmp_path / "set.mat", {"data": X, "target": Y.T}, do_compression=True)
    for name in ("set.npz", "set.mat"):
        assert (tmp_path / name).stat().st_size * 200 < X.nbytes
        np.testing.assert_array_equal(load(tmp_path / name).X, X)


def test_a_large_sparse_matlab_table_is_no_bomb(tmp_path: Path) -> None:
    """Cells that are left out take no memory: 30,000 x 100,000 of them are nothing."""
    rows = np.arange(30_000)
    X = sp.csc_matrix((rows + 1.0, (rows, 3 * rows)), shape=(30_000, 100_000))
    scipy.io.savemat(tmp_path / "set.mat", {"data": X, "target": np.ones((2, 30_000))})
    assert load(tmp_path / "set.mat").X.nnz == X.nnz


def test_a_table_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    with zipfile.ZipFile(path, "w") as target, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile's own, about the second X
        for name in ("X", "X", "Y"):
            target.writestr(f"{name}.npy", npy(np.ones((2, 1))))
    with pytest.raises(DataError, match="holds 'X' twice; leave one out"):
        load(path)
    data = element(14, variable(b"data", 9, (4, 1), element(2, bytes([1, 1, 1, 1]))))
    path = matlab(tmp_path / "set.mat", data, data, TARGET)
    with pytest.raises(DataError, match="holds 'data' twice; leave one out"):
        load(path)


LITTLE = """
import resource, sys
from d2ace.data import DataError, load
with open("/proc/self/statm") as file:
    now = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (100 << 20), now + (100 << 20)))
try:
    load(sys.argv[1], cache=False)
except DataError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process so")
def test_a_table_beyond_the_memory_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    with zipfile.ZipFile(path, "w") as target, target.open("X.npy", "w") as stream:
        head = (HEAD % (4, ZEROS // 4)).encode()
        stream.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
        for _ in range(ZEROS >> 22):
            stream.write(bytes(1 << 22))
    done = subprocess.run(
        [sys.executable, "-c", LITTLE, path], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith(f"{path}: needs more memory than there is"), done.stderr


@pytest.mark.parametrize("name", ["gz", "csv"])
def test_a_packed_text_that_is_cut_is_reported(name: str, tmp_path: Path) -> None:
    if name == "gz":
        path = tmp_path / "set.svm.gz"
        path.write_bytes(gzip.compress(b"1 1:1\n" * 10_000)[:-9])
        with pytest.raises(DataError, match=r"truncated or not a \.gz file"):
            load(path, cache=False)
    else:
        path = tmp_path / "set.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
            target.writestr("labels.csv", "image,l\n" + "a.jpg,1\n" * 1000)
        content = bytearray(path.read_bytes())
        content[60] ^= 255
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"labels\.csv: cannot be read"):
            load_images("csv", path)
