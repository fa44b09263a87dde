"""Nearest neighbours by Euclidean distance, and the labels found around each instance."""

from __future__ import annotations

import warnings
import zlib
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from d2ace._util import validation as inputs
from d2ace._util.errors import UserError
from d2ace._util.validation import as_array
from d2ace.selectors._engine.approximate_search import approximate_search
from d2ace.selectors._engine.exact_search import measured_rows, nearest_rows, within_range
from d2ace.selectors._engine.neighbor_files import NeighborFiles
from d2ace.selectors._engine.tree_search import tree_search

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from d2ace._util.callbacks import Progress

METHODS = ("auto", "exact", "tree", "approximate")
BLOCK = 1 << 24  # distances held at once: 64 MiB, whatever n is
LONG = 60.0
"""Seconds of one core from which "auto" approximates, or warns where it cannot."""
_TREE_ROWS, _TREE_WIDTH, _TREE_MOST = 4096, 10, 1_000_000
_TREE_WIDEST = 14  # where exact search is the alternative, not an approximate one
KEPT = 0.25
"""Seconds of one core from which it pays to keep the neighbours found."""
_LOW = 0.9  # a recall that is worth a warning


class Neighbors(NamedTuple):
    """Nearest rows of every row, and how they were found."""

    rows: Tensor
    """int64 [n, k], nearest first."""
    method: str
    """"exact" (also by a tree) or "approximate"."""
    recall: float
    """Share of a sample's true neighbours that was found; 1.0 of exact ones."""


class _Surroundings(NamedTuple):
    """Settings that the caller passes to a search."""

    progress: Progress | None = None
    folder: Path | None = None


_NOTHING = _Surroundings()
_surroundings: ContextVar[_Surroundings] = ContextVar("surroundings", default=_NOTHING)


@contextmanager
def neighbor_search(
    *, progress: Progress | None = None, folder: Path | None = None
) -> Iterator[None]:
    """Within it, searches report their progress, and long ones keep their results in a folder.

    What was kept is found again by the content of the features, so that runs which share them
    search once.
    """
    before = _surroundings.get()
    token = _surroundings.set(_Surroundings(progress or before.progress, folder or before.folder))
    try:
        yield
    finally:
        _surroundings.reset(token)


def nearest(
    features: Tensor | sp.csr_array, k: int, *, include_self: bool = False, method: str = "auto"
) -> Tensor:
    """The k nearest rows of every row, nearest first, ties to the lower index: int64 [n, k].

    As :func:`search`, the rows alone.
    """
    return search(features, k, include_self, method).rows


def search(
    features: Tensor | sp.csr_array, k: int, include_self: bool = False, method: str = "auto"
) -> Neighbors:
    """The k nearest rows of every row.

    The row itself is excluded by its index, so its duplicates remain; ``include_self`` treats it
    like any other row instead (then it can drop out among duplicates). k is capped at n - 1
    (n with ``include_self``). Memory is bounded: never an n x n matrix.

    Parameters
    ----------
    method : "auto", "exact", "tree" or "approximate"
        "exact" and "tree" find the same rows. "approximate" needs faiss. "auto" takes a tree for
        few dimensions, approximates where exact search would take more than a minute of one core
        and faiss is installed, and is exact otherwise.
    """
    n = features.shape[0]
    k = min(k, n if include_self else n - 1)
    if k == 0:
        return Neighbors(torch.empty(n, 0, dtype=torch.int64), "exact", 1.0)
    with torch.device("cpu"):  # whatever new tensors are on elsewhere
        features = within_range(features)
    chosen = _chosen(features, method)
    around = _surroundings.get()
    files = None
    if around.folder is not None and _seconds(features) > KEPT:
        exactness = "approximate" if chosen == "approximate" else "exact"
        files = NeighborFiles.of(around.folder, features, k, include_self, exactness)
        kept = files.read((n, k))
        if kept is not None:
            return Neighbors(kept[0], exactness, kept[1])
    with torch.device("cpu"):
        found = _found(features, k, include_self, chosen, around.progress or _silent)
    if found.recall < _LOW:
        warnings.warn(
            f"The approximate search found {found.recall:.0%} of the true neighbours of a sample; "
            "pass neighbors_method='exact', or neighbors= if you have better ones.",
            stacklevel=4,
        )
    if files is not None:
        files.write(found.rows, found.recall)
    return found


