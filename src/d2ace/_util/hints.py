"""Words for messages that all parts of the library use."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A " (did you mean 'h'?)" to put behind an unknown word, where a known one is near."""
    close = difflib.get_close_matches(word.lower().replace("-", "_"), list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
