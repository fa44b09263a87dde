"""Devices, precision and processes: the one place that configures Lightning Fabric."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing.spawn import ProcessRaisedException

from d2ace.data.container import DataError, UnknownDataError
from d2ace.errors import RunError, UserError

from .interruption import RunInterrupted

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["ACCELERATORS", "any_process", "first_process", "launch", "make_fabric"]

_TOLD: tuple[type[Exception], ...] = (RunError, UserError, DataError, UnknownDataError)
ACCELERATORS = ("auto", "cpu", "cuda", "mps")


def make_fabric(devices: int, accelerator: str, precision: str) -> Fabric:
    """Fabric for one process, for ``devices`` on this machine, or as a launcher has set it up.

    Under ``torchrun`` or ``fabric run`` the launcher has decided how many processes there are.
    """
    try:
        from lightning_fabric import Fabric
    except ImportError as error:
        raise RunError(f'Training needs {error.name}; run: pip install "d2ace[bench]"') from error
    if accelerator not in ACCELERATORS:
        raise UserError(f"accelerator is {accelerator!r}; choose from {', '.join(ACCELERATORS)}.")
    if devices < 1:
        raise UserError(f"devices is {devices}; it must be 1 or more.")
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(accelerator, True):
        raise UserError(
            f"accelerator is {accelerator!r}, but torch finds no such device here; use cpu or auto."
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
    """Run in this process or in new ones, and tell an error of theirs as one's own."""
    if "LT_CLI_USED" in os.environ:  # `fabric run` has started the processes
        return run(fabric)
    spawns = fabric.world_size > 1 and "TORCHELASTIC_RUN_ID" not in os.environ
    try:
        with _forwarded_signal() if spawns else nullcontext():
            result: str = fabric.launch(run)
    except ProcessRaisedException as problem:
        last = str(problem).strip().splitlines()[-1]
        name, _, sentence = last.partition(": ")
        if name.endswith(".RunInterrupted"):
            stopped_by = sentence.split()[2]  # "Stopped by SIGTERM ..."
            raise RunInterrupted(signal.Signals[stopped_by], sentence) from problem
        known = {f"{each.__module__}.{each.__qualname__}": each for each in _TOLD}
        if name in known:
            raise known[name](sentence) from problem
        raise
    return result


def first_process() -> bool:
    """Whether this is the process that speaks and writes for all that a launcher started."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def _forwarded_signal() -> Iterator[None]:
    """SIGTERM goes to the processes that were started, which save and end, and end this one.

    (SIGINT comes from a terminal, which sends it to all of them.)
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, others = signal.getsignal(signal.SIGTERM), set(multiprocessing.active_children())

    def forward(signum: int, frame: FrameType | None) -> None:
        children = set(multiprocessing.active_children()) - others
        for child in children:
            child.terminate()
        if not children and callable(before):
            before(signum, frame)
        elif not children:
            raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, forward)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def any_process(fabric: Fabric, value: int) -> int:
    """The largest of the processes' values, known to all of them."""
    if fabric.world_size == 1:
        return value
    shared = torch.tensor(value, device=fabric.device)
    torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MAX)
    return int(shared)
