"""A selector's tensors, all on one device: memory, what waits to enter it, and P."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from d2ace._util.errors import ContractError
from d2ace._util.observations import CheckedRows, device_rows, host_rows, state_device
from d2ace._util.staging import Staging
from d2ace.selectors.history import Memory

from .kept_rows import KeptRows


class DeviceState:
    """State on one device: the one asked for, or else that of the first observed predictions.

    ``make_memory()`` and ``make_staging(device)`` give a method's memory and the buffer in front
    of it, when they are first needed.
    """

    def __init__(
        self,
        asked: torch.device | None,
        make_memory: Callable[[], Memory],
        make_staging: Callable[[torch.device], Staging],
    ) -> None:
        self.asked = asked
        self.drawn: Tensor | None = None  # P of the epoch drawn last; None where it is uniform
        self._make_memory, self._make_staging = make_memory, make_staging
        self._expected = torch.device("cpu")  # until the first predictions
        self._memory: Memory | None = None
        self._staging: Staging | None = None

    @property
    def device(self) -> torch.device:
        """Where state is kept."""
        if self._staging is not None:
            return self._staging.device
        return self.asked or self._expected

    @property
    def memory(self) -> Memory:
        """The method's state, created when first needed."""
        if self._memory is None:
            with torch.inference_mode(False), torch.device(self.device):  # to be updated outside it
                memory = self._make_memory()
            if not isinstance(memory, Memory):
                raise ContractError(
                    f"make_memory must return a Memory, got {type(memory).__name__}; return "
                    "Memory(name=tensor, ...)."
                )
            self._memory = memory.to(self.device)
        return self._memory

    def staging(self, device: torch.device) -> Staging:
        """Where predictions on ``device`` arrive; the first ones decide where state is kept."""
        if self._staging is None:
            self._staging = self._make_staging(self.asked or state_device(device))
            if self._memory is not None:
                self._memory.to(self.device)
            if self.drawn is not None:
                self.drawn = self.drawn.to(self.device)
        return self._staging

    def rows(
        self, index: Any, n: int, values: Tensor, *, replacement: bool
    ) -> CheckedRows | Tensor:
        """Row numbers of predictions, checked as far as that needs no reading back."""
        home = self.device if self._staging else self.asked or state_device(values.device)
        if values.device.type == "meta" and (self.asked is None or self.asked.type != "meta"):
            raise TypeError(
                "The predictions are on the meta device, so they have no values; move model and "
                "data to a real device, or make the selector with device='meta' for a dry run."
            )
        if replacement or "cpu" in (home.type, device_type(index)):
            return host_rows(index, n, unique=not replacement)
        return device_rows(index)

    def weighed_rows(self, index: Any, n: int) -> Tensor:
        """Rows where their loss is: on an accelerator they stay, and are not read back."""
        if device_type(index) not in ("cpu", "mps"):
            return device_rows(index)
        rows = host_rows(index, n, unique=False).array
        return torch.from_numpy(rows.astype(np.int64)).to(self.device, non_blocking=True)

    def settle(self) -> None:
        """Bring everything observed into the memory."""
        self.flush()
        if self._staging is not None:
            self._staging.raise_fault()

    def flush(self) -> None:
        """The same, but leave what an accelerator has to report for later."""
        if self._staging is not None:
            self._staging.flush()

    def forget(self) -> None:
        """Drop all tensors; they are made anew when needed."""
        self._memory = self._staging = self.drawn = None

    def keep(self, kept: KeptRows) -> None:
        """Of a memory of all rows, these alone; the staging in front of it is made anew."""
        self._expected, self._staging = self.device, None
        whole, self._memory = self._memory, None
        if whole is not None:
            self.load_memory({name: kept.of(rows) for name, rows in whole.state_dict().items()})

    def restored(self, kind: str, drawn: Tensor | None) -> DeviceState:
        """The same memory, to be filled from a state saved on a device of this kind.

        Elsewhere sums are rounded otherwise. The kind alone is known, so that each of several
        processes keeps to its own device.
        """
        try:
            torch.empty(0, device=kind)
        except (RuntimeError, AssertionError):  # no such device here
            kind = "cpu"
        other = copy.copy(self)
        other._staging, other._expected = None, torch.device(kind)
        uniform = drawn is None or not bool(drawn.any())
        other.drawn = None if uniform or drawn is None else drawn.detach().clone().to(other.device)
        return other

    def load_memory(self, memory: dict[str, Tensor]) -> None:
        """Fill the memory, where state is kept."""
        self.memory.to(self.device).load_state_dict(memory)


def device_type(index: Any) -> str:
    """Where row numbers are; lists and arrays are on the host."""
    return index.device.type if isinstance(index, Tensor) else "cpu"
