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

__all__ = ["StackedMLP"]

_VECTOR = 64  # a multiple of the numbers in a vector, of any processor


class StackedMLP:
    """R networks, each with its optimiser; takes over where their parameters lie."""

    def __init__(self, models: Sequence[MLP], optimizers: Sequence[Any]) -> None:
        wide = models[0].hparams
        self._drop, self._widths = float(wide["p"]), [int(wide["h"])] * int(wide["L"])
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

    def masks(self, steps: Sequence[tuple[int, int]], rows: int) -> list[Tensor]:
        """Dropout masks [R, b, h] of the hidden layers for (seed, step) of each network.

        They are divided by the share that is kept. A step's randomness is a function of the run's
        seed and the step's number (`seed_step`): networks of one seed share masks.
        """
        if not self._drop:
            return []
        layers = [torch.empty(len(steps), rows, width) for width in self._widths]
        first: dict[tuple[int, int], int] = {}
        for network, (seed, step) in enumerate(steps):
            same = first.setdefault((seed, step), network)
            if same == network:
                seed_step(seed, step, 0, torch.device("cpu"))
            for layer in layers:
                if same != network:
                    layer[network] = layer[same]
                    continue
                layer[network].bernoulli_(1 - self._drop)
                if self._drop < 1:
                    layer[network].div_(1 - self._drop)
        return layers

    def forward(
        self, networks: slice, x: Tensor, masks: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Logits [R, b, q] of x [R, b, d], and what each layer was given, for `backward`."""
        values = [tensor[networks] for tensor in self._parameters]
        weights, biases = values[::2], values[1::2]
        given = [x]
        for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            hidden = torch.baddbmm(bias.unsqueeze(1), given[-1], weight.transpose(1, 2))
            if k < len(weights) - 1:
                hidden = F.relu_(hidden)
                given.append(hidden.mul_(masks[k]) if masks else hidden)
        return hidden, given

    def backward(
        self, networks: slice, slope: Tensor, given: Sequence[Tensor], masks: Sequence[Tensor]
    ) -> list[Tensor]:
        """Gradients of all parameters, from that of the logits [R, b, q]."""
        weights = [tensor[networks] for tensor in self._parameters[::2]]
        gradients: list[Tensor] = []
        for k in range(len(weights) - 1, -1, -1):
            gradients[:0] = [torch.bmm(slope.transpose(1, 2), given[k]), slope.sum(1)]
            if k:
                slope = torch.bmm(slope, weights[k])
                if masks:
                    slope.mul_(masks[k - 1])
                slope.masked_fill_(given[k] <= 0, 0.0)
        return gradients

    def step(self, networks: slice, gradients: Sequence[Tensor], rates: Sequence[float]) -> None:
        """A step of Adam with each network's learning rate; neighbours that are alike together."""
        begin = networks.start
        counts = self._steps[networks, 0].tolist()
        for _, same in groupby(range(len(rates)), key=lambda r: (rates[r], counts[r])):
            alike = list(same)
            here = slice(alike[0], alike[-1] + 1)
            stacked = slice(begin + here.start, begin + here.stop)
            lists = [
                _pieces(self._parameters, stacked),
                _pieces(gradients, here),
                *(_pieces(moments, stacked) for moments in self._moments.values()),
            ]
            adam(
                *lists,
                [],
                [torch.tensor(counts[here.start]) for _ in lists[0]],
                fused=True,
                amsgrad=False,
                maximize=False,
                beta1=self._betas[0],
                beta2=self._betas[1],
                lr=rates[here.start],
                **self._options,
            )
        self._steps[networks] += 1.0


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
