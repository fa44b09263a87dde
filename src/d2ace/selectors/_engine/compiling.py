"""Functions of tensors that torch compiles for large runs, and runs as they are elsewhere.

Nothing depends on a compiler: where there is none, or it fails, the function itself is called.
The environment variable TORCH_COMPILE_DISABLE=1, torch's own, switches compiling off.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["Compiled", "compiled", "pays"]

LEAST_PAIRS = 1 << 21
"""Up to here numbers are those of earlier versions to the last bit; compiled ones round anew."""
LEAST_WORK = 1 << 33
"""Pairs times epochs from which compiling pays: it saves 4 ns a pair and epoch or more, so at
least 34 s of a run, and takes 10 to 30 s, or 5 where torch finds its cache of an earlier run."""


def pays(n: int, q: int, epochs: int) -> bool:
    """Whether a run is large enough to compile for.

    It asks for the run's size alone, not for the epochs left nor for time, so that the same run
    gives the same numbers again, resumed or not.
    """
    return n * q > LEAST_PAIRS and n * q * epochs >= LEAST_WORK


class Compiled:
    """A function of tensors, compiled when it is first called; itself where that fails."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._quick: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self._quick is None:
            self._quick = self._made()
        if self._quick is self._function:
            return self._function(*arguments)
        from torch._dynamo.exc import TorchDynamoException

        try:
            return self._quick(*arguments)
        except TorchDynamoException:  # of compiling, before anything is computed
            self._quick = self._function
            return self._function(*arguments)

    def _made(self) -> Callable[..., Any]:
        try:
            return torch.compile(self._function, dynamic=True, fullgraph=True)
        except RuntimeError:  # torch cannot on this version of Python
            return self._function


@functools.cache
def compiled(function: Callable[..., Any]) -> Compiled:
    """``function``, compiled once for all selectors of the process."""
    return Compiled(function)
