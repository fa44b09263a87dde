"""CLIF, DELA, PACA and a plain MLP: multi-label networks behind one interface."""

from .base import LossTerms, ModelOutput, MultiLabelModel
from .clif import CLIF
from .dela import DELA
from .mlp import MLP
from .paca import PACA
from .registry import MODELS, make_model

__all__ = [
    "CLIF",
    "DELA",
    "MLP",
    "MODELS",
    "PACA",
    "LossTerms",
    "ModelOutput",
    "MultiLabelModel",
    "make_model",
]
