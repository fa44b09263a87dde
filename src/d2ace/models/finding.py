"""Models by name, your own included."""

from __future__ import annotations

import inspect
from typing import Any

from d2ace._util import validation as inputs
from d2ace._util.hints import did_you_mean
from d2ace._util.own_class import Family

from .base import MultiLabelModel
from .registry import MODELS

MODEL_FAMILY = Family("model", MultiLabelModel, "d2ace.models.MultiLabelModel", MODELS)


def make_model(
    name: str, n_features: int, Y_train: inputs.Labels, **hparams: Any
) -> MultiLabelModel:
    """The model called ``name`` for d features and these training labels.

    ``name`` is a key of ``MODELS``, or the place of your own class:
    ``"package.module:Class"`` or ``"path/to/file.py:Class"``. For a model of images (its ``input``
    is "image") ``n_features`` is the number of channels of its input: 3, or that of feature maps
    with ``backbone="identity"``. ``hparams`` are ``preset`` and the model's own hyperparameters;
    its class describes them.
    """
    model = find_model(name)
    known = hparams_of(model)
    for hparam in hparams:
        if known is not None and hparam not in known:
            raise TypeError(
                f"{name} has no hyperparameter {hparam!r}{did_you_mean(hparam, known)}; "
                f"it takes {', '.join(known) or 'none'}."
            )
    try:
        inspect.signature(model).bind(n_features, Y_train, **hparams)
    except TypeError as problem:
        raise TypeError(
            f"{name} cannot be made with (n_features, Y_train) and its hyperparameters "
            f"({problem}); write its __init__ as (self, n_features, Y_train, *, preset='paper', "
            "...)."
        ) from None
    made = model(n_features, Y_train, **hparams)
    if not hasattr(made, "n_labels"):
        raise TypeError(
            f"{name} does not call super().__init__(n_features, Y_train, preset, ...) in its "
            "__init__; call it first."
        )
    return made


def find_model(name: str) -> type[MultiLabelModel]:
    """The class that ``name`` means; see :func:`make_model`."""
    return MODEL_FAMILY.find(name)


def hparams_of(model: type[MultiLabelModel]) -> list[str] | None:
    """Names of the keyword arguments a model class takes; None if it takes any."""
    parameters = inspect.signature(model.__init__).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
