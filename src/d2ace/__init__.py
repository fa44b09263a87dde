"""Batch selection for deep multi-label learning, as drop-in PyTorch batch samplers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._util.version import VERSION
from .insights import Insights as Insights
from .selectors import SELECTORS as SELECTORS
from .selectors import IndexedDataset as IndexedDataset
from .selectors import Selector as Selector
from .selectors import make_selector as make_selector
from .selectors.registry import *  # noqa: F403 - every method; type checkers read it there

if TYPE_CHECKING:
    from .training import RunResult as RunResult
    from .training import load_run as load_run
    from .training import train as train

__version__ = VERSION

# Loaded when first used: `import d2ace` stays light.
_SUBMODULES = (
    *("benchmark", "data", "evaluation", "integrations", "models", "report", "testing"),
    "training",
)
_TRAINING = ("RunResult", "load_run", "train")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    if name in _TRAINING:
        return getattr(import_module(f"{__name__}.training"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES, *_TRAINING})


if not TYPE_CHECKING:  # type checkers read the imports
    __all__ = [
        "SELECTORS",
        "IndexedDataset",
        "Insights",
        "Selector",
        "make_selector",
        *_TRAINING,
        *(method.__name__ for method in SELECTORS.values()),
    ]
