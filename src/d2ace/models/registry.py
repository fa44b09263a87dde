"""The models of the library: a line for each, in the order in which lists show them.

``d2ace.models`` takes everything public from here, and whatever else lists the models asks
``MODELS``.
"""

from .base import MultiLabelModel as _MultiLabelModel

# isort: off
from .mlp import MLP as MLP
from .clif import CLIF as CLIF
from .dela import DELA as DELA
from .paca import PACA as PACA
from .image_mlp import ImageMLP as ImageMLP
from .ml_gcn import MLGCN as MLGCN
from .hst import HST as HST
# isort: on

MODELS: dict[str, type[_MultiLabelModel]] = {
    model.name: model
    for model in list(vars().values())
    if isinstance(model, type)
    and issubclass(model, _MultiLabelModel)
    and model is not _MultiLabelModel
}
