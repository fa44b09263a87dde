"""The rows of one run: those to train on, to validate and to test with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from d2ace.data import Scaler
from d2ace.selectors import BatchPart

__all__ = ["Loaded", "Problem", "Rows", "Split"]

Ints = npt.NDArray[np.int64]
Drawn = tuple[BatchPart, Tensor]
_DENSE_BYTES = 2**31  # features up to this size are kept dense, on the device of the model


class Rows:
    """Model inputs that return batches of rows as dense tensors on a device.

    This one holds a table, dense or sparse; images are in :mod:`.images.rows`.
    """

    at_once: ClassVar[int] = 1024
    """Rows that are evaluated together."""

    def __init__(self, X: Any) -> None:
        sparse = sp.issparse(X)
        if sparse and 4 * X.shape[0] * X.shape[1] <= _DENSE_BYTES:
            X, sparse = X.toarray(), False
        self._csr = X if sparse else None
        self._dense = None if sparse else torch.from_numpy(np.ascontiguousarray(X, np.float32))
        self._device, self._dtype = torch.device("cpu"), torch.float32

    def __len__(self) -> int:
        return int((self._csr if self._dense is None else self._dense).shape[0])  # type: ignore[union-attr]

    def to(self, device: torch.device, dtype: torch.dtype) -> Rows:
        """Return rows on ``device`` and of ``dtype`` from now on."""
        self._device, self._dtype = device, dtype
        if self._dense is not None:
            self._dense = self._dense.to(device, dtype)
        return self

    def take(self, rows: list[int] | slice) -> Tensor:
        """Rows [b, d] on the device."""
        if self._dense is not None:
            if isinstance(rows, slice):
                return self._dense[rows]
            # By way of NumPy: torch itself takes several times as long to read a list.
            return self._dense.index_select(0, torch.from_numpy(np.array(rows)).to(self._device))
        picked = self._csr[rows]  # type: ignore[index]
        return torch.from_numpy(picked.toarray()).to(self._device, self._dtype)

    def batches(
        self, parts: Iterable[BatchPart], epoch: int, first: int, *, ahead: bool
    ) -> Iterator[Drawn]:
        """Parts of an epoch's batches, starting at number ``first``, each with its rows.

        ``ahead`` allows loading parts before they are needed.
        """
        for part in parts:
            yield part, self.take(part.rows)

    def chunks(self) -> Iterator[Tensor]:
        """All rows in order, in pieces that fit any device."""
        for start in range(0, len(self), self.at_once):
            yield self.take(slice(start, start + self.at_once))


@dataclass(frozen=True, eq=False)
class Split:
    """Some rows of a dataset; ``rows`` are their indices in the prepared data."""

    X: Any
    """A table [n, d], or the :class:`Rows` of images."""
    Y: sp.csr_matrix
    rows: Ints


@dataclass(frozen=True, eq=False)
class Loaded:
    """The labels of the data as they were loaded, and which rows and labels a run uses."""

    name: str
    Y: sp.csr_matrix
    label_names: tuple[str, ...]
    row_names: tuple[str, ...] | None
    """The files of images."""
    rows: Ints
    """Indices, in the loaded data, of the prepared rows."""
    labels: Ints
    """The same for labels."""

    def with_training(self, train: Split) -> tuple[sp.csr_matrix, Ints]:
        """Used labels of all rows, with ``train`` rows as trained, and these rows' indices."""
        numbers = self.rows[train.rows]
        others = np.setdiff1d(np.arange(self.Y.shape[0]), numbers)
        stacked = sp.vstack([train.Y, self.Y[others][:, self.labels]], format="csr")
        return stacked[np.argsort(np.concatenate([numbers, others]))], numbers


@dataclass(frozen=True, eq=False)
class Problem:
    """The training, validation and test rows of a run, features scaled by the training rows."""

    name: str
    train: Split
    validation: Split
    test: Split
    scaler: Scaler | None
    fill: npt.NDArray[np.float32] | None
    """The value that fills missing cells of each used feature, before scaling."""
    features: Ints
    """Indices, in the loaded data, of the used features."""
    feature_names: tuple[str, ...]
    """Names of all features of the loaded data."""
    label_names: tuple[str, ...]
    loaded: Loaded
    digest: str
    """A fingerprint of the uncorrected rows, so that a run never resumes with other data."""
    model_options: dict[str, Any] | None = None
    """Options of the model that differ from the configuration."""

    @property
    def sizes(self) -> dict[str, Any]:
        """Name and sizes, as a result records them."""
        return {
            "name": self.name,
            "features": int(self.train.X.shape[1]),
            "labels": len(self.label_names),
            "train": len(self.train.rows),
            "validation": len(self.validation.rows),
            "test": len(self.test.rows),
            "digest": self.digest,
        }
