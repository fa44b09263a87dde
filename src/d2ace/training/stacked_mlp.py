"""Several MLPs of one shape as one network: a batched matrix product trains them all.

The stack's tensors [R, ...] are where the parameters of its models and the states of their
optimisers lie, so each model can predict, and be saved, by itself between two steps. All numbers
are computed as the models would: the same dropout masks, the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.adam import adam

from d2ace.models import MLP

from .trainer import seed_step

__all__ = ["Masks", "StackedMLP"]

_VECTOR = 64  # a multiple of the numbers in a vector, of any processor


class Masks:
    """Dropout masks of the hidden layers, divided by the share that is kept, as layers draw them.

    A step's randomness is a function of the run's seed and the step's number (`seed_step`), so
    networks of one seed at the same step share their masks.
    """

    def __init__(self, networks: int, rows: int, depth: int, width: int, dropout: float) -> None:
        self._drop = dropout
        drawn = depth if dropout else 0
        self._layers = [torch.empty(networks, rows, width) for _ in range(drawn)]

    def draw(self, steps: Sequence[tuple[int, int, int]]) -> list[Tensor]:
        """Masks [R, b, h] of every layer for (seed, step, rows) of each network; b: most rows."""
        most = max(rows for _, _, rows in steps)
        first: dict[tuple[int, int, int], int] = {}
        for network, wanted in enumerate(steps):
            same = first.setdefault(wanted, network)
            seed, step, rows = wanted
            if same == network:
                seed_step(seed, step, 0, torch.device("cpu"))
            for layer in self._layers:
                mask = layer[network, :rows]
                if same == network:
                    mask.bernoulli_(1 - self._drop)
                    if self._drop < 1:
                        mask.div_(1 - self._drop)
                else:
                    mask.copy_(layer[same, :rows])
                layer[network, rows:most] = 0.0  # rows that fill up a shorter batch
        return [layer[:, :most] for layer in self._layers]


class StackedMLP:
    """R networks, each with its optimiser; takes over where their parameters lie."""

    def __init__(self, models: Sequence[MLP], optimizers: Sequence[Any]) -> None:
        every = [list(model.parameters()) for model in models]
        self._parameters = [_stacked(alike) for alike in zip(*every, strict=True)]
        states = [
            [optimizer.state[parameter] for parameter in own]
            for optimizer, own in zip(optimizers, every, strict=True)
        ]
        self._steps = torch.tensor(
            [[float(state["step"]) if state else 0.0 for state in own] for own in states]
        )
        """What each parameter's optimiser counts [R, parameters]."""
        self._moments = {
            name: [
                torch.stack(
                    [own[k].get(name, torch.zeros_like(values[r])) for r, own in enumerate(states)]
                )
                for k, values in enumerate(self._parameters)
            ]
            for name in ("exp_avg", "exp_avg_sq")
        }
        for r, own in enumerate(states):
            for k, state in enumerate(own):
                state["step"] = self._steps[r, k]
                for name, moments in self._moments.items():
                    state[name] = moments[k][r]
        group = optimizers[0].param_groups[0]
        self._options = {name: group[name] for name in ("weight_decay", "eps")}
        self._betas = group["betas"]

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Logits [R, b, q] of x [R, b, d], and what each layer was given, for `backward`."""
        weights, biases = self._parameters[::2], self._parameters[1::2]
        given = [x]
        for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            hidden = torch.baddbmm(bias.unsqueeze(1), given[-1], weight.transpose(1, 2))
            if k == len(weights) - 1:
                break
            hidden = F.relu_(hidden)
            given.append(hidden.mul_(masks[k]) if masks else hidden)
        return hidden, given

    def backward(
        self, slope: Tensor, given: Sequence[Tensor], masks: Sequence[Tensor]
    ) -> list[Tensor]:
        """Gradients of all parameters, from that of the logits [R, b, q]."""
        weights = self._parameters[::2]
        gradients: list[Tensor] = []
        for k in range(len(weights) - 1, -1, -1):
            gradients[:0] = [torch.bmm(slope.transpose(1, 2), given[k]), slope.sum(1)]
            if k:
                slope = torch.bmm(slope, weights[k])
                if masks:
                    slope.mul_(masks[k - 1])
                slope.masked_fill_(given[k] <= 0, 0.0)
        return gradients

    def step(self, gradients: Sequence[Tensor], rates: Sequence[float]) -> None:
        """A step of Adam with each network's learning rate; alike neighbours step together."""
        counts = self._steps[:, 0].tolist()
        for _, alike in groupby(range(len(rates)), key=lambda r: (rates[r], counts[r])):
            networks = list(alike)
            lists = [
                _pieces(tensors, slice(networks[0], networks[-1] + 1))
                for tensors in (self._parameters, gradients, *self._moments.values())
            ]
            adam(
                *lists,
                [],
                [torch.tensor(counts[networks[0]]) for _ in lists[0]],
                fused=True,
                amsgrad=False,
                maximize=False,
                beta1=self._betas[0],
                beta2=self._betas[1],
                lr=rates[networks[0]],
                **self._options,
            )
        self._steps += 1.0


def _stacked(alike: Sequence[nn.Parameter]) -> Tensor:
    """The parameters [R, ...] as one tensor, in which they lie from now on."""
    values = torch.stack([parameter.detach() for parameter in alike])
    for parameter, value in zip(alike, values.unbind(), strict=True):
        parameter.data = value
    return values


def _pieces(tensors: Sequence[Tensor], networks: slice) -> list[Tensor]:
    """The networks' parts of all tensors, in pieces as long as a processor's vectors fit.

    What does not fill a vector is rounded otherwise, so a small bias is a piece by itself.
    """
    pieces: list[Tensor] = []
    for tensor in tensors:
        part = tensor[networks]
        pieces += part.unbind() if part[0].numel() % _VECTOR else [part]
    return pieces
