"""From a dataset to the rows of one run: prepare, split, fill and scale by training rows."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import scipy.sparse as sp
import torch

from d2ace._util.callbacks import Progress
from d2ace._util.errors import UserError
from d2ace.data import (
    DataError,
    MultiLabelData,
    folds,
    load,
    prepare,
    protocol_folds,
    validation_split,
)

from .config import IMAGE_MODELS, RunConfig
from .corrections import with_corrections
from .problem import Ints, Loaded, Problem, Split

if TYPE_CHECKING:
    from d2ace.data.images import ImageData

__all__ = ["make_problem", "no_data"]


def make_problem(
    config: RunConfig,
    data: MultiLabelData | ImageData | None = None,
    device: torch.device | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Problem:
    """Load (unless you pass ``data``), prepare, split, fill and scale by ``config``.

    The folds are the published ones if the dataset has some, otherwise five-fold iterative
    stratification with seed 0: every seed of a run has the same folds. The validation rows, a
    stratified share of the training fold, differ from seed to seed.
    """
    if config.images:
        from .images.problem import make_image_problem

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
    loaded = Loaded(
        name=data.name,
        Y=sp.csr_matrix(data.Y),
        label_names=data.label_names,
        row_names=None,
        rows=prepared.rows,
        labels=prepared.labels,
    )
    return Problem(
        name=kept.name,
        train=with_corrections(config, loaded, *splits),
        validation=splits[1],
        test=splits[2],
        scaler=fitted.scaler,
        fill=fitted.fill,
        features=prepared.features,
        feature_names=tuple(data.feature_names),
        label_names=tuple(kept.label_names),
        loaded=loaded,
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
    """The error for something that is neither data nor a name of data."""
    kind = "None" if given is None else f"a {type(given).__name__}"
    return UserError(
        f"The data is {kind}, which cannot be trained on; give a name, a path or a "
        "d2ace.data.MultiLabelData."
    )


def _refuse_images(config: RunConfig) -> None:
    from d2ace.data.images import KINDS

    if config.data in KINDS:
        raise UserError(
            f"{config.data} holds images, but {config.model} is a model for tables; choose from "
            f"{', '.join(IMAGE_MODELS)}."
        )


def _folds(config: RunConfig, data: MultiLabelData) -> list[tuple[Ints, Ints]]:
    if config.folds == 5:
        try:
            return protocol_folds(data.name, data.Y).folds()
        except DataError:  # no published folds fit this preparation
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
