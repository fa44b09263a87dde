"""ML-Unc: prefer instances that are uncertain across correlated labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from d2ace._util import validation as inputs
from d2ace.selectors._engine.compiling import pays
from d2ace.selectors._engine.options import CommonOptions

from . import compact, reference, scores
from .base import Selector
from .compact import CompactHistory
from .correlation import uncertainty_correlation
from .history import PredictionHistory
from .labels import weighted_sum
from .probability import level

if TYPE_CHECKING:
    from typing_extensions import Unpack


class MLUnc(Selector):
    """w = rowsum(U C): uncertainty spread over labels by mutual information.

    ``preset="reference"`` does what the authors' code does: C all ones, U binned, and a pressure
    that rises from 1 to 8.

    Parameters
    ----------
    window : int
        n_t, the predictions whose differences count.
    trade_off : float
        lambda_1, the share of entropy in U.
    mi_norm : "row_max", "none" or "sqrt"
        How mutual information is scaled.
    pressure : float, optional
        s0; 100, or the final 8 with ``preset="reference"``.
    """

    name: ClassVar[str] = "ml_unc"
    title: ClassVar[str] = "ML-Unc"
    reference = reference.ML_UNC
    uses_features: ClassVar[bool] = False
    merges_updates: ClassVar[bool] = True
    has_compact_state: ClassVar[bool] = True

    def __init__(
        self,
        labels: inputs.Labels,
        features: inputs.Features = None,
        *,
        window: int = 5,
        trade_off: float = 0.5,
        mi_norm: str = "row_max",
        pressure: float | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(labels, features, **common)
        self.pressure = self.start_pressure(pressure)
        self.window = inputs.whole_number("window", window, 2)
        self.trade_off = inputs.real_number("trade_off", trade_off, 0.0, 1.0)
        self.mi_norm = inputs.choice("mi_norm", mi_norm, ("row_max", "none", "sqrt"))

    @property
    def shardable(self) -> bool:
        return True

    def make_memory(self) -> PredictionHistory | CompactHistory:
        kind = CompactHistory if self.is_compact else PredictionHistory
        compiles = pays(self.n, self.q, self.epochs, saved=1.0)
        return kind(self.kept.count, self.q, self.dtype, window=self.window, compiles=compiles)

    def update(self, index: Tensor, probs: Tensor) -> None:
        self.memory.update(index, probs)

    def uncertainty_matrix(self) -> Tensor:
        """U [n, q]; valid until the next one is asked for."""
        source = compact if self.is_compact else scores
        return source.uncertainty(self.memory, self.trade_off)

    def _label_factor(self, matrix: Tensor) -> Tensor:
        """rowsum_j(C), which is all of C that w needs."""
        if self.is_reference:  # C is all ones
            return torch.full((self.q,), float(self.q), dtype=torch.float64, device=matrix.device)
        return uncertainty_correlation(matrix, self.mi_norm, self.kept).sum(dim=1)

    def instance_weights(self) -> dict[str, Tensor]:
        matrix = self.uncertainty_matrix()
        factor = self._label_factor(matrix)
        if self.is_reference:
            matrix = reference.binned(matrix, self.next_epoch)
        weights = self.kept.whole(weighted_sum(matrix, factor))
        return {"uncertainty": level(weights, self.dtype)}

    def label_importance(self) -> dict[str, Tensor]:
        return {"uncertainty": self._label_factor(self.uncertainty_matrix())}
