"""The command ``d2ace``: one file a command."""

from .main import main

__all__ = ["main"]
