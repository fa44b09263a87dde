"""What a selector keeps, and on which device: memory, labels, the probabilities drawn from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from d2ace.selectors.history import Memory

from .inputs import device_rows, host_rows, state_device
from .staging import Staging


class Placed:
    """State on one device: the one asked for, or else that of the first observed predictions."""

    if TYPE_CHECKING:  # what the selector provides
        n: int
        q: int
        labels: sp.csr_array
        dtype: torch.dtype
        on_invalid: str
        merges_updates: ClassVar[bool]

        @property
        def _learns(self) -> bool: ...
        def make_memory(self) -> Memory: ...
        def update(self, index: Tensor, probs: Tensor) -> None: ...

    def __init__(self, device: torch.device | None) -> None:
        self.device = device
        self._expected = torch.device("cpu")  # until the first predictions
        self._memory: Memory | None = None
        self._staging: Staging | None = None
        self._drawn: Tensor | None = None  # P of the epoch drawn last; None where it is uniform
        self._dense_labels: Tensor | None = None

    @property
    def memory(self) -> Any:
        """The method's state, created when first needed."""
        if self._memory is None:
            with torch.device(self._home):
                self._memory = self.make_memory().to(self._home)
        return self._memory

    @property
    def _home(self) -> torch.device:
        if self._staging is not None:
            return self._staging.device
        return self.device or self._expected

    def _expect(self, kind: str) -> None:
        """Weigh where the saved state was: elsewhere sums are rounded otherwise.

        The kind of device alone is known, so that each of several processes keeps to its own.
        """
        try:
            torch.empty(0, device=kind)
        except (RuntimeError, AssertionError):  # no such device here
            kind = "cpu"
        self._expected = torch.device(kind)

    def _kept_on(self, device: torch.device) -> torch.device:
        return self.device or state_device(device)

    def _stage(self, device: torch.device) -> Staging:
        """Where observations arrive; the first ones decide the device."""
        if self._staging is None:
            self._staging = Staging(
                (self.n, self.q),
                self._kept_on(device),
                self.dtype,
                advance=self.update,
                stand_in=self._last_known,
                gather=self.merges_updates,
                learns=self._learns,
                skip_invalid=self.on_invalid == "skip",
            )
            if self._memory is not None:
                self._memory.to(self._home)
            if self._drawn is not None:
                self._drawn = self._drawn.to(self._home)
        return self._staging

    def _last_known(self, index: Tensor, probs: Tensor) -> Tensor:
        known: Tensor = self.memory.last_known(index, probs)
        return known

    def _settle(self) -> None:
        """Bring everything observed into the memory."""
        if self._staging is not None:
            self._staging.flush()
            self._staging.raise_fault()

    def labels_at(self, index: Tensor) -> Tensor:
        """Rows of Y as booleans [b, q] on the device of ``index``."""
        if self._dense_labels is None or self._dense_labels.device != index.device:
            dense = torch.from_numpy(self.labels.astype(np.bool_).toarray())
            self._dense_labels = dense.to(index.device)
        return self._dense_labels.index_select(0, index)

    def drawn_probability(self, index: Tensor) -> Tensor | float:
        """The probability with which rows were drawn in the epoch drawn last."""
        return 1.0 / self.n if self._drawn is None else self._drawn.index_select(0, index)

    def _rows_to_weigh(self, index: Any) -> Tensor:
        """Rows where their loss is: on an accelerator they stay, and are not read back."""
        if device_type(index) not in ("cpu", "mps"):
            return device_rows(index)
        rows = host_rows(index, self.n, unique=False).array
        return torch.from_numpy(rows.astype(np.int64)).to(self._home, non_blocking=True)

    def _beside(self, index: Any, weight: Tensor) -> Tensor:
        """Loss weights in the selector's precision, where an index on an accelerator is."""
        weight = weight.to(self.dtype)
        return weight.to(index.device) if device_type(index) != "cpu" else weight


def device_type(index: Any) -> str:
    """Where row numbers are; lists and arrays are on the host."""
    return index.device.type if isinstance(index, Tensor) else "cpu"
