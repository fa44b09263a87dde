"""Batch selection for deep multi-label learning, as drop-in PyTorch batch samplers."""

from .indexed import IndexedDataset
from .selectors import (
    D2ACE,
    DIHCL,
    SELECTORS,
    Active,
    Balance,
    HardImb,
    MLUnc,
    Random,
    Recent,
    Selector,
    make_selector,
)

__version__ = "0.1.0"

__all__ = [
    "D2ACE",
    "DIHCL",
    "SELECTORS",
    "Active",
    "Balance",
    "HardImb",
    "IndexedDataset",
    "MLUnc",
    "Random",
    "Recent",
    "Selector",
    "make_selector",
]
