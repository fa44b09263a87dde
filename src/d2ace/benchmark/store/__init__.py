"""Keeping it: the SQLite file of a store, and the same as CSV."""

from .database import Store, StoredRun, opened
from .file import is_there
from .shape import check_recording

__all__ = [
    "Store",
    "StoredRun",
    "check_recording",
    "is_there",
    "opened",
]
