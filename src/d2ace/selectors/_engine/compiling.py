"""Functions of tensors that torch compiles for large runs, and runs as they are elsewhere.

Nothing depends on a compiler: where there is none, or it fails, all goes on without, in silence.
The environment variable TORCH_COMPILE_DISABLE=1, torch's own, switches compiling off.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["SAME_BITS", "pays", "ran", "run"]

SAME_BITS = 1 << 21
"""Pairs up to which numbers stay those of the published runs to the last bit."""
LEAST_SAVED = float(4 << 33)
"""Nanoseconds of a run that compiling must save, 34 s: it takes 10 to 30 s, or 5 where torch finds
its cache of an earlier run."""

_NOTHING = object()


def pays(n: int, q: int, epochs: int, *, saved: float) -> bool:
    """Whether a run is large enough to compile for, with ``saved`` nanoseconds a pair and epoch.

    It asks for the run's size alone, not for the epochs left nor for time, so that the same run
    gives the same numbers again, resumed or not.
    """
    return n * q > SAME_BITS and n * q * epochs * saved >= LEAST_SAVED


def run(function: Callable[..., Any], *arguments: Any) -> Any:
    """What ``function`` gives, compiled where torch can."""
    found = _compiled(function)(*arguments)
    return function(*arguments) if found is _NOTHING else found


def ran(function: Callable[..., None], *arguments: Any) -> bool:
    """Whether torch can compile ``function`` and has called it; else nothing was done."""
    return _compiled(function)(*arguments) is not _NOTHING


class _Compiled:
    """A function, compiled when it is first called; it gives _NOTHING where that fails."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._quick: Callable[..., Any] | None = None
        self._fails = False

    def __call__(self, *arguments: Any) -> Any:
        if self._fails:
            return _NOTHING
        # What a compiler raises is anybody's guess. What the function itself does, it does again.
        with contextlib.suppress(Exception):
            if self._quick is not None:
                return self._quick(*arguments)
            import torch._dynamo as dynamo

            if not dynamo.config.disable:
                with warnings.catch_warnings():  # of torch's compiler, about itself
                    warnings.simplefilter("ignore")
                    self._quick = torch.compile(self._function, dynamic=True)
                    return self._quick(*arguments)
        self._fails = True
        return _NOTHING


@functools.cache
def _compiled(function: Callable[..., Any]) -> _Compiled:
    """One for all selectors of the process."""
    return _Compiled(function)
