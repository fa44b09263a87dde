"""Frameworks import torchvision wherever it is installed, whether it works or not."""

from contextlib import suppress

from d2ace._util.errors import RunError
from d2ace._util.torchvision import torchvision


def mend_torchvision() -> None:
    """Before a framework is imported: make torchvision importable if it is there."""
    with suppress(RunError):
        torchvision()
