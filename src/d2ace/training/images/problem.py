"""From images to the rows of one run: labels, splits, transforms, stored features."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from d2ace._util.callbacks import Progress
from d2ace._util.errors import UserError
from d2ace._util.random_state import borrowed_generator
from d2ace.data import DataWarning, cache_dir, folds, validation_split
from d2ace.data.images import (
    KINDS,
    ImageData,
    Preprocessing,
    cache_features,
    evaluation_transform,
    image_dataset,
    label_vectors,
    load_images,
    train_transform,
)
from d2ace.models import IDENTITY, find_model, make_backbone, pixel_statistics
from d2ace.training.config import RunConfig
from d2ace.training.corrections import with_corrections
from d2ace.training.problem import Ints, Loaded, Problem, Rows, Split

from .rows import FeatureRows, ImageRows

__all__ = ["backbone_of", "make_image_problem", "transforms"]


def make_image_problem(
    config: RunConfig,
    data: Any,
    device: torch.device,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Problem:
    """Load (unless ``data`` is given), choose labels, split, and store features if asked to.

    With ``folds=1`` the dataset's own test split is tested on and all others are trained on;
    with more, all images are divided into stratified folds. The validation images are a stratified
    share of the training images.
    """
    if data is None:
        if config.data not in KINDS:
            raise UserError(
                f"{config.model} is a model for images, but {config.data} is no layout of images; "
                f"choose one from {', '.join(KINDS)} with its root, or a model for tables."
            )
        data = load_images(
            config.data,
            config.root,
            unlabelled=config.unlabelled,  # type: ignore[arg-type]  # checked by the configuration
            on_broken=config.on_broken,  # type: ignore[arg-type]
        )
    if not isinstance(data, ImageData):
        raise UserError(
            f"{config.model} is a model for images, but the data is {type(data).__name__}; give "
            "ImageData, or a model for tables."
        )
    everything = data
    data, train, validation, test = _chosen(config, everything)
    workers = _workers(workers)
    options = dict(config.model_options)
    if isinstance(options.get("label_vectors"), str) and options["label_vectors"] != "random":
        options["label_vectors"] = _vectors(data, options["label_vectors"])
    augmented, plain = transforms(config)
    beside = [_vectors_bytes(options), _weights_bytes(config)]
    if config.cache_features:
        backbone, _ = backbone_of(config)
        features = cache_features(
            backbone.to(device),
            image_dataset(data, None, plain),
            cache_dir() / "features",
            workers=workers,
            progress=progress,
        )
        options = without_backbone(options)
        beside.append(features.folder.name.encode())  # a checksum of the images and the backbone

    def split(rows: Ints) -> Split:
        X: Rows
        if config.cache_features:
            X = FeatureRows(features, rows)
        else:
            X = ImageRows(
                image_dataset(data, rows, augmented, seed=config.seed),
                image_dataset(data, rows, plain),
                workers,
            )
        return Split(X, sp.csr_matrix(data.Y[rows], dtype=np.float32), rows)

    places = {name: number for number, name in enumerate(everything.label_names)}
    loaded = Loaded(
        name=data.name,
        Y=everything.Y,
        label_names=everything.label_names,
        row_names=everything.files,
        rows=np.arange(data.n),
        labels=np.array([places[name] for name in data.label_names]),
    )
    splits = [split(rows) for rows in (train, validation, test)]
    return Problem(
        name=data.name,
        train=with_corrections(config, loaded, *splits),
        validation=splits[1],
        test=splits[2],
        scaler=None,
        fill=None,
        features=np.empty(0, dtype=np.int64),
        feature_names=(),
        label_names=data.label_names,
        loaded=loaded,
        digest=_digest(data, (train, validation, test), beside),
        model_options=options,
    )


def transforms(config: RunConfig) -> tuple[Preprocessing, Preprocessing]:
    """For training and for evaluation, with the statistics that the backbone expects."""
    mean, std = pixel_statistics(
        backbone_option(config, "backbone"), backbone_option(config, "weights")
    )
    size = config.image_size or 448
    return (
        train_transform(size, mean=mean, std=std),
        evaluation_transform(size, mean=mean, std=std),
    )


def backbone_of(config: RunConfig) -> tuple[nn.Module, int]:
    """The frozen backbone of a run with stored features, and the channels of its maps."""
    with borrowed_generator() as generator:
        generator.manual_seed(0)  # one without weights is the same for all runs
        return make_backbone(
            backbone_option(config, "backbone"), 3, backbone_option(config, "weights")
        )


def backbone_option(config: RunConfig, name: str) -> str:
    """What the model's options, or its preset, say about the backbone."""
    options, presets = config.model_options, find_model(config.model).presets
    given = options.get(name)
    # A preset that does not exist is refused where the model is made.
    usual = presets.get(str(options.get("preset", "paper")), presets["paper"])
    return str(usual[name] if given is None else given)


