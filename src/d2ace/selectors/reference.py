"""What the methods with a quantisation index share: one option, and the authors' schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from d2ace._util import validation as inputs
from d2ace.selectors._engine.options import CommonOptions

from .base import Selector

if TYPE_CHECKING:
    from typing_extensions import Unpack


class QuantisedOptions(CommonOptions, total=False):
    """Keyword options of every method with a quantisation index."""

    pressure: float | None


class QuantisedSelector(Selector):
    """A selector whose probabilities come from the quantisation index under falling pressure.

    ``pressure`` is s0, the largest ratio between two probabilities; None takes the preset's value
    (100 in the paper).
    """

    reference_pressure: ClassVar[float] = 100.0

    def __init__(
        self,
        labels: inputs.Labels,
        features: inputs.Features = None,
        *,
        pressure: float | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(labels, features, **common)
        if pressure is None:
            pressure = self.reference_pressure if self.preset == "reference" else 100.0
        self.pressure = inputs.real_number("pressure", pressure, 1.0)

    def selection_pressure(self, epoch: int) -> float:
        if self.preset == "reference" and epoch <= self.epochs:
            return max(1.0, self.reference_schedule(epoch))
        return super().selection_pressure(epoch)

    def reference_schedule(self, epoch: int) -> float:
        """s(t) of the authors' code, with its constants; the paper's where it has none."""
        return super().selection_pressure(epoch)


class NotebookSelector(QuantisedSelector):
    """A method known from the authors' comparison notebook: s = s0^(1 - e/100), e = t - 2."""

    reference_pressure: ClassVar[float] = 10.0
    full_reference_batches: ClassVar[bool] = True

    def reference_schedule(self, epoch: int) -> float:
        return float(self.pressure ** (1.0 - (epoch - 2) / 100.0))
