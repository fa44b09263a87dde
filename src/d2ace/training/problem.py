"""From a dataset to the rows of one run: prepared, split, filled and scaled by training rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from d2ace._util.errors import UserError
from d2ace.data import (
    DataError,
    MultiLabelData,
    Scaler,
    folds,
    load,
    prepare,
    protocol_folds,
    validation_split,
)
from d2ace.selectors._engine.shared import Part

from .config import IMAGE_MODELS, RunConfig

if TYPE_CHECKING:
    from d2ace.data.images import ImageData
    from d2ace.data.images.features import Progress

__all__ = ["Problem", "Rows", "Split", "make_problem", "no_data"]

Ints = npt.NDArray[np.int64]
Drawn = tuple[Part, Tensor]
_DENSE_BYTES = 2**31  # features up to this size are kept dense, on the device of the model


class Rows:
    """Inputs of a model that give batches of rows as dense tensors on a device.

    This one holds a table, dense or sparse; images are in :mod:`.image_rows`.
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
        """Give rows on ``device`` and of ``dtype`` from now on."""
        self._device, self._dtype = device, dtype
        if self._dense is not None:
            self._dense = self._dense.to(device, dtype)
        return self

    def take(self, rows: list[int] | slice) -> Tensor:
        """Rows [b, d] on the device."""
        if self._dense is not None:
            if isinstance(rows, slice):
                return self._dense[rows]
            return self._dense[torch.tensor(rows, device=self._device)]
        picked = self._csr[rows]  # type: ignore[index]
        return torch.from_numpy(picked.toarray()).to(self._device, self._dtype)

    def batches(
        self, parts: Iterable[Part], epoch: int, first: int, *, ahead: bool
    ) -> Iterator[Drawn]:
        """Parts of an epoch's batches from number ``first`` on, each with its rows.

        ``ahead`` allows to ask for parts before they are needed.
        """
        for part in parts:
            yield part, self.take(part.rows)

    def chunks(self) -> Iterator[Tensor]:
        """All rows in their order, in pieces that fit any device."""
        for start in range(0, len(self), self.at_once):
            yield self.take(slice(start, start + self.at_once))


@dataclass(frozen=True, eq=False)
class Split:
    """Some rows of a dataset; ``rows`` are their numbers in the prepared data."""

    X: Any
    """A table [n, d], or the :class:`Rows` of images."""
    Y: sp.csr_matrix
    rows: Ints


@dataclass(frozen=True, eq=False)
class Problem:
    """What one run trains, validates and tests on, features scaled by the training rows."""

    name: str
    train: Split
    validation: Split
    test: Split
    scaler: Scaler | None
    fill: npt.NDArray[np.float32] | None
    """What a missing cell of each used feature becomes before scaling."""
    features: Ints
    """Numbers, in the loaded data, of the features that are used."""
    feature_names: tuple[str, ...]
    """Names of all features of the loaded data."""
    label_names: tuple[str, ...]
    digest: str
    """A fingerprint of the rows, so that a run never goes on with other data."""
    model_options: dict[str, Any] | None = None
    """What the model is made with, where that is not what the configuration says."""

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


def make_problem(
    config: RunConfig,
    data: MultiLabelData | ImageData | None = None,
    device: torch.device | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Problem:
    """Load (unless ``data`` is given), prepare, split, fill and scale as ``config`` says.

    The folds are the published ones where the dataset has some, otherwise five-fold iterative
    stratification with seed 0: every seed of a run sees the same folds. The validation rows, a
    stratified share of the training fold, differ from seed to seed.
    """
    if config.images:
        from d2ace.training.images.problem import make_image_problem

        return make_image_problem(config, data, device or torch.device("cpu"), workers, progress)
    if data is None:
        _refuse_images(config)
        data = load(config.data, repair=config.repair)
    if not isinstance(data, MultiLabelData):
        _refuse_other_data(config, data)
    prepared = prepare(data, config.protocol, min_positives=config.min_positives)
    kept = prepared.data
    if kept.n < 2 * config.folds:
        raise UserError(
            f"{kept.name} has {kept.n} rows after preparation, too few for {config.folds} folds "
            "with a test and a validation part each; use fewer folds or more data."
        )
    fold_rows, test = _folds(config, kept)[config.fold]
    train, validation = validation_split(
        kept.Y, fold_rows, share=config.validation, seed=config.seed
    )
    for rows, part in ((train, "training"), (validation, "validation"), (test, "test")):
        if not len(rows):
            raise UserError(
                f"fold {config.fold} of {kept.name} leaves no {part} rows of {kept.n}; use fewer "
                "folds or another validation share."
            )
    fitted = prepared.fitted(train)
    X = fitted.data.X
    Y = sp.csr_matrix(kept.Y, dtype=np.float32)
    splits = [Split(X[rows], Y[rows], np.asarray(rows)) for rows in (train, validation, test)]
    return Problem(
        name=kept.name,
        train=splits[0],
        validation=splits[1],
        test=splits[2],
        scaler=fitted.scaler,
        fill=fitted.fill,
        features=prepared.features,
        feature_names=tuple(data.feature_names),
        label_names=tuple(kept.label_names),
        digest=_digest(splits),
    )


def _refuse_other_data(config: RunConfig, data: Any) -> NoReturn:
    from d2ace.data.images import ImageData

    kind = type(data).__name__
    if isinstance(data, ImageData):
        raise UserError(
            f"{config.model} is a model for tables, but the data is {kind}; choose from "
            f"{', '.join(IMAGE_MODELS)} for images."
        )
    raise no_data(data)


def no_data(given: Any) -> UserError:
    """The error for what is neither data nor names any."""
    kind = "None" if given is None else f"a {type(given).__name__}"
    return UserError(
        f"The data is {kind}, which cannot be trained on; give a name, a path or a "
        "d2ace.data.MultiLabelData."
    )


def _refuse_images(config: RunConfig) -> None:
    from d2ace.data.images.load import KINDS

    if config.data in KINDS:
        raise UserError(
            f"{config.data} holds images, but {config.model} is a model for tables; choose from "
            f"{', '.join(IMAGE_MODELS)}."
        )


def _folds(config: RunConfig, data: MultiLabelData) -> list[tuple[Ints, Ints]]:
    if config.folds == 5:
        try:
            return protocol_folds(data.name, data.Y).folds()
        except DataError:  # no published folds for this dataset as it was prepared here
            pass
    return folds(data.Y, n_splits=config.folds, seed=0)


def _digest(splits: list[Split]) -> str:
    digest = hashlib.sha256()
    for split in splits:
        digest.update(split.rows.astype("<i8").tobytes())
        for matrix in (split.X, split.Y):
            parts = (
                (matrix.indptr.astype("<i8"), matrix.indices.astype("<i8"), matrix.data)
                if sp.issparse(matrix)
                else (matrix,)
            )
            for part in parts:
                digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()
