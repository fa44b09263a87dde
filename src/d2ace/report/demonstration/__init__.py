"""The demo's page: which labels look wrong, and what methods make of data with wrong labels."""

from .demo_page import write_demo_page as write_demo_page
from .findings import Demonstration as Demonstration
from .findings import demonstrate as demonstrate
from .known_errors import KnownErrors as KnownErrors

__all__ = ["Demonstration", "KnownErrors", "demonstrate", "write_demo_page"]
