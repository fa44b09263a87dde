"""The one place that imports torchvision, which is the optional extra ``image``.

A CPU build of torch beside a torchvision built for CUDA is a common pair (a package index holds one
torchvision wheel for all), and it fails to import: torchvision forgives that its C++ extension does
not load, then registers a second implementation of two operators that only the extension declares.
Declaring these two ourselves makes models, weights and transforms work; operators that need the
extension fail with their own message when they are called. The real import is tried
first, so that a healthy installation is not touched.

Every process that needs torchvision calls `torchvision` itself, also a loader's worker that was
spawned: nothing is inherited there.
"""

from __future__ import annotations

import importlib
import sys
import threading
import warnings
from types import ModuleType

import torch
from torch.library import Library

from .errors import RunError

_UNDECLARED = ("nms", "qnms")
_lock = threading.Lock()
_declared: list[Library] = []  # operators vanish with the object that declared them


def torchvision() -> ModuleType:
    """The module ``torchvision``, with ``transforms.v2`` loaded.

    Raises
    ------
    RunError
        torchvision is not installed, or does not fit the torch that is.
    """
    with _lock:
        try:
            try:
                return _imported()
            except RuntimeError as error:
                if "operator torchvision::" not in str(error):
                    raise
            _declare()
            return _imported()
        except ModuleNotFoundError as error:
            if error.name != "torchvision":
                raise
            raise RunError(
                "images need torchvision, which is not installed; install it with "
                'pip install ".[image]" in a checkout of d2ace'
            ) from None
        except (ImportError, RuntimeError, AttributeError) as error:
            reason = str(error).partition("\n")[0]
            raise RunError(
                f"the installed torchvision does not work with torch {torch.__version__} "
                f"({reason}); install the pair that belongs together in one command: "
                f'pip install "torch=={torch.__version__.partition("+")[0]}" torchvision'
            ) from error


def _imported() -> ModuleType:
    with warnings.catch_warnings():
        # Images are read by Pillow, so that torchvision's own reader may be absent.
        warnings.filterwarnings("ignore", "Failed to load image Python extension")
        module = importlib.import_module("torchvision")
        importlib.import_module("torchvision.transforms.v2")
    return module


def _declare() -> None:
    library = Library("torchvision", "FRAGMENT")
    for name in _UNDECLARED:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)
    # What the failed attempt left behind would be taken for the module.
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
