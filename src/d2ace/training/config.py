"""The settings that define a run: everything that can change its numbers, as plain values."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from d2ace._util.errors import UserError
from d2ace._util.hints import did_you_mean
from d2ace._util.own_class import own_file, shown_name
from d2ace._util.paths import given_path
from d2ace.data import PROTOCOLS
from d2ace.evaluation import METRICS
from d2ace.models import MODEL_FAMILY, MODELS, find_model
from d2ace.selectors import SELECTOR_FAMILY, Random, find_selector, warm_up_sentence

from .corrections import corrections_checksum
from .verified import fault_of

__all__ = ["PRECISIONS", "RunConfig", "fault_of_config", "protocol_of", "reads_images", "whole"]

IMAGE_MODELS = tuple(name for name, model in MODELS.items() if model.input == "image")
PRECISIONS = ("32-true", "64-true", "bf16-mixed", "16-mixed")

IMAGE_PROTOCOL: dict[str, Any] = {
    "epochs": 20,
    "batch_size": 32,
    "warmup": 5,
    "learning_rate": 1e-5,
    "weight_decay": 5e-4,
    "monitor": "mean_average_precision",
    "folds": 1,
    "image_size": 448,
}
"""The paper's settings for images, where they differ from those for tables."""


def protocol_of(model: Any, *, images: bool | None = None) -> dict[str, Any]:
    """The default settings for a run of this model.

    For your own model, say whether it reads ``images``: its code is not run to find out.
    """
    if images is None:
        images = isinstance(model, str) and model in IMAGE_MODELS
    usual = {item.name: item.default for item in fields(RunConfig) if item.default is not MISSING}
    options: dict[str, Any] = {"model_options": {}, "selector_options": {}}
    return usual | options | (IMAGE_PROTOCOL if images else {})


def reads_images(model: str, source: str | None = None) -> bool:
    """Whether a model reads images; your own model must have this ``source``, if any."""
    try:
        MODEL_FAMILY.check_source(model, source)
        return find_model(model).input == "image"
    except (TypeError, ValueError) as problem:
        raise UserError(str(problem)) from problem


def _about(words: str, *, images: bool = False) -> dict[str, Any]:
    """The help of ``d2ace train`` for a field; ``images``: only for runs on images."""
    return {"help": words, "images": images}


def _setting(default: Any, words: str, *, images: bool = False) -> Any:
    return field(default=default, metadata=_about(words, images=images))


def _named(kind: str) -> str:
    return ", ".join(name for name, model in MODELS.items() if model.input == kind)


