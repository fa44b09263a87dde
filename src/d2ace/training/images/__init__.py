"""Runs on images, where they differ from runs on tables."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .predicting import find_images as find_images


def __getattr__(name: str) -> Any:
    """Loaded when first used: training itself stands above this package and below it."""
    if name == "find_images":
        return import_module(f"{__name__}.predicting").find_images
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["find_images"]
