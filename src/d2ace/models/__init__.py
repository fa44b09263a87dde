"""CLIF, DELA, PACA, ML-GCN, HST and plain baselines: multi-label networks, one interface."""

from .base import LossTerms, ModelOutput, MultiLabelModel
from .clif import CLIF
from .dela import DELA
from .hst import HST
from .image import ImageModel
from .image_mlp import ImageMLP
from .ml_gcn import MLGCN
from .mlp import MLP
from .paca import PACA
from .registry import MODELS, make_model

__all__ = [
    "CLIF",
    "DELA",
    "HST",
    "MLGCN",
    "MLP",
    "MODELS",
    "PACA",
    "ImageMLP",
    "ImageModel",
    "LossTerms",
    "ModelOutput",
    "MultiLabelModel",
    "make_model",
]
