"""Figures of the report, a file for each kind."""

from . import style
from .figure import canvas

__all__ = ["canvas", "style"]
