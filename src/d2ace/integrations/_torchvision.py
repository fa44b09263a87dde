"""Frameworks import torchvision if it is installed, even if it is broken."""

from contextlib import suppress

from d2ace._util.errors import RunError
from d2ace._util.torchvision import torchvision


def mend_torchvision() -> None:
    """Before a framework is imported: make torchvision importable if it is there."""
    with suppress(RunError):
        torchvision()
