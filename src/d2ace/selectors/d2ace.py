"""D2ACE: uncertainty and noise-resistant hardness, mixed by stage of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from d2ace._util import validation as inputs
from d2ace.selectors._engine.compiling import pays
from d2ace.selectors._engine.options import CommonOptions

from . import probability, reference, scores
from .base import Selector
from .compact import Blocks, CompactHistory, HardnessBlocks, UncertaintyBlocks
from .correlation import LocalCorrelation
from .history import PredictionHistory
from .labels import dynamic_weights, weighted_sum
from .neighbors import Neighbors, asked_neighbors, is_number, local_labels, named_neighbors

if TYPE_CHECKING:
    from typing_extensions import Unpack

_METRICS = ("uncertainty", "hardness")


class D2ACE(Selector):
    """Dual dynamics and adaptive correlation enhancement.

    For both metrics A, uncertainty U and hardness H = loss (1 - flips): w_A = delta_A + phi_A,
    with delta = A v by dynamic label weights v and phi the correlation of positives in their
    neighbourhood; then P = p_beta P_U + (1 - p_beta) P_H.

    Parameters
    ----------
    window : int
        n_t, the predictions whose differences count.
    trade_off : float
        lambda_1, the share of entropy in U.
    flip_smoothing : float
        lambda_2 of the moving average of flips.
    neighbors : int or index array [n, K]
        K nearest neighbours by ``features``, or ready ones. K = 0: the instance alone.
    neighbors_method : "auto", "exact", "tree" or "approximate"
        How they are found; see :func:`d2ace.selectors.neighbors.search`.
    include_self : bool
        Whether an instance belongs to its own neighbourhood.
    mix, mix_epochs, mix_schedule
        p_beta goes from mix[0] at epoch mix_epochs[0] to mix[1] at mix_epochs[1], "linear" or
        "exp". mix_epochs defaults to (30, 70); (10, 70) with ``preset="reference"``.
    label_weight : "exp", "linear" or "none"
        Form of v.
    correlation : "local" or "none"
        Whether phi counts.
    weight_transform : "none" or "exp"
        exp(w - max w) before scaling.
    hardness_loss : "bce" or "prob"
        Cross-entropy, or one minus the probability of the true state. With
        ``preset="reference"``, two minus it, unless given.
    scale_schedule : bool
        Take mix_epochs as fractions of 100 epochs.
    pressure : float, optional
        s0; 100, or 8 with ``preset="reference"``.
    """

    name: ClassVar[str] = "d2ace"
    title: ClassVar[str] = "D2ACE"
    reference = reference.D2ACE
    merges_updates: ClassVar[bool] = True
    has_compact_state: ClassVar[bool] = True

    def __init__(
        self,
        labels: inputs.Labels,
        features: inputs.Features = None,
        *,
        window: int = 5,
        trade_off: float = 0.5,
        flip_smoothing: float = 0.7,
        neighbors: int | Any = 6,
        neighbors_method: str = "auto",
        include_self: bool = True,
        mix: tuple[float, float] = (0.7, 0.3),
        mix_epochs: tuple[float, float] | None = None,
        mix_schedule: str = "linear",
        label_weight: str = "exp",
        correlation: str = "local",
        weight_transform: str = "none",
        hardness_loss: str | None = None,
        scale_schedule: bool = False,
        pressure: float | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(labels, features, **common)
        self.pressure = self.start_pressure(pressure)
        self.window = inputs.whole_number("window", window, 2)
        self.trade_off = inputs.real_number("trade_off", trade_off, 0.0, 1.0)
        self.flip_smoothing = inputs.real_number(
            "flip_smoothing", flip_smoothing, 0.0, 1.0, open_low=True
        )
        self.include_self = inputs.truth("include_self", include_self)
        start, end = inputs.pair("mix", mix)
        self.mix = (
            inputs.real_number("mix", start, 0.0, 1.0),
            inputs.real_number("mix", end, 0.0, 1.0),
        )
        scaled = inputs.truth("scale_schedule", scale_schedule)
        self.mix_epochs = self._span(mix_epochs, scaled=scaled)
        self.mix_schedule = inputs.choice("mix_schedule", mix_schedule, ("linear", "exp"))
        self.label_weight = inputs.choice("label_weight", label_weight, ("exp", "linear", "none"))
        self.correlation = inputs.choice("correlation", correlation, ("local", "none"))
        self.weight_transform = inputs.choice("weight_transform", weight_transform, ("none", "exp"))
        if hardness_loss is None:
            self.hardness_loss = "reference" if self.is_reference else "bce"
        else:
            self.hardness_loss = inputs.choice("hardness_loss", hardness_loss, ("bce", "prob"))
        # The reference takes the K + 1 nearest, the row as one of them.
        itself = self.is_reference and self.include_self and is_number(neighbors)
        found = asked_neighbors(neighbors, self.features, self.n, neighbors_method, itself=itself)
        self.neighborhood = self._neighborhood(found, include_self=self.include_self and not itself)
        """Z [n, q]: which labels are present around each instance."""
        self.neighbors = named_neighbors(neighbors, found)
        self.neighbor_method = "none" if found is None else found.method
        """How they were found: "exact", "approximate", "given" or "none"."""
        self.neighbor_recall = 1.0 if found is None else found.recall
        """Share of true neighbours that the search found, measured on a sample; 1.0 if exact."""
        self.features = None  # they have served to find neighbours
        self._local: LocalCorrelation | None = None

    def _span(self, given: Any, *, scaled: bool) -> tuple[float, float]:
        if given is None:
            given = reference.MIX_EPOCHS if self.is_reference else (30, 70)
        first, last = inputs.pair("mix_epochs", given)
        first = inputs.real_number("mix_epochs", first, 0.0)
        last = inputs.real_number("mix_epochs", last, 0.0)
        if first > last:
            raise ValueError(f"mix_epochs must be in ascending order, got ({first:g}, {last:g}).")
        factor = self.epochs / 100.0 if scaled else 1.0
        return first * factor, last * factor

    def _neighborhood(self, found: Neighbors | None, *, include_self: bool) -> sp.csr_array:
        """Z: the labels present around each instance."""
        if found is None or found.rows.shape[1] == 0:
            return self.labels
        around = local_labels(self.labels, found.rows, include_self=include_self)
        if around.nnz < 1 << 31:  # half the memory, and torch can read it where it is
            around.indices, around.indptr = (
                part.astype(np.int32, copy=False) for part in (around.indices, around.indptr)
            )
        return around

    @property
    def shardable(self) -> bool:
        return True

    @property
    def local_correlation(self) -> LocalCorrelation:
        """phi, and the C it is made from, for this selector's labels and neighbourhoods."""
        if self._local is None or not self._local.fits(self.kept, self.state_device):
            self._local = LocalCorrelation(
                self.labels, self.neighborhood, self.state_device, kept=self.kept
            )
        return self._local

    def make_memory(self) -> PredictionHistory | CompactHistory:
        kind = CompactHistory if self.is_compact else PredictionHistory
        return kind(
            self.kept.count,
            self.q,
            self.dtype,
            window=self.window,
            flip_smoothing=self.flip_smoothing,
            soft_flips=self.is_reference,
            compiles=pays(self.n, self.q, self.epochs, saved=4.0),
        )

    def update(self, index: Tensor, probs: Tensor) -> None:
        self.memory.update(index, probs)

    def metric(self, name: str) -> Tensor:
        """U or H [n, q]; valid until the next one is asked for."""
        matrix = self._matrix(name)
        return matrix if isinstance(matrix, Tensor) else matrix.whole()

    def _matrix(self, name: str) -> Tensor | Blocks:
        if name == "uncertainty":
            if self.is_compact:
                return UncertaintyBlocks(self.memory, self.trade_off)
            return scores.uncertainty(self.memory, self.trade_off)
        positives = self.local_correlation.positives
        if self.is_compact:
            return HardnessBlocks(self.memory, positives, self.hardness_loss)
        return scores.hardness(self.memory, positives, self.hardness_loss)

    def _weigh(self, matrix: Tensor | Blocks) -> Tensor:
        """w_A = delta_A + phi_A, of the rows kept here."""
        v = dynamic_weights(matrix, self.label_weight, self.kept)
        weights = weighted_sum(matrix, v)
        if self.correlation == "local":
            local = self.local_correlation
            mirrored = self.is_reference
            phi = reference.enhancement(local, matrix, v) if mirrored else local.enhancement(matrix)
            weights = weights + phi
        weights = probability.level(weights, self.dtype, self.kept)
        if self.weight_transform == "exp":
            weights = torch.exp(weights - self.kept.extent(weights)[1])
        return weights

    def _kept_weights(self, wanted: Sequence[str]) -> dict[str, Tensor]:
        return {name: self._weigh(self._matrix(name)) for name in wanted}

    def instance_weights(self, wanted: Sequence[str] = _METRICS) -> dict[str, Tensor]:
        return {name: self.kept.whole(part) for name, part in self._kept_weights(wanted).items()}

    def label_importance(self) -> dict[str, Tensor]:
        """v_U and v_H."""
        return {
            name: dynamic_weights(self._matrix(name), self.label_weight, self.kept)
            for name in _METRICS
        }

    def mixing(self, epoch: int) -> float:
        """p_beta(t), the share of uncertainty."""
        at = epoch - 2 if self.is_reference else epoch
        return probability.stage_mix(self.mix, self.mix_epochs, at, self.mix_schedule)

    def diagnostics(self) -> dict[str, float]:
        """As of every selector, with ``mixing``: p_beta of a selective epoch."""
        found = super().diagnostics()
        if self.selects(self.drawn_epoch):
            found["mixing"] = self.mixing(self.drawn_epoch)
        return found

    def distribution(self, epoch: int) -> Tensor:
        share = self.mixing(epoch)
        shares = {"uncertainty": share, "hardness": 1.0 - share}
        wanted = [name for name in _METRICS if shares[name] > 0]
        pressure = self.selection_pressure(epoch)
        quantised = reference.quantised if self.is_reference else probability.quantised
        if self.kept.spread and type(self).instance_weights is D2ACE.instance_weights:
            # The processes exchange the steps of P alone, which are half the bytes of the weights.
            weights, kept = self._kept_weights(wanted), self.kept
        else:
            weights, kept = self.instance_weights(wanted), None
        parts = [shares[name] * quantised(each, pressure, kept) for name, each in weights.items()]
        return torch.stack(parts).sum(dim=0)