def without_backbone(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a model that is given feature maps."""
    heads = {name: value for name, value in options.items() if name not in ("weights", "freeze")}
    return {**heads, "backbone": IDENTITY}


def _chosen(config: RunConfig, data: ImageData) -> tuple[ImageData, Ints, Ints, Ints]:
    """The data with its frequent labels, and the rows to train, validate and test on.

    Of a dataset with a test split only the other images say which labels are frequent.
    """
    if config.folds == 1:
        names = data.split_names
        kinds = {name: _kind(name) for name in names}
        own = [name for name in names if kinds[name] == "test"] or [
            name for name in names if kinds[name] == "val"
        ]
        if not own or len(names) < 2:
            raise UserError(
                f"{data.name} has no test split beside one to train on (it has "
                f"{', '.join(names)}); use folds=5 to test on a fifth of the images."
            )
        if len(own) > 1:  # or all but one of them would be trained on
            raise UserError(
                f"{data.name} has several splits to test on ({', '.join(own)}); leave all but one "
                "out, or give them one name."
            )
        if unknown := [name for name in names if kinds[name] is None]:
            raise UserError(
                f"{data.name} has the split {unknown[0]!r}, which may be one to train or to test "
                "on; give it a name that begins with train, val or test, or leave it out."
            )
        test = data.rows(own[0])
        fold = np.setdiff1d(np.arange(data.n), test)
        data = _with_frequent_labels(data, fold, config.min_positives)
    else:
        if data.n < 2 * config.folds:
            raise UserError(
                f"{data.name} has {data.n} images, too few for {config.folds} folds; use fewer."
            )
        data = _with_frequent_labels(data, np.arange(data.n), config.min_positives)
        fold, test = folds(data.Y, n_splits=config.folds, seed=0)[config.fold]
    train, validation = validation_split(data.Y, fold, share=config.validation, seed=config.seed)
    for rows, part in ((train, "training"), (validation, "validation")):
        if not len(rows):
            raise UserError(
                f"The {len(fold)} images of {data.name} to train on leave no {part} images; use "
                "another validation share or more images."
            )
    if not len(test):
        raise UserError(
            f"{data.name} has no images left to test on; keep those without labels, mend broken "
            "ones, or use folds=5."
        )
    return data, np.asarray(train), np.asarray(validation), np.asarray(test)


def _kind(split: str) -> str | None:
    """What a split is for, by its name."""
    return next(
        (kind for kind in ("train", "val", "test") if split.casefold().startswith(kind)), None
    )


def _with_frequent_labels(data: ImageData, rows: Ints, least: int) -> ImageData:
    frequent = np.flatnonzero(np.asarray(data.Y[rows].sum(0, dtype=np.int64)).ravel() >= least)
    if not frequent.size:
        raise UserError(f"No label of {data.name} has {least} images or more; lower min_positives.")
    return data.with_labels(frequent)


def _vectors(data: ImageData, path: str) -> Any:
    """Label vectors of a file; that some labels are not in it is said."""
    vectors = label_vectors(data.label_names, path)
    if vectors.invented:
        shown = ", ".join(vectors.invented[:3]) + ", ..." * (len(vectors.invented) > 3)
        warnings.warn(
            f"{len(vectors.invented)} of {data.q} labels are not in {path} and have random "
            f"vectors: {shown}",
            DataWarning,
            stacklevel=2,
        )
    return vectors.Z


def _workers(wanted: int | None) -> int:
    """Loader processes: as many as this process may use processors, but not more than eight."""
    return min(8, os.cpu_count() or 1, torch.get_num_threads()) if wanted is None else wanted


def _vectors_bytes(options: Mapping[str, Any]) -> bytes:
    """Label vectors that came from a file."""
    vectors = options.get("label_vectors")
    return b"" if vectors is None or isinstance(vectors, str) else np.asarray(vectors).tobytes()


def _weights_bytes(config: RunConfig) -> bytes:
    """SHA-256 of the backbone's weights, where they are a file."""
    file = Path(backbone_option(config, "weights")).expanduser()
    return hashlib.sha256(file.read_bytes()).digest() if file.is_file() else b""


def _digest(data: ImageData, splits: tuple[Ints, ...], beside: list[bytes]) -> str:
    """A fingerprint of names, sizes and labels of the images, and of what lies beside them.

    No image is read for it: one that was replaced by another of as many bytes goes unseen, unless
    it lies in an archive, which keeps checksums, or stored features, which do so too, are used.
    """
    digest = hashlib.sha256("\n".join([*data.files, "", *data.label_names]).encode())
    for rows in splits:
        digest.update(rows.astype("<i8").tobytes())
    for part in (data.Y.indptr, data.Y.indices):
        digest.update(part.astype("<i8").tobytes())
    known = 2 if data.tree.archived else 1  # size and checksum, or size and time of change
    stamps = [data.tree.stamp(file)[:known] for file in data.files]
    digest.update(np.array(stamps, dtype="<i8").tobytes())
    for content in beside:
        digest.update(content)
    return digest.hexdigest()
