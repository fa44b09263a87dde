"""Label vectors Z [q, 300]: word vectors of the labels' names, or fixed random ones."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np
import numpy.typing as npt

from d2ace.data.container import UnknownDataError
from d2ace.data.readers.source import Source, fault, file_size, format_of, shown

DIMENSION = 300
SPREAD = 0.38
"""Standard deviation of the entries of the vectors that ML-GCN ships."""

COMPOUNDS = {
    "diningtable": "dining table",
    "pottedplant": "potted plant",
    "tvmonitor": "tv monitor",
}
"""Names of VOC that are two words."""

_WORD = re.compile(r"[^\W_]+")
_MAX_LINE = 1 << 20

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class LabelVectors:
    """``Z`` [q, d], a line that says where it comes from, and the labels without a known word."""

    Z: Floats
    source: str
    invented: tuple[str, ...]


def label_vectors(
    label_names: Sequence[str],
    path: str | os.PathLike[str] | None = None,
    *,
    seed: int = 0,
) -> LabelVectors:
    """Vectors of the labels, in the order of ``label_names``.

    Parameters
    ----------
    path
        A GloVe text file (``word number number ...`` in a line, ``.gz`` too): a label gets the mean
        of the vectors of its words. Or a ``.csv`` (``.csv.gz``) with a line for each label; the
        first cell is the label's name, or, where all cells are numbers, the lines follow the names
        *sorted by the alphabet*, as the files of ML-GCN do.
    seed
        Of the fallback. A label without any known word gets a vector of N(0, 0.38²) numbers, and so
        do all labels, with 300 numbers each, when there is no ``path``: ML-GCN and HST need
        distinct, fixed codes of the usual size, and lose only the meaning of the words.
    """
    names = [str(name) for name in label_names]
    if not names:
        raise UnknownDataError("label vectors need at least one label")
    if path is None:
        Z = _invented(len(names), DIMENSION, seed)
        return LabelVectors(Z, f"random, N(0, {SPREAD}²), seed {seed}", tuple(names))
    place = Path(path)
    if format_of(place) == ".csv":
        return LabelVectors(_from_csv(place, names), shown(place), ())
    words = {name: words_of(name) for name in names}
    known, dimension = _from_glove(place, {word for one in words.values() for word in one})
    Z, missing = _invented(len(names), dimension, seed), []
    for row, name in enumerate(names):
        found = [known[word] for word in words[name] if word in known]
        if found:
            Z[row] = np.mean(found, axis=0)
        else:
            missing.append(name)
    note = f", {len(missing)} of {len(names)} labels random" if missing else ""
    return LabelVectors(Z, f"{shown(place)}{note}", tuple(missing))


def words_of(name: str) -> list[str]:
    """The words of a label's name, in lower case: ``diningtable`` has two."""
    plain = name.lower()
    return _WORD.findall(COMPOUNDS.get(plain, plain))


def _invented(q: int, dimension: int, seed: int) -> Floats:
    numbers = np.random.default_rng(seed).normal(0.0, SPREAD, (q, dimension))
    return numbers.astype(np.float32)


def _from_csv(path: Path, names: list[str]) -> Floats:
    try:
        text = Source.read(path).expanded().decode("utf-8")
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise fault(path, None, f"is not a CSV file in UTF-8 ({error})") from None
    if not rows:
        raise fault(path, None, "holds no vectors")
    if not set(names) <= {row[0] for row in rows} and _is_number(rows[0][0]):
        if len(rows) != len(names):
            message = f"has {len(rows)} lines of numbers, but there are {len(names)} labels"
            raise fault(path, None, message + "; put the label's name in front of each line")
        vectors = {
            name: _numbers(row, path, line)
            for line, (name, row) in enumerate(zip(sorted(names), rows, strict=True), start=1)
        }
    else:
        vectors = {row[0]: _numbers(row[1:], path, line) for line, row in enumerate(rows, start=1)}
    missing = [name for name in names if name not in vectors]
    if missing:
        raise fault(path, None, f"has no line for the label {missing[0]!r} (of {len(missing)})")
    if len({vectors[name].size for name in names}) > 1:
        raise fault(path, None, "has lines of different lengths")
    return np.stack([vectors[name] for name in names])


def _from_glove(path: Path, wanted: Collection[str]) -> tuple[dict[str, Floats], int]:
    """Vectors of the wanted words and their length, line by line: such files have gigabytes."""
    keys = {word.encode(): word for word in wanted}
    found: dict[str, Floats] = {}
    dimension = None
    file_size(path)  # refuses what is no file
    try:
        with _opened(path) as stream:
            line = 0
            while content := stream.readline(_MAX_LINE):
                line += 1
                cells = content.split()
                if line == 1 and len(cells) == 2:
                    continue  # word2vec's text format starts with its two sizes
                dimension = dimension or len(cells) - 1
                # A few words of the largest GloVe file hold spaces; none of them is wanted.
                if len(cells) == dimension + 1 and cells[0] in keys:
                    texts = [cell.decode("ascii", "replace") for cell in cells[1:]]
                    found.setdefault(keys[cells[0]], _numbers(texts, path, line))
    except (OSError, EOFError, zlib.error) as error:
        raise fault(path, None, f"cannot be read ({error}); copy it again") from None
    if not dimension or dimension < 2:
        raise fault(path, None, "holds no vectors ('word number number ...' in a line)")
    return found, dimension


def _opened(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path) if path.suffix == ".gz" else path.open("rb"))


def _numbers(cells: Sequence[str], path: Path, line: int) -> Floats:
    try:
        vector = np.array(cells, dtype=np.float32)
    except ValueError:
        vector = np.array([np.nan], dtype=np.float32)
    if not vector.size or not np.isfinite(vector).all():
        raise fault(path, line, "does not hold finite numbers only")
    return vector


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
