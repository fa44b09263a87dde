"""The eight batch selection methods and the stages they share."""

from d2ace.selectors._engine.flat import FlatSampler

from .active import Active
from .balance import Balance
from .base import Selector
from .d2ace import D2ACE
from .dihcl import DIHCL
from .hard_imb import HardImb
from .history import Memory
from .indexed import IndexedDataset
from .ml_unc import MLUnc
from .random import Random
from .recent import Recent
from .registry import SELECTORS, make_selector

__all__ = [
    "D2ACE",
    "DIHCL",
    "SELECTORS",
    "Active",
    "Balance",
    "FlatSampler",
    "HardImb",
    "IndexedDataset",
    "MLUnc",
    "Memory",
    "Random",
    "Recent",
    "Selector",
    "make_selector",
]
