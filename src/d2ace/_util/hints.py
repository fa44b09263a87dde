"""Words for messages that all parts of the library use."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

__all__ = ["did_you_mean"]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A " (did you mean 'h'?)" to put behind an unknown word, where a known one is near.

    Capitals, and dashes for underscores, make no difference. A file's names may be many and long,
    and comparing them all would take minutes.
    """
    near = {_plain(each): each for each in islice(known, 2000)}
    close = difflib.get_close_matches(_plain(word[:80]), near, n=1)
    return f" (did you mean {near[close[0]]!r}?)" if close else ""


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")
