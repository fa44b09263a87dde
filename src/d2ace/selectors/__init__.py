"""The eight batch selection methods and the stages they share."""

from d2ace.selectors._engine.flat import FlatSampler
from d2ace.selectors._engine.multiprocess import BatchPart, SharedSelector
from d2ace.selectors._engine.options import options_of
from d2ace.selectors._engine.reminders import warm_up_sentence

from .active import Active
from .balance import Balance
from .base import Selector
from .d2ace import D2ACE
from .dihcl import DIHCL
from .distributed import DistributedSelector
from .hard_imb import HardImb
from .history import Memory
from .indexed import IndexedDataset
from .ml_unc import MLUnc
from .random import Random
from .recent import Recent
from .registry import SELECTORS, find_selector, make_selector, selector_file

__all__ = [
    "D2ACE",
    "DIHCL",
    "SELECTORS",
    "Active",
    "Balance",
    "BatchPart",
    "DistributedSelector",
    "FlatSampler",
    "HardImb",
    "IndexedDataset",
    "MLUnc",
    "Memory",
    "Random",
    "Recent",
    "Selector",
    "SharedSelector",
    "find_selector",
    "make_selector",
    "options_of",
    "selector_file",
    "warm_up_sentence",
]
