"""Room for the steps of a computation, kept because fresh memory costs more than filling it."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Scratch"]

_ALIGNED = 16  # numbers: every matrix begins on a cache line


class Scratch:
    """Matrices that hold nothing for long: each :meth:`take` hands out the same memory again."""

    def __init__(self) -> None:
        self._room: Tensor | None = None

    def __reduce__(self) -> tuple[type[Scratch], tuple[()]]:
        return Scratch, ()  # copies and pickles make room of their own

    def take(
        self, count: int, height: int, width: int, device: torch.device, dtype: torch.dtype
    ) -> list[Tensor]:
        """``count`` matrices [height, width]."""
        size = height * width
        step = -(-size // _ALIGNED) * _ALIGNED
        room = self._room
        fits = room is not None and room.device == device and room.dtype == dtype
        if room is None or not fits or len(room) < count * step:
            with torch.inference_mode(False):  # to be filled outside it, too
                room = self._room = torch.empty(count * step, dtype=dtype, device=device)
        return [
            room[start : start + size].view(height, width) for start in range(0, count * step, step)
        ]