@dataclass(frozen=True)
class RunConfig:
    """One run of the protocol; the defaults are the paper's for tables.

    :meth:`from_dict` takes the paper's defaults for images if the model reads images. Runs are
    deterministic: the same configuration on the same machine gives the same numbers, bit for bit.
    Where a run writes, what it shows and how often it saves are not part of it.
    """

    data: str
    model: str = _setting(
        "clif",
        f"For tables {_named('table')}; for images {_named('image')}; or your own as "
        "file.py:Class.",
    )
    selector: str = _setting(
        "d2ace", "A method (see: d2ace methods), or your own as file.py:Class."
    )
    model_options: dict[str, Any] = field(
        default_factory=dict, metadata=_about("Option of the model; repeat it for several.")
    )
    selector_options: dict[str, Any] = field(
        default_factory=dict, metadata=_about("Option of the selector; repeat it for several.")
    )
    fold: int = _setting(0, "Test fold, counted from 0.")
    folds: int = _setting(5, "Number of folds; 1 uses the test split of the images.")
    seed: int = _setting(0, "Seed of everything random.")
    epochs: int = _setting(100, "Number of epochs.")
    batch_size: int = _setting(128, "Rows per batch and process.")
    warmup: int = _setting(10, "Epochs of warm-up: random batches, rising learning rate.")
    learning_rate: float = _setting(1e-4, "Adam's learning rate.")
    weight_decay: float = _setting(1e-4, "Adam's weight decay.")
    validation: float = _setting(0.1, "Share of the training fold used for validation.")
    monitor: str = _setting("macro_auc", "Validation metric that selects the best epoch.")
    min_positives: int = _setting(21, "Drop labels with fewer positive rows.")
    repair: bool = _setting(False, "Realign the labels of the rcv1 subsets.")
    protocol: str = _setting("paper", "How to prepare the data: paper or reference.")
    epoch_loss: bool = _setting(False, "Also the loss of all training rows after every epoch.")
    record: bool = _setting(False, "Record case studies to record.npz.")
    insights: bool = _setting(False, "Find probably wrong labels; saves OUT/insights.pt.")
    """Insights change no number, but a run without them cannot replace a run with them."""
    labels_from: str | None = _setting(
        None, "CSV file that corrects training labels (row, label, given, suggested)."
    )
    labels_source: str | None = None
    """SHA-256 of that file: other corrections define another run."""
    precision: str = _setting("32-true", "32-true, 64-true, bf16-mixed or 16-mixed.")
    selector_source: str | None = None
    """SHA-256 of the file of your own selector: other code defines another run."""
    model_source: str | None = None
    """The same for your own model."""
    root: str | None = _setting(None, "Folder or .zip of the images.", images=True)
    """None looks in ``D2ACE_DATA``."""
    image_size: int | None = _setting(None, "Side of the images in pixels.", images=True)
    cache_features: bool = _setting(
        False, "Store a frozen backbone's feature maps once, then train on them.", images=True
    )
    """Without augmentation."""
    unlabelled: str = _setting("keep", "Images without labels: keep or drop.", images=True)
    on_broken: str = _setting("error", "Broken images: error or skip.", images=True)

    def __post_init__(self) -> None:
        """Check everything that needs no data."""
        self._check_classes()
        for name, least in {**_WHOLE_NUMBERS, "folds": 1 if self.images else 2}.items():
            object.__setattr__(self, name, whole(getattr(self, name), name, least))
        if self.fold >= self.folds:
            raise UserError(
                f"fold is {self.fold}, but with folds={self.folds} they are numbered "
                f"0 to {self.folds - 1}."
            )
        for name, (low, high) in _NUMBERS.items():
            value = getattr(self, name)
            if isinstance(value, np.number):  # JSON, which stores configurations, has none
                value = value.item()
                object.__setattr__(self, name, value)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UserError(f"{name} is {value!r}; it must be a number.")
            if not low < value < high and not (name == "weight_decay" and value == 0):
                raise UserError(f"{name} is {value!r}; it must lie between {low} and {high}.")
        for name in _SWITCHES:
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise UserError(f"{name} is {value!r}; it must be True or False.")
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise UserError(
                    f"{name} is {value!r}{did_you_mean(str(value), list(choices))}; "
                    f"choose from {', '.join(choices)}."
                )
        for name in ("model_options", "selector_options"):
            _refuse_unplain(name, getattr(self, name))
        self._check_images()
        if self.labels_from is not None:
            self._check_corrections()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """The configuration with these values, and defaults for the rest."""
        known = [item.name for item in fields(cls)]
        for name in values:
            if name not in known:
                raise UserError(
                    f"There is no setting {name!r}{did_you_mean(str(name), known)}; "
                    f"a run has {', '.join(known)}."
                )
        if "data" not in values:
            raise UserError("A run needs data: the name of a dataset or the path of a file.")
        model = values.get("model", "clif")
        images = reads_images(model, values.get("model_source"))
        return cls(**{**protocol_of(model, images=images), **values})

    @cached_property  # read when this is made: a file may change
    def images(self) -> bool:
        """Whether the model reads images."""
        return reads_images(self.model)

    def _check_classes(self) -> None:
        """Find the model and the selector; your own must have the code of the description."""
        file = own_file(self.model) if isinstance(self.model, str) else None
        if file is not None:  # a saved run can be loaded from any folder
            object.__setattr__(self, "model", f"{file.resolve()}:{shown_name(self.model)}")
        try:
            for name, family in (("model", MODEL_FAMILY), ("selector", SELECTOR_FAMILY)):
                chosen, source = getattr(self, name), f"{name}_source"
                now = family.check_source(chosen, getattr(self, source))
                object.__setattr__(self, source, now)
                family.find(chosen)
        except (TypeError, ValueError) as problem:
            raise UserError(str(problem)) from problem

    def _check_corrections(self) -> None:
        now = corrections_checksum(given_path(self.labels_from, "labels_from", kind="file"))
        if self.labels_source not in (None, now):
            raise UserError(
                f"{self.labels_from} has changed since this configuration was made (checksum was "
                f"{str(self.labels_source)[:8]}..., now {now[:8]}...); make a new configuration."
            )
        object.__setattr__(self, "labels_from", str(Path(str(self.labels_from)).resolve()))
        object.__setattr__(self, "labels_source", now)

    def _check_images(self) -> None:
        usual = protocol_of(self.model, images=self.images)
        if not self.images:
            for name in ("root", "image_size", "cache_features", "unlabelled", "on_broken"):
                if getattr(self, name) != usual[name]:
                    raise UserError(
                        f"{name} is {getattr(self, name)!r}, but {self.model} is a model for "
                        f"tables; leave it out, or choose from {', '.join(IMAGE_MODELS)}."
                    )
            return
        size = _whole(self.image_size)
        if size is None or not 8 <= size <= 8192:
            raise UserError(
                f"image_size is {self.image_size!r}; it must be a side of 8 to 8192 pixels."
            )
        object.__setattr__(self, "image_size", size)
        if self.cache_features:
            preset = self.model_options.get("preset", "paper")
            known = find_model(self.model).presets.get(preset, {})
            freeze = self.model_options.get("freeze", known.get("freeze"))
            if freeze != "backbone":
                raise UserError(
                    f"cache_features needs a backbone that is not trained, but freeze is "
                    f"{freeze!r}; set freeze=backbone too."
                )

    @property
    def only_warm_up(self) -> str | None:
        """The warning if no epoch is left for the selector to select in."""
        if self.epochs > self.warmup or issubclass(find_selector(self.selector), Random):
            return None
        return warm_up_sentence(self.selector, self.epochs, self.warmup)

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, including the defaults."""
        return asdict(self)


_WHOLE_NUMBERS = {
    "fold": 0,
    "seed": 0,
    "epochs": 1,
    "batch_size": 1,
    "warmup": 0,
    "min_positives": 0,
}
_NUMBERS = {
    "learning_rate": (0.0, float("inf")),
    "weight_decay": (0.0, float("inf")),
    "validation": (0.01, 0.99),
}
_SWITCHES = ("repair", "epoch_loss", "record", "insights", "cache_features")
_CHOICES: dict[str, tuple[str, ...]] = {
    "monitor": tuple(name for name, one in METRICS.items() if not one.needs_thresholds),
    "protocol": PROTOCOLS,
    "precision": PRECISIONS,
    "unlabelled": ("keep", "drop"),
    "on_broken": ("error", "skip"),
}


def fault_of_config(values: Any) -> str | None:
    """What is wrong with settings that were read from a file, or None; nothing is imported."""
    needed = {"data": str, "model": str, "selector": str}
    known = {item.name: object for item in fields(RunConfig)} | needed
    return fault_of(values, known, optional=tuple(known.keys() - needed.keys()))


def whole(value: Any, name: str, least: int = 1) -> int:
    """A whole number of at least ``least``; the error for anything else contains ``name``."""
    number = _whole(value)
    if number is None or number < least:
        raise UserError(f"{name} is {value!r}; it must be a whole number from {least} up.")
    return number


def _whole(value: Any) -> int | None:
    """A whole number, also one of NumPy's, as Python's int; None for anything else."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def _refuse_unplain(name: str, options: Any) -> None:
    """Options are stored as JSON, so JSON must not change them."""
    try:
        same = isinstance(options, dict) and json.loads(json.dumps(options)) == _listed(options)
    except (TypeError, ValueError):
        same = False
    if not same:
        raise UserError(
            f"{name} is {options!r}; it must be a dictionary of plain values "
            "(numbers, text, lists), so that a run can be repeated from its file."
        )


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value
