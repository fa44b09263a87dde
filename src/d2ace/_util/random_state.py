"""Turns at what all threads of a process share: torch's generators, and how many threads it uses.

Dropout, first weights and torchvision's transforms draw from torch's global generators. So that
neither trainings in several threads nor the program around them disturb each other, each takes
turns of a step or a pass: it puts its own state in place, and what was there before back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import torch

__all__ = ["Turn", "borrowed_generator", "seed_generators"]

Item = TypeVar("Item")
_lock = threading.RLock()


def _new_lock() -> None:
    """For a forked process: whichever thread had the lock is not there."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


class Turn:
    """Enter it for every computation of one training; between two of them others have theirs.

    ``device`` is where the training draws, beside the processor. ``threads`` are those of torch
    in a turn; None leaves its choice. No turn is taken within itself. What other threads draw from
    the global generators without a turn of their own is the one thing that is not kept apart.
    """

    def __init__(self, device: torch.device, threads: int | None = None) -> None:
        self._device, self._threads = device, threads
        self._own: list[torch.Tensor] | None = None
        self._left = ExitStack()

    def __enter__(self) -> Turn:
        with ExitStack() as stack:
            stack.enter_context(_lock)
            stack.callback(_restore, self._device, _states(self._device))
            if self._own is not None:
                _restore(self._device, self._own)
            if self._threads is not None:
                stack.callback(torch.set_num_threads, torch.get_num_threads())
                torch.set_num_threads(self._threads)
            self._left = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._left:
            self._own = _states(self._device)

    def each(self, items: Iterator[Item]) -> Iterator[Item]:
        """The items, each computed in a turn."""
        while True:
            with self:
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item


@contextmanager
def borrowed_generator() -> Iterator[torch.Generator]:
    """The processor's global generator, for what can draw from no other."""
    with Turn(torch.device("cpu")):
        yield torch.default_generator


def seed_generators(seed: int, device: torch.device) -> None:
    """What ``torch.manual_seed`` does, but for one device, and at a hundredth of its time."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.init()
        torch.cuda.default_generators[_index(device)].manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


def _states(device: torch.device) -> list[torch.Tensor]:
    states = [torch.default_generator.get_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    elif device.type == "mps":
        states.append(torch.mps.get_rng_state())
    return states


def _restore(device: torch.device, states: list[torch.Tensor]) -> None:
    torch.default_generator.set_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
    elif device.type == "mps":
        torch.mps.set_rng_state(states[1])


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index