def _found(features: Any, k: int, include_self: bool, method: str, progress: Progress) -> Neighbors:
    source = measured_rows(features)
    if method == "approximate":
        index, recall = approximate_search(
            features, source, k, include_self=include_self, progress=progress
        )
        return Neighbors(index, "approximate", recall)
    if method == "tree":
        index = tree_search(features, source, k, include_self=include_self, progress=progress)
        return Neighbors(index, "exact", 1.0)
    n = features.shape[0]
    blocks = []
    for rows in torch.arange(n, device=source.device).split(max(1, BLOCK // n)):
        blocks.append(nearest_rows(source, rows, k, include_self=include_self))
        progress(int(rows[-1]) + 1, n)
    return Neighbors(torch.cat(blocks), "exact", 1.0)


def _chosen(features: Any, method: str) -> str:
    """The method to use; raises an error if faiss is missing, and warns of a long search."""
    on_host = isinstance(features, Tensor) and features.device.type == "cpu"
    n, d = features.shape
    if method == "tree" and not on_host:
        raise UserError(
            "neighbors_method='tree' needs dense features on the processor; use 'auto', or pass "
            "features.toarray() if there are few columns."
        )
    if method == "approximate" and find_spec("faiss") is None:
        raise UserError(
            "neighbors_method='approximate' needs faiss, which is not installed; install it with "
            'pip install ".[large]" in a checkout of d2ace or pip install faiss-cpu, or use '
            "neighbors_method='exact'."
        )
    if method != "auto":
        return method
    if on_host and _TREE_ROWS <= n <= _TREE_MOST and d <= _TREE_WIDTH:
        return "tree"
    seconds = _seconds(features)
    on_gpu = isinstance(features, Tensor) and not on_host
    if seconds <= LONG or on_gpu:
        return "tree" if on_host and n >= _TREE_ROWS and d <= _TREE_WIDEST else "exact"
    if find_spec("faiss") is not None:
        return "approximate"
    minutes = seconds / 60 / torch.get_num_threads()
    warnings.warn(
        f"Finding the neighbours of {n:,} rows with {d:,} features will take about "
        f"{minutes:.0f} minutes; for an approximate search install faiss with "
        'pip install ".[large]" in a checkout of d2ace, or pass neighbors= (an index array) or '
        "features=None.",
        stacklevel=6,
    )
    return "exact"


def _seconds(features: Any) -> float:
    """Rough seconds of an exact search on one core: products, and a look at every distance."""
    n, d = features.shape
    products = n * n * d * 4e-11
    if not isinstance(features, Tensor):
        entries = np.bincount(features.indices, minlength=d).astype(np.float64)
        products = min(features.nnz * n * 3e-10, float(entries @ entries) * 3e-9)
    return products + n * n * 2e-9


def _silent(done: int, total: int) -> None:
    """Progress that nobody asked for."""


def asked_neighbors(
    neighbors: Any, features: Any, n: int, method: str, *, itself: bool = False
) -> Neighbors | None:
    """What the options ``neighbors`` and ``neighbors_method`` ask for; None without features.

    ``itself``: the K + 1 nearest, of which the row is one like any other.
    """
    inputs.choice("neighbors_method", method, METHODS)
    if not is_number(neighbors):
        return Neighbors(neighbor_index(neighbors, n), "given", 1.0)
    k = inputs.whole_number("neighbors", neighbors, 0)
    return None if features is None else search(features, k + itself, itself, method)


def is_number(neighbors: Any) -> bool:
    """Whether ``neighbors`` is meant as K, not as an index array."""
    return not isinstance(neighbors, Tensor) and as_array("neighbors", neighbors).ndim == 0


def neighbor_index(value: Any, n: int) -> Tensor:
    """A caller's own index array [n, K], checked."""
    value = value.detach().cpu() if isinstance(value, Tensor) else value
    array = as_array("neighbors", value)
    if array.ndim != 2 or array.shape[0] != n or array.dtype.kind not in "iu":
        raise ValueError(
            f"neighbors must be a whole number or an index array of shape [{n}, K], "
            f"got {array.dtype} of shape {array.shape}."
        )
    if array.size and (array.min() < 0 or array.max() >= n):
        wrong = array[(array < 0) | (array >= n)][0]
        raise ValueError(f"neighbors holds {wrong}, but rows run from 0 to {n - 1}.")
    return torch.from_numpy(array.astype(np.int64))


def named_neighbors(value: Any, found: Neighbors | None) -> int | str:
    """K, or a name that identifies an index array or a kind of search."""
    if is_number(value):
        k = int(value)
        return k if found is None or found.method == "exact" else f"{k} ({found.method})"
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else as_array("", value)
    return f"array with checksum {zlib.crc32(np.ascontiguousarray(array, dtype='<i8').data):08x}"


def local_labels(labels: sp.csr_array, neighbors: Tensor, *, include_self: bool) -> sp.csr_array:
    """Z: which labels occur in the neighbourhood of each instance, as CSR ones."""
    n = labels.shape[0]
    k = neighbors.shape[1]
    adjacency = sp.csr_array(
        (np.ones(n * k, np.int32), neighbors.numpy().ravel(), np.arange(n + 1) * k), shape=(n, n)
    )
    around = adjacency @ labels.astype(np.int32)
    if include_self:
        around = around + labels.astype(np.int32)
    around = sp.csr_array(around)
    around.eliminate_zeros()
    around.sort_indices()
    ones = np.ones(around.nnz, dtype=np.uint8)
    return sp.csr_array((ones, around.indices, around.indptr), shape=around.shape)
