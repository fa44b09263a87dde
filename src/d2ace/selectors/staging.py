"""Observations on their way into a method's memory: checked, turned into probabilities, gathered.

Processing single batches costs mostly overhead; gathering a few thousand rows first makes
observing several times cheaper. Order is kept: a row observed twice is processed twice, in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

_PAIRS = 1 << 18  # pairs processed together
_NOT_FINITE, _OUT_OF_RANGE, _REPEATED = 1, 2, 3  # faults noted on an accelerator


class Staging:
    """A buffer of predictions in front of a memory.

    ``advance(index, probs)`` receives distinct rows. An invalid pair is marked NaN, and
    ``stand_in(index, probs)`` replaces the marks before ``advance`` sees them.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        device: torch.device,
        dtype: torch.dtype,
        *,
        advance: Callable[[Tensor, Tensor], None],
        stand_in: Callable[[Tensor, Tensor], Tensor],
        gather: bool,
        skip_invalid: bool,
    ) -> None:
        self.n, self.q = shape
        self.device, self.dtype = device, dtype
        self.on_host = device.type == "cpu"
        self.advance, self.stand_in, self.skip_invalid = advance, stand_in, skip_invalid
        self.capacity = max(1, _PAIRS // self.q) if gather else 0
        self.values = torch.empty((self.capacity, self.q), dtype=dtype, device=device)
        self.rows = np.empty(self.capacity, dtype=np.int64)
        self.filled = 0
        self.known: set[int] = set()
        self.marked = False
        self.fault = torch.zeros(3, dtype=torch.int64, device=device)  # kind, instance, label

    def add(self, rows: list[int] | Tensor, values: Tensor, *, are_logits: bool) -> None:
        """Take one batch; ``rows`` is a checked list, or a tensor on the accelerator."""
        marked = self.on_host and self._has_invalid(rows, values, are_logits)
        if isinstance(rows, Tensor):
            self.flush()
            self._process(self._check_rows(rows), values, are_logits, marked)
            return
        distinct = set(rows)
        if len(distinct) < len(rows):  # drawn with replacement: the first occurrence counts
            first = np.sort(np.unique(rows, return_index=True)[1])
            rows = np.asarray(rows)[first].tolist()
            values = values[torch.from_numpy(first).to(values.device)]
        if self.filled + len(rows) > self.capacity:
            self.flush()
        if len(rows) > self.capacity:
            self._process(torch.tensor(rows, device=self.device), values, are_logits, marked)
            return
        stop = self.filled + len(rows)
        place = self.values[self.filled : stop]
        self._convert(values, are_logits, marked, out=place)
        if not self.on_host:
            self._note(place.isnan(), torch.tensor(rows, device=self.device))
        self.rows[self.filled : stop] = rows
        self.known |= distinct
        self.filled = stop
        self.marked = self.marked or marked

    def flush(self) -> None:
        """Process what was gathered."""
        if not self.filled:
            return
        rows, values = self.rows[: self.filled], self.values[: self.filled]
        repeated, marked = len(self.known) < self.filled, self.marked
        self.filled, self.marked = 0, False
        self.known.clear()
        if not repeated:
            self._advance(torch.from_numpy(rows).to(self.device), values, marked)
            return
        for turn in _turns(rows):
            index = torch.from_numpy(rows[turn]).to(self.device)
            part = values.index_select(0, torch.from_numpy(turn).to(self.device))
            self._advance(index, part, marked)

    def raise_fault(self) -> None:
        """Report what an accelerator could not report at once (its pairs were passed over)."""
        if self.on_host:
            return
        kind, row, label = self.fault.tolist()
        self.fault.zero_()
        if kind == _OUT_OF_RANGE:
            raise ValueError(f"index held {row}, but rows run from 0 to {self.n - 1}.")
        if kind == _REPEATED:
            raise ValueError(f"index held row {row} twice in one batch.")
        if kind == _NOT_FINITE and not self.skip_invalid:
            raise ValueError(_invalid_sentence("a value that is no probability", row, label))

    def _process(self, index: Tensor, values: Tensor, are_logits: bool, marked: bool) -> None:
        probs = torch.empty((len(index), self.q), dtype=self.dtype, device=self.device)
        self._convert(values, are_logits, marked, out=probs)
        if not self.on_host:
            self._note(probs.isnan(), index)
        self._advance(index, probs, marked)

    def _advance(self, index: Tensor, probs: Tensor, marked: bool) -> None:
        if marked or not self.on_host:  # an accelerator is not asked whether there are marks
            probs = torch.where(probs.isnan(), self.stand_in(index, probs), probs)
        self.advance(index, probs)

    def _convert(self, values: Tensor, are_logits: bool, marked: bool, *, out: Tensor) -> None:
        """Probabilities in ``out``; what is no valid prediction becomes NaN."""
        out.copy_(values)
        if marked or not self.on_host:
            valid = out.isfinite() if are_logits else (out >= 0) & (out <= 1)
            out.masked_fill_(~valid, torch.nan)
        if are_logits:
            out.sigmoid_()

    def _has_invalid(self, rows: Any, values: Tensor, are_logits: bool) -> bool:
        """Whether pairs must be skipped; raises where they may not be."""
        if not are_logits and values.numel():
            low, high = values.aminmax()
            if low < 0 or high > 1:
                place = int(((values < 0) | (values > 1)).flatten().nonzero()[0])
                row, label = rows[place // self.q], place % self.q
                raise ValueError(
                    f"probs holds {values.flatten()[place].item():g} for instance {int(row)}, "
                    f"label {label}, but a probability lies in [0, 1]; pass raw scores as logits."
                )
        if bool(torch.isfinite(values.sum())):
            return False
        invalid = (~values.isfinite()).flatten().nonzero()
        if not len(invalid):  # a sum of large finite values may overflow
            return False
        if not self.skip_invalid:
            place = int(invalid[0])
            value = values.flatten()[place].item()
            raise ValueError(
                _invalid_sentence(str(value), int(rows[place // self.q]), place % self.q)
            )
        return True

    def _check_rows(self, rows: Tensor) -> Tensor:
        """Rows that stay on the accelerator: faults are noted there, nothing is read back."""
        rows = rows.to(self.device, torch.int64)
        ordered = rows.sort().values
        outside = (rows < 0) | (rows >= self.n)
        repeated = ordered[1:] == ordered[:-1]
        for kind, bad, culprit in (
            (_OUT_OF_RANGE, outside, rows),
            (_REPEATED, repeated, ordered[1:]),
        ):
            if bad.numel():
                at = bad.to(torch.int8).argmax()
                self._keep(torch.stack([bad.any() * kind, culprit[at], torch.zeros_like(at)]))
        return rows.clamp(0, self.n - 1)

    def _note(self, invalid: Tensor, index: Tensor) -> None:
        at = invalid.flatten().to(torch.int8).argmax()
        self._keep(torch.stack([invalid.any() * _NOT_FINITE, index[at // self.q], at % self.q]))

    def _keep(self, fault: Tensor) -> None:
        """The first fault stays."""
        self.fault = torch.where(self.fault[0] > 0, self.fault, fault.to(torch.int64))


def _turns(rows: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Places of all first occurrences, of all second ones, and so on."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    begins = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    start = np.maximum.accumulate(np.where(begins, np.arange(rows.size), 0))
    turn = np.empty(rows.size, dtype=np.int64)
    turn[order] = np.arange(rows.size) - start
    return [np.flatnonzero(turn == number) for number in range(int(turn.max()) + 1)]


def _invalid_sentence(value: str, row: int, label: int) -> str:
    return (
        f"The prediction for instance {row}, label {label} is {value}; lower the learning rate or "
        f"check the input, or make the selector with on_invalid='skip' to pass over such pairs."
    )
