"""What every image reader returns: where the images are, and their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from d2ace._util.hints import did_you_mean
from d2ace.data.container import DataError, UnknownDataError

from .tree import Tree, inside

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class ImageData:
    """Images with several labels each; no pixel is read before it is asked for.

    ``files[i]`` lies below ``tree.root``, a folder or a zip archive. ``Y`` [n, q] is CSR, 0/1,
    uint8. ``splits[i]`` numbers the split of row i in ``split_names``.
    """

    name: str
    tree: Tree
    files: tuple[str, ...]
    Y: sp.csr_matrix
    label_names: tuple[str, ...]
    split_names: tuple[str, ...]
    splits: npt.NDArray[np.int64]

    @property
    def n(self) -> int:
        """Number of images."""
        return len(self.files)

    @property
    def q(self) -> int:
        """Number of labels."""
        return int(self.Y.shape[1])

    @property
    def cardinality(self) -> float:
        """Mean number of labels per image."""
        return float(self.Y.sum(dtype=np.int64)) / self.n if self.n else 0.0

    def place(self, row: int) -> str:
        """Where the image of a row is: a path, or archive and member."""
        return self.tree.place(self.files[row])

    def rows(self, split: str) -> Rows:
        """The rows of a split, in order."""
        if split not in self.split_names:
            known = ", ".join(self.split_names)
            raise UnknownDataError(f"{self.name!r} has no split {split!r}; it has: {known}")
        return np.flatnonzero(self.splits == self.split_names.index(split))

    def subset(self, rows: Sequence[int] | npt.NDArray[Any]) -> ImageData:
        """These rows only, in this order; a mask [n] works too."""
        chosen = np.arange(self.n)[np.asarray(rows)]
        return replace(
            self,
            files=tuple(self.files[row] for row in chosen),
            Y=self.Y[chosen],
            splits=self.splits[chosen],
        )

    def with_labels(self, columns: Sequence[int] | npt.NDArray[Any]) -> ImageData:
        """These labels only, in this order; images that lose all their labels stay."""
        chosen = np.arange(self.q)[np.asarray(columns)]
        names = tuple(self.label_names[column] for column in chosen)
        return replace(self, Y=sp.csr_matrix(self.Y[:, chosen]), label_names=names)

    def __repr__(self) -> str:
        """Name and sizes on one line."""
        splits = ", ".join(f"{name} {len(self.rows(name))}" for name in self.split_names)
        return f"ImageData({self.name!r}, n={self.n} ({splits}), q={self.q})"


@dataclass(frozen=True)
class ImageSplit:
    """One split as a reader finds it: names of image files, and the label numbers of each."""

    split: str
    files: list[str]
    labels: list[list[int]]


def image_data(
    name: str, tree: Tree, label_names: Sequence[str], parts: Sequence[ImageSplit]
) -> ImageData:
    """A dataset of its parts; an image that occurs twice, also in two splits, is refused."""
    names = tuple(label_names)
    if not names or len(set(names)) < len(names):
        twice = next((label for label in names if names.count(label) > 1), None)
        what = f"names the label {twice!r} twice" if twice else "has no labels"
        raise DataError(f"{tree.root}: {what}; every label needs a name of its own")
    home: dict[str, str] = {}
    for part in parts:
        if not part.files:
            raise DataError(f"{tree.root}: the split {part.split!r} holds no images")
        for file in part.files:
            key = inside(file, str(tree.root))
            if key in home:
                both = f"in {home[key]!r} and again in {part.split!r}"
                raise DataError(
                    f"{tree.place(file)}: is listed {both}; an image must occur once, or what is "
                    "tested was trained on"
                )
            home[key] = part.split
    counts = np.array([len(set(one)) for part in parts for one in part.labels])
    indices = np.array(
        [label for part in parts for one in part.labels for label in sorted(set(one))],
        dtype=np.int32,
    )
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    ones = np.ones(indices.size, dtype=np.uint8)
    Y = sp.csr_matrix((ones, indices, indptr), shape=(len(home), len(names)))
    splits = np.repeat(np.arange(len(parts)), [len(part.files) for part in parts])
    split_names = tuple(part.split for part in parts)
    return ImageData(name, tree, tuple(home), Y, names, split_names, splits)


def missing_rows(data: ImageData) -> Rows:
    """Rows whose image file is not there, found by listing each folder once."""
    folders: dict[str, frozenset[str]] = {}
    absent = []
    for row, file in enumerate(data.files):
        folder, _, name = file.rpartition("/")
        if folder not in folders:
            folders[folder] = frozenset(data.tree.names(folder))
        if name not in folders[folder]:
            absent.append(row)
    return np.array(absent, dtype=np.int64)


def chosen_splits(split: str | None, known: list[str], place: str) -> list[str]:
    """The one split asked for, or all of them."""
    if not known:
        raise DataError(f"{place}: holds no split")
    if split is None:
        return known
    if split not in known:
        hint = did_you_mean(split, known) or f"; there is: {', '.join(known)}"
        raise UnknownDataError(f"{place}: has no split {split!r}{hint}")
    return [split]
