"""The steps of small networks that train side by side: no more than their arithmetic.

A step of an MLP of 64 units takes 0.1 ms of arithmetic, and as a module with automatic gradients
nearly 1 ms. Here its operations are called by themselves: the same ones in the same order, so that
the numbers are those of a run that trains alone, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor
from torch.optim.adam import adam

from d2ace.models import MLP, ModelOutput

from .config import RunConfig
from .loop import Loop
from .problem import Problem, Rows, Split
from .trainer import seed_step

__all__ = ["Shared", "SideBySide", "bytes_of"]


class Shared:
    """What runs that train side by side have in common: rows, and dropout masks.

    The masks of a step are a function of its number and the run's seed. To draw them takes as long
    as a small network's arithmetic, so runs of one seed have them from here.
    """

    def __init__(self) -> None:
        self._rows: dict[int, tuple[Split, Rows]] = {}
        self._masks: dict[tuple[int, int, int], tuple[list[Tensor], Tensor]] = {}

    def rows(self, split: Split, place: Callable[[Split], Rows]) -> Rows:
        """The rows of a split, placed once."""
        if id(split) not in self._rows:
            self._rows[id(split)] = split, place(split)
        return self._rows[id(split)][1]

    def masks(self, seed: int, step: int, rows: int, model: MLP) -> list[Tensor]:
        """Masks [b, h] of hidden layers, if any; torch's generator is as the model leaves it."""
        key = seed, step, rows
        if key in self._masks:
            masks, after = self._masks[key]
            torch.default_generator.set_state(after)
            return masks
        seed_step(seed, step, 0, torch.device("cpu"))
        hidden, share = torch.ones(rows, model.classifier.in_features), model.encoder.dropout
        masks = [F.dropout(hidden, share) for _ in model.encoder.layers] if share else []
        self._masks[key] = masks, torch.default_generator.get_state()
        return masks

    def forget_masks(self) -> None:
        """The runs take other steps now."""
        self._masks.clear()


class SideBySide(Loop):
    """The loop of an MLP among others."""

    def __init__(self, config: RunConfig, problem: Problem, fabric: Fabric, shared: Shared) -> None:
        self._shared = shared
        super().__init__(config, problem, fabric)
        assert isinstance(self.model, MLP)  # noqa: S101 - others do not get here
        self._network = self.model
        # Weight and bias of each layer in turn.
        self._parameters: list[Tensor] = list(self.model.parameters())
        self._adam = self.optimizer.optimizer  # what Fabric adds is for other devices
        self._moments: list[list[Tensor]] = []

    def placed(self, split: Split) -> Rows:
        """The rows of a split, which other runs of the seed use, too."""
        return self._shared.rows(split, super().placed)

    @torch.no_grad()
    def _step(
        self, step: int, x: Tensor, y: Tensor, weight: Tensor | None, scale: float
    ) -> tuple[Tensor, Tensor]:
        masks = self._shared.masks(self.config.seed, step + 1, len(x), self._network)
        weights, biases = self._parameters[::2], self._parameters[1::2]
        last = len(weights) - 1
        given, active = [x], []
        for k in range(last):
            hidden = torch.addmm(biases[k], given[k], weights[k].t()).relu_()
            active.append(hidden)
            given.append(hidden * masks[k] if masks else hidden)
        logits = torch.addmm(biases[last], given[last], weights[last].t())
        if weight is not None and weight.shape not in ((len(x),), (len(x), 1), logits.shape):
            self._network.loss(ModelOutput(logits), y, weight)  # which says what is wrong
        loss, slope = _loss(logits, y.to(logits), weight)
        gradients: list[Tensor] = []
        for k in range(last, -1, -1):
            gradients[:0] = slope.t().mm(given[k]), slope.sum(0)
            if k:
                slope = slope.mm(weights[k])
                if masks:
                    slope.mul_(masks[k - 1])
                slope = torch.ops.aten.threshold_backward.default(slope, active[k - 1], 0)
        self._descend(gradients)
        return loss, logits

    def _descend(self, gradients: list[Tensor]) -> None:
        """A step of the optimiser; its first one, which makes its state, by itself."""
        parameters, state = self._parameters, self._adam.state
        if not state:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            self._adam.step()
            self._adam.zero_grad()
            return
        if not self._moments:
            names = ("exp_avg", "exp_avg_sq", "step")
            self._moments = [[state[each][name] for each in parameters] for name in names]
        first, second, steps = self._moments
        group = self._adam.param_groups[0]
        adam(
            parameters,
            gradients,
            first,
            second,
            [],
            steps,
            fused=True,
            amsgrad=False,
            maximize=False,
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
        )


def _loss(logits: Tensor, y: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """The loss as `MultiLabelModel.loss` has it, and its slope [b, q]."""
    rows, labels = logits.shape
    pairs = F.binary_cross_entropy_with_logits(logits, y, reduction="none")
    slope = torch.full((rows, 1), 1.0).div_(rows)
    if weight is not None and weight.shape != logits.shape:  # of instances
        weight = weight.reshape(rows, 1).to(logits)
        loss, slope = (pairs.mean(1) * weight[:, 0]).mean(), slope.mul_(weight).div_(labels)
        return loss, torch.sigmoid(logits).sub_(y).mul_(slope)
    slope.div_(labels)
    if weight is not None:
        weight = weight.to(logits)
        pairs, slope = pairs * weight, slope * weight
    return pairs.mean(1).mean(), torch.sigmoid(logits).sub_(y).mul_(slope)


def bytes_of(loop: Loop) -> int:
    """About what a run takes: its network's parameters five times, and 32 for each pair."""
    n, q = loop.problem.train.Y.shape
    return 32 * n * q + 20 * sum(each.numel() for each in loop.model.parameters())
