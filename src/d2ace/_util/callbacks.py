"""The caller's progress functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["FileProgress", "Progress", "Watch"]

Progress = Callable[[int, int], None]
"""Called with what is done and what there is in all."""
FileProgress = Callable[[str, int, int], None]
"""Called with a file's name, its bytes so far and its bytes in all."""
Watch = Callable[[dict[str, Any]], None]
"""Called with plain values that say what has happened."""
