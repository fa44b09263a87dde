"""Models by name."""

from __future__ import annotations

import inspect
from typing import Any

from d2ace._util import validation as inputs
from d2ace._util.hints import did_you_mean

from .base import MultiLabelModel
from .clif import CLIF
from .dela import DELA
from .hst import HST
from .image_mlp import ImageMLP
from .ml_gcn import MLGCN
from .mlp import MLP
from .paca import PACA

MODELS: dict[str, type[MultiLabelModel]] = {
    model.name: model for model in (MLP, CLIF, DELA, PACA, ImageMLP, MLGCN, HST)
}


def make_model(
    name: str, n_features: int, Y_train: inputs.Labels, **hparams: Any
) -> MultiLabelModel:
    """The model called ``name`` (a key of ``MODELS``) for d features and these training labels.

    For a model of images (``MODELS[name].input == "image"``) ``n_features`` is the number of
    channels of its input: 3, or that of feature maps with ``backbone="identity"``.
    ``hparams`` are ``preset`` and the model's own hyperparameters; its class describes them.
    """
    if name not in MODELS:
        raise ValueError(
            f"There is no model {name!r}{did_you_mean(str(name), MODELS)}; "
            f"choose from {', '.join(MODELS)}."
        )
    known = hparams_of(MODELS[name])
    for hparam in hparams:
        if hparam not in known:
            raise TypeError(
                f"{name} has no hyperparameter {hparam!r}{did_you_mean(hparam, known)}; "
                f"it takes {', '.join(known)}."
            )
    return MODELS[name](n_features, Y_train, **hparams)


def hparams_of(model: type[MultiLabelModel]) -> list[str]:
    """Names of the keyword arguments a model class takes."""
    parameters = inspect.signature(model.__init__).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
