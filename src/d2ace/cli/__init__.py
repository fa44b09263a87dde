"""The command ``d2ace``: one file for each command."""

from .main import main

__all__ = ["main"]
