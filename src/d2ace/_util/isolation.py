"""The selector's own surroundings: no gradients, no inference mode, no autocast, no compiler."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

_AUTOCAST = ("cpu", "cuda")  # and wherever state is kept

Function = TypeVar("Function", bound=Callable[..., Any])


def isolated(method: Function) -> Function:
    """Run ``method`` outside the caller's gradients, inference mode, autocast and compiler.

    Tensors made in inference mode could not be updated outside it, and autocast would compute
    weights in half precision. Compiled with a training step, what numpy does would become torch's
    imitation of it, which has no items of bytes.
    """

    @functools.wraps(method)
    def run(self: Any, *arguments: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(alone)(self, *arguments, **options)
        return alone(self, *arguments, **options)

    def alone(self: Any, *arguments: Any, **options: Any) -> Any:
        casting = [d for d in {*_AUTOCAST, self.state_device.type} if _casts(d)]
        if not casting and not torch.is_inference_mode_enabled():
            with torch.no_grad():  # as a rule; it runs twice a batch
                return method(self, *arguments, **options)
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.no_grad())
            for device in casting:
                stack.enter_context(torch.autocast(device, enabled=False))
            return method(self, *arguments, **options)

    return cast("Function", run)


def _casts(device: str) -> bool:
    """Whether autocast is on for a kind of device."""
    return _may_cast(device) and torch.is_autocast_enabled(device)


@functools.cache
def _may_cast(device: str) -> bool:
    return torch.amp.is_autocast_available(device)
