"""Batch selection for deep multi-label learning, as drop-in PyTorch batch samplers."""

from importlib import import_module
from types import ModuleType

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

_SUBMODULES = ("data", "models", "testing")  # loaded when first used: `import d2ace` stays light


def __getattr__(name: str) -> ModuleType:
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
