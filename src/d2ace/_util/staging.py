"""Observations on their way into a method's memory: checked, turned into probabilities, gathered.

Processing single batches costs mostly overhead; gathering a few thousand rows first makes
observing several times cheaper. Order is kept: a row observed twice is processed twice, in turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .observations import CheckedRows

PAIRS = 1 << 17  # pairs processed together
_SLACK = 1e-6  # by which rounding may carry a probability beyond 0 or 1
_NOT_FINITE, _NO_PROBABILITY, _NO_ROW, _REPEATED = 1, 2, 3, 4  # faults noted on an accelerator


class Sink(NamedTuple):
    """Where predictions end up.

    ``advance(index, probs)`` receives distinct rows. A pair to pass over is marked NaN, one outside
    [0, 1] (on an accelerator, which cannot refuse it at once) infinite, and
    ``stand_in(index, probs)`` replaces the marks before ``advance`` sees them.
    """

    advance: Callable[[Tensor, Tensor], None]
    stand_in: Callable[[Tensor, Tensor], Tensor]


class Staging:
    """A buffer of predictions in front of one or more memories; with none, it only checks."""

    def __init__(
        self,
        shape: tuple[int, int],
        device: torch.device,
        dtype: torch.dtype,
        *,
        sinks: tuple[Sink, ...],
        gather: bool,
        skip_invalid: bool,
    ) -> None:
        self.n, self.q = shape
        self.device, self.dtype = device, dtype
        self.on_host = device.type == "cpu"
        self.sinks, self.skip_invalid = sinks, skip_invalid
        self.capacity = max(1, min(self.n, PAIRS // self.q)) if gather else 0
        self.values = torch.empty((self.capacity, self.q), dtype=dtype, device=device)
        self.rows = np.empty(self.capacity, dtype=np.int64)
        self.place = np.empty(self.n if gather else 0, dtype=np.int32)  # of a row in the buffer
        self.filled = 0
        self.marked = False
        self.fault = torch.zeros(3, dtype=torch.int64, device=device)  # kind, instance, label

    def add(self, rows: CheckedRows | Tensor, values: Tensor, *, are_logits: bool) -> None:
        """Take one batch; its rows are checked ones of the host, or stay on the accelerator."""
        marked = self.on_host and self._has_invalid(rows, values, are_logits)
        if not self.sinks:
            return
        if isinstance(rows, Tensor):
            self.flush()
            inside = self._check_rows(rows)
            values = values.to(self.device).masked_fill(~inside.unsqueeze(1), torch.nan)
            self._process(rows.to(self.device).clamp(0, self.n - 1), values, are_logits, marked)
            return
        array = rows.array
        if rows.repeated:  # drawn with replacement: the first occurrence counts
            first = np.sort(np.unique(array, return_index=True)[1])
            array, values = array[first], values[_sent(first, values.device)]
        if self.filled + len(array) > self.capacity:
            self.flush()
        if len(array) > self.capacity:
            index = _sent(array.astype(np.int64), self.device)
            self._process(index, values, are_logits, marked)
            return
        stop = self.filled + len(array)
        place = self.values[self.filled : stop]
        # batch by batch: the last bit of a sigmoid depends on where in a block a value stands
        alike = values.dtype == self.dtype and values.device == self.device
        if are_logits and not marked and self.on_host and alike:
            torch.sigmoid(values, out=place)
        else:
            self._convert(place.copy_(values), are_logits, marked)
        self.rows[self.filled : stop] = array
        self.filled = stop
        self.marked = self.marked or marked

    def flush(self) -> None:
        """Process what was gathered."""
        if not self.filled:
            return
        rows, values = self.rows[: self.filled], self.values[: self.filled]
        marked = self.marked
        self.filled, self.marked = 0, False
        index = _sent(rows, self.device)
        places = np.arange(len(rows), dtype=np.int32)
        self.place[rows] = places
        if np.array_equal(self.place[rows], places):  # each row once
            self._advance(index, values, marked)
            return
        for turn in _turns(rows):
            chosen = _sent(turn, self.device)
            self._advance(index[chosen], values.index_select(0, chosen), marked)

    def raise_fault(self) -> None:
        """Report what an accelerator could not report at once (its pairs were passed over)."""
        if self.on_host:
            return
        kind, row, label = self.fault.tolist()
        self.fault.zero_()
        if kind == _NO_ROW:
            raise ValueError(f"index held {row}, but rows run from 0 to {self.n - 1}.")
        if kind == _REPEATED:
            raise ValueError(f"index held row {row} twice in one batch.")
        if kind == _NOT_FINITE:
            raise ValueError(_invalid_sentence("NaN or infinite", row, label))
        if kind == _NO_PROBABILITY:
            raise ValueError(_outside_sentence("held a value", row, label))

    def _process(self, index: Tensor, values: Tensor, are_logits: bool, marked: bool) -> None:
        probs = values.to(self.device, self.dtype, copy=True)
        self._convert(probs, are_logits, marked)
        self._advance(index, probs, marked)

    def _convert(self, values: Tensor, are_logits: bool, marked: bool) -> None:
        """Turn values into probabilities in place, and mark what is no valid prediction."""
        if marked or not self.on_host:  # an accelerator is not asked whether there are any
            values.masked_fill_(~values.isfinite(), torch.nan)
        if are_logits:
            values.sigmoid_()
        elif self.on_host:
            values.clamp_(0.0, 1.0)
        else:
            outside = _outside(values)
            values.clamp_(0.0, 1.0).masked_fill_(outside, torch.inf)

    def _advance(self, index: Tensor, probs: Tensor, marked: bool) -> None:
        if marked or not self.on_host:
            valid = probs.isfinite()
            if not self.on_host:
                self._note(_NO_PROBABILITY, probs.isinf(), index)
                if not self.skip_invalid:
                    self._note(_NOT_FINITE, ~valid, index)
            for sink in self.sinks:
                sink.advance(index, torch.where(valid, probs, sink.stand_in(index, probs)))
            return
        for sink in self.sinks:
            sink.advance(index, probs)

    def _has_invalid(self, rows: CheckedRows | Tensor, values: Tensor, are_logits: bool) -> bool:
        """Whether pairs must be passed over; raises where they may not be."""
        if not are_logits and values.numel():
            low, high = values.aminmax()
            if low >= -_SLACK and high <= 1 + _SLACK:  # false with a NaN too
                return False
            outside = _outside(values) & values.isfinite()
            if bool(outside.any()):
                instance, label, value = self._first(outside, rows, values)
                raise ValueError(_outside_sentence(f"holds {value:.7g}", instance, label))
        if math.isfinite(values.sum().item()):
            return False
        invalid = ~values.isfinite()
        if not bool(invalid.any()):  # a sum of large finite values may overflow
            return False
        if not self.skip_invalid:
            instance, label, value = self._first(invalid, rows, values)
            raise ValueError(_invalid_sentence(str(value), instance, label))
        return True

    def _first(
        self, bad: Tensor, rows: CheckedRows | Tensor, values: Tensor
    ) -> tuple[int, int, float]:
        place = int(bad.flatten().nonzero()[0])
        numbers = rows if isinstance(rows, Tensor) else rows.array
        instance = int(numbers[place // self.q])
        return instance, place % self.q, values.flatten()[place].item()

    def _check_rows(self, rows: Tensor) -> Tensor:
        """Which rows exist; faults are noted on the accelerator, nothing is read back."""
        rows = rows.to(self.device, torch.int64)
        ordered = rows.sort().values
        outside = (rows < 0) | (rows >= self.n)
        repeated = ordered[1:] == ordered[:-1]
        for kind, bad, culprit in (
            (_NO_ROW, outside, rows),
            (_REPEATED, repeated, ordered[1:]),
        ):
            if bad.numel():
                at = bad.to(torch.int8).argmax()
                self._keep(bad.any() * kind, _at(culprit, at), torch.zeros_like(at))
        return ~outside

    def _note(self, kind: int, bad: Tensor, index: Tensor) -> None:
        at = bad.flatten().to(torch.int8).argmax()
        self._keep(bad.any() * kind, _at(index, at // self.q), at % self.q)

    def _keep(self, *fault: Tensor) -> None:
        """The first fault stays."""
        self.fault = torch.where(self.fault[0] > 0, self.fault, torch.stack(fault))


def _sent(places: np.ndarray[Any, Any], device: torch.device) -> Tensor:
    """Row numbers on a device, without waiting for what it still has to do."""
    return torch.from_numpy(places).to(device, non_blocking=True)


def _at(values: Tensor, place: Tensor) -> Tensor:
    """``values[place]`` for a scalar place, without asking the device for it."""
    return values.index_select(0, place.view(1)).squeeze(0)


def _outside(values: Tensor) -> Tensor:
    """Which values are no probabilities; NaN is not asked about here."""
    return (values < -_SLACK) | (values > 1 + _SLACK)


def _turns(rows: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Places of all first occurrences, of all second ones, and so on."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    begins = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    start = np.maximum.accumulate(np.where(begins, np.arange(rows.size), 0))
    turn = np.empty(rows.size, dtype=np.int64)
    turn[order] = np.arange(rows.size) - start
    return [np.flatnonzero(turn == number) for number in range(int(turn.max()) + 1)]


def _outside_sentence(value: str, row: int, label: int) -> str:
    return (
        f"probs {value} for instance {row}, label {label}, but a probability lies in [0, 1]; "
        f"pass raw scores as logits."
    )


def _invalid_sentence(value: str, row: int, label: int) -> str:
    return (
        f"The prediction for instance {row}, label {label} is {value}; lower the learning rate or "
        f"check the input, or make the selector with on_invalid='skip' to pass over such pairs."
    )
