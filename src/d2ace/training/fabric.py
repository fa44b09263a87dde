"""Devices, precision and processes: configures Lightning Fabric."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from d2ace._util.errors import RunError, UserError
from d2ace._util.machine import cores

from .launcher import run_in_processes

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["ACCELERATORS", "any_process", "first_process", "launch", "make_fabric"]

_CROWD = 4  # processes of a run for each core
ACCELERATORS = ("auto", "cpu", "cuda", "mps")


def make_fabric(devices: int, accelerator: str, precision: str) -> Fabric:
    """Fabric for one process, for ``devices`` on this machine, or as a launcher has set it up.

    Under ``torchrun`` or ``fabric run``, the launcher decides the number of processes.
    """
    try:
        from lightning_fabric import Fabric
    except ImportError as error:
        raise RunError(
            f"Training needs {error.name}; install it with "
            'pip install ".[bench]" in a checkout of d2ace'
        ) from error
    if accelerator not in ACCELERATORS:
        raise UserError(f"accelerator is {accelerator!r}; choose from {', '.join(ACCELERATORS)}.")
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(accelerator, True):
        raise UserError(
            f"accelerator is {accelerator!r}, but torch finds no such device here; use cpu or auto."
        )
    processor = accelerator == "cpu" or (accelerator == "auto" and not any(available.values()))
    if processor and devices > _CROWD * cores():  # more would only compete for memory
        raise UserError(
            f"devices is {devices}, but the processor has {cores()} core(s) here; use "
            f"{_CROWD * cores()} processes at most."
        )
    if precision == "16-mixed" and accelerator != "cuda" and not torch.cuda.is_available():
        raise UserError("precision is '16-mixed', which needs a CUDA device; use bf16-mixed here.")
    settings: dict[str, Any] = {"accelerator": accelerator, "precision": precision}
    if "TORCHELASTIC_RUN_ID" in os.environ:
        local = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // local
        settings |= {"devices": local, "num_nodes": nodes, "strategy": "ddp"}
    else:
        settings |= {"devices": devices, "strategy": "ddp_spawn" if devices > 1 else "auto"}
    try:
        return Fabric(**settings)
    except Exception as problem:
        raise UserError(
            f"{devices} device(s) of accelerator {accelerator!r} with precision {precision!r} "
            f"cannot be used here ({str(problem).strip()})."
        ) from problem


def launch(fabric: Fabric, run: Callable[[Fabric], str]) -> str:
    """Run in this process or in new ones, and raise their errors here."""
    if "LT_CLI_USED" in os.environ:  # `fabric run` has started the processes
        return run(fabric)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        launched: str = fabric.launch(run)
        return launched
    if fabric.world_size == 1:
        # As `fabric.launch` does, but that also changes torch's DataLoader for all threads.
        fabric.strategy.setup_environment()
        return run(fabric)
    return run_in_processes(fabric.world_size, _OneOfSeveral(fabric), run)


class _OneOfSeveral:
    """Makes the Fabric of one of several processes; a class, so that it can be pickled."""

    def __init__(self, fabric: Fabric) -> None:
        kind, precision = fabric.device.type, fabric.strategy.precision.precision
        self._settings: dict[str, Any] = {
            "accelerator": kind,
            "precision": precision,
            "devices": fabric.world_size,
            "strategy": "ddp",
        }

    def __call__(self) -> Fabric:
        from lightning_fabric import Fabric
        from lightning_fabric.plugins.environments.lightning import LightningEnvironment

        return Fabric(**self._settings, plugins=[LightningEnvironment()])


def first_process() -> bool:
    """Whether this is the process that prints and writes for all that a launcher started."""
    return os.environ.get("RANK", "0") == "0"


def any_process(fabric: Fabric, value: int) -> int:
    """The largest of the processes' values, known to all of them."""
    if fabric.world_size == 1:
        return value
    shared = torch.tensor(value, device=fabric.device)
    torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MAX)
    return int(shared)
