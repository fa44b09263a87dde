"""What a training step of CLIF, DELA and PACA costs, against the direct formulation of each.

    python benchmarks/models.py                        # three sizes, three models (minutes)
    python benchmarks/models.py --sizes 0,1 --models clif,dela --seconds 3
    python benchmarks/models.py --models dela --rows 128    # evaluation of a training batch at once

The direct forms compute the same numbers from the same weights, the way the methods are written:
a grouped convolution for CLIF's classifiers, all concatenated pairs for DELA, all labels at once
for PACA. Both forms take turns, so that a noisy machine slows both alike. One thread and its own
seconds of the processor by default, which other processes disturb least; wall clock with more
threads. Each peak of memory is taken in a process of its own.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d2ace.models import CLIF, DELA, PACA, ModelOutput, MultiLabelModel
from d2ace.models.paca_flow import DELTA, ConditionalFlow

SIZES = [(103, 14), (68, 174), (1836, 159)]
BATCH = 128


def grouped(classifier: Any, u: Tensor) -> Tensor:
    """Classifiers of width h as a convolution with a group per label."""
    weight, bias = classifier.weight[:, None], classifier.bias
    return F.conv1d(u, weight, bias, groups=len(bias)).squeeze(-1)


class DirectCLIF(CLIF):
    def forward(self, x: Tensor) -> ModelOutput:
        embeddings, gates = self.encode_labels()
        specific = self.specific(self.encoder(x)[:, None] * gates)
        return ModelOutput(grouped(self.classifier, specific), {"label_embeddings": embeddings})


class DirectDELA(DELA):
    def forward(self, x: Tensor) -> ModelOutput:
        hidden = self.encoder(x)
        aux = {"mu": self.mu(hidden), "logvar": self.logvar(hidden)}
        latent = aux["mu"][:, None].expand(-1, self.n_labels, -1)
        if self.training:
            aux["gates"] = gates = self.sample_gates()
            noise = torch.exp(aux["logvar"] / 2) * torch.randn_like(aux["logvar"])
            latent = latent + gates * noise[:, None]
        pairs = torch.cat([x[:, None].expand(-1, self.n_labels, -1), latent], 2)
        return ModelOutput(grouped(self.classifier, self.head(pairs)), aux)


class DirectPACA(PACA):
    def forward(self, x: Tensor) -> ModelOutput:
        hidden = self.encoder(x)
        mu, logvar = self.mu(hidden), self.logvar(hidden)
        z = self.instance_map(torch.cat([x, self._sample(mu, logvar)], 1))
        aux = {"x": x, "mu": mu, "logvar": logvar, "recon": self.decoder(z)}
        return ModelOutput(direct_density(self.positive, z) - direct_density(self.negative, z), aux)


def direct_density(flow: ConditionalFlow, z: Tensor) -> Tensor:
    """All labels at once, from one-hot codes."""
    stage, q = flow.sigmoidal, flow.n_labels
    codes = torch.eye(q)
    per_instance = F.linear(z, stage.instance.weight * stage.read_mask, stage.instance.bias)
    hidden = F.elu(per_instance[:, None] + stage.label(codes))
    weight = stage.conditioner.weight * stage.write_mask.repeat(stage.K, 1)
    parameters = F.linear(hidden, weight, stage.conditioner.bias)
    parameters = parameters.view(len(z), q, stage.K, stage.D).transpose(2, 3)
    raw_slope, offset, raw_weight = stage.mixture(parameters).chunk(3, -1)
    slope = F.softplus(raw_slope)
    t = slope * z[:, None, :, None] + offset
    o = (raw_weight.softmax(-1) * t.sigmoid()).sum(-1) * (1 - DELTA) + DELTA / 2
    inner = raw_weight.log_softmax(-1) + F.logsigmoid(t) + F.logsigmoid(-t) + slope.log()
    log_derivative = inner.logsumexp(-1) + math.log1p(-DELTA) - o.log() - (1 - o).log()
    scale, shift = (
        part.second(part.first(codes).relu()) + part.direct(codes)
        for part in (flow.affine.scale, flow.affine.shift)
    )
    scale = F.softplus(scale)
    z2 = torch.log(o / (1 - o)) * scale + shift
    log_normal = -0.5 * (z2.square() + math.log(2 * math.pi))
    return (log_normal + log_derivative + scale.log()).sum(-1)


FORMS: dict[str, tuple[type[MultiLabelModel], type[MultiLabelModel]]] = {
    "clif": (CLIF, DirectCLIF),
    "dela": (DELA, DirectDELA),
    "paca": (PACA, DirectPACA),
}


class Trainee:
    """A model with a batch and an optimiser; equal seeds give equal weights and batches."""

    def __init__(self, kind: type[MultiLabelModel], d: int, q: int, rows: int = BATCH) -> None:
        torch.manual_seed(0)
        self.test = torch.rand(rows, d)
        self.x, self.y = torch.rand(BATCH, d), (torch.rand(BATCH, q) < 0.1).float()
        self.model = kind(d, self.y)
        self.optimiser = torch.optim.Adam(self.model.param_groups(1e-4))

    def step(self) -> None:
        self.optimiser.zero_grad()
        self.model.loss(self.model(self.x), self.y).total.backward()
        self.optimiser.step()

    def evaluate(self) -> Tensor:
        return self.model.predict_proba(self.test)


def seconds(action: Callable[[], Any]) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    action()
    return clock() - start


def in_turns(first: Callable[[], Any], second: Callable[[], Any], budget: float) -> list[float]:
    """Median seconds of both, called alternately for about ``budget`` seconds."""
    first(), second()
    times: list[list[float]] = [[], []]
    end = time.perf_counter() + budget
    while not times[0] or (time.perf_counter() < end and len(times[0]) < 200):
        for action, taken in zip((first, second), times, strict=True):
            taken.append(seconds(action))
    return [statistics.median(taken) for taken in times]


def peak(name: str, direct: bool, d: int, q: int) -> float:
    """MiB that two training steps add to a fresh process (Linux; NaN elsewhere)."""
    command = [sys.executable, __file__, "--peak", name, str(int(direct)), str(d), str(q)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return float(finished.stdout) if finished.returncode == 0 else math.nan


def print_peak(name: str, direct: str, d: str, q: str) -> None:
    def status(field: str) -> int:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith(field))

    trainee = Trainee(FORMS[name][int(direct)], int(d), int(q))
    before = status("VmRSS")
    trainee.step()
    trainee.step()
    print((status("VmHWM") - before) / 1024)


def enough_memory(name: str, d: int, q: int) -> bool:
    """Whether the direct form may run: that of PACA holds some 18 tensors [B, q, D, 16] twice."""
    if name != "paca" or not hasattr(os, "sysconf"):
        return True
    needed = 2 * 18 * 4 * 16 * BATCH * q * min(math.ceil(d / 2), 256)
    return needed < 0.8 * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def row(name: str, d: int, q: int, rows: int, budget: float) -> str:
    ours, direct = FORMS[name]
    fast = Trainee(ours, d, q, rows)
    if not enough_memory(name, d, q):
        fast.step()
        step, evaluation = seconds(fast.step), seconds(fast.evaluate)
        memory = peak(name, False, d, q)
        return (
            f"| {name} | {1 / step:.2f} | - | - | {memory:,.0f} | too much here | "
            f"{1e3 * evaluation:.1f} | - | - |"
        )
    slow = Trainee(direct, d, q, rows)
    difference = (fast.evaluate() - slow.evaluate()).abs().max()
    if difference > 1e-4:
        raise SystemExit(f"{name}: both forms differ by {difference:.1e} at d = {d}, q = {q}.")
    steps = in_turns(fast.step, slow.step, budget)
    evaluations = in_turns(fast.evaluate, slow.evaluate, budget / 3)
    memory = [peak(name, form, d, q) for form in (False, True)]
    return (
        f"| {name} | {1 / steps[0]:.2f} | {1 / steps[1]:.2f} | **{steps[1] / steps[0]:.2f}** | "
        f"{memory[0]:,.0f} | {memory[1]:,.0f} | "
        f"{1e3 * evaluations[0]:.1f} | {1e3 * evaluations[1]:.1f} | "
        f"**{evaluations[1] / evaluations[0]:.1f}** |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="0,1,2", help="which of the three sizes")
    parser.add_argument("--models", default=",".join(FORMS))
    parser.add_argument("--seconds", type=float, default=10.0, help="for each pair of forms")
    parser.add_argument(
        "--rows", type=int, default=1024, help="rows evaluated at once, as d2ace.train"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peak", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.peak:
        print_peak(*arguments.peak)
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, batch {BATCH}", end="")
    print(f", evaluation of {arguments.rows} rows\n")
    for d, q in (SIZES[int(number)] for number in arguments.sizes.split(",")):
        print(f"### d = {d}, q = {q}\n")
        print(
            "| model | steps/s | direct | times faster | peak, MiB | direct | "
            "evaluation, ms | direct | times cheaper |"
        )
        print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
        for name in arguments.models.split(","):
            print(row(name, d, q, arguments.rows, arguments.seconds), flush=True)
        print()


if __name__ == "__main__":
    main()
