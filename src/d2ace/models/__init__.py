"""CLIF, DELA, PACA, ML-GCN, HST and plain baselines: multi-label networks, one interface."""

from typing import TYPE_CHECKING

from .backbones import IDENTITY as IDENTITY
from .backbones import make_backbone as make_backbone
from .backbones import pixel_statistics as pixel_statistics
from .base import LossTerms as LossTerms
from .base import ModelOutput as ModelOutput
from .base import MultiLabelModel as MultiLabelModel
from .finding import MODEL_FAMILY as MODEL_FAMILY
from .finding import find_model as find_model
from .finding import make_model as make_model
from .image import ImageModel as ImageModel
from .registry import *  # noqa: F403 - every model; type checkers read it there
from .registry import MODELS as MODELS

if not TYPE_CHECKING:  # type checkers read the imports
    __all__ = [
        "MODEL_FAMILY",
        "MODELS",
        "ImageModel",
        "LossTerms",
        "ModelOutput",
        "MultiLabelModel",
        "find_model",
        "make_model",
        *(model.__name__ for model in MODELS.values()),
    ]
