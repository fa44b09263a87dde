"""Exchange of tensors between processes, on the device that the backend works on."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, distributed

from .errors import RunError

__all__ = ["broadcast", "gathered", "is_spread", "least", "own_part", "routed", "spread_checksum",
           "spread_tensor", "summed"]  # fmt: skip

Function = TypeVar("Function", bound=Callable[..., Any])


def _connected(function: Function) -> Function:
    """Raise an error with a remedy if another process is gone."""

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except RuntimeError as problem:
            raise RunError(
                f"The processes lost each other ({str(problem).splitlines()[0]}); start all of "
                "them again from the last state that was saved."
            ) from problem

    return cast("Function", run)


def _sent(tensor: Tensor) -> Tensor:
    """``tensor`` where the processes exchange: on the processor if a backend can, else on theirs.

    The backends alone decide, because processes may keep what they send on different devices: one
    that observed nothing does not know of an accelerator yet.
    """
    kinds = [each.partition(":")[0] for each in distributed.get_backend_config().split(",")]
    if "cpu" in kinds:
        return tensor.cpu().contiguous()
    if tensor.device.type in kinds:
        return tensor.contiguous()
    own = getattr(distributed.group.WORLD, "bound_device_id", None)  # of init_process_group
    return tensor.to(own or kinds[0]).contiguous()


@_connected
def summed(part: Tensor) -> Tensor:
    """The sum over the processes."""
    total = _sent(part.clone())
    distributed.all_reduce(total)
    return total.to(part.device)


@_connected
def least(part: Tensor) -> Tensor:
    """The least over the processes, number by number."""
    found = _sent(part.clone())
    distributed.all_reduce(found, distributed.ReduceOp.MIN)
    return found.to(part.device)


@_connected
def gathered(part: Tensor) -> Tensor:
    """[world, ...]: what every process gave, all of the same shape."""
    own = _sent(part)
    together = own.new_empty((distributed.get_world_size(), *own.shape))
    distributed.all_gather(list(together.unbind()), own)
    return together.to(part.device)


@_connected
def broadcast(value: Tensor) -> Tensor:
    """The value of the first process."""
    sent = _sent(value.clone())
    distributed.broadcast(sent, 0)
    return sent.to(value.device)


@_connected
def routed(rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
    """Send rows [m, q], the first ``sent[0]`` to process 0 and so on; return those received."""
    own = _sent(rows)
    arrived = own.new_empty((sum(received), *own.shape[1:]))
    distributed.all_to_all_single(arrived, own, received, sent)
    return arrived.to(rows.device)


def spread_tensor(part: Tensor, n: int, world: int) -> Tensor:
    """A ``DTensor`` [n, ...] of which this process holds ``part``."""
    from torch.distributed.device_mesh import init_device_mesh

    try:
        from torch.distributed.tensor import DTensor, Shard
    except ImportError as missing:  # before torch 2.5
        raise RunError(
            f"torch {torch.__version__} cannot save state that is spread over processes; install "
            "torch 2.5 or later, or leave shard=True out"
        ) from missing

    part = _sent(part)
    mesh = init_device_mesh(part.device.type, (world,))
    whole = torch.empty((n, *part.shape[1:]), device="meta")
    return DTensor.from_local(part, mesh, [Shard(0)], shape=whole.shape, stride=whole.stride())


def is_spread(tensor: Any) -> bool:
    """Whether a tensor is in parts in several processes."""
    return isinstance(tensor, Tensor) and hasattr(tensor, "to_local")


def own_part(tensor: Any) -> Tensor:
    """The part of a spread tensor that this process holds."""
    part: Tensor = tensor.to_local()
    return part


@_connected
def spread_checksum(tensor: Tensor, start: int) -> int:
    """The checksum of the whole tensor: each process continues that of the previous one."""
    content = own_part(tensor).detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
    found = torch.tensor([start])
    for rank in range(distributed.get_world_size()):
        if rank == distributed.get_rank():
            found[0] = zlib.crc32(content.data, int(found))
        sent = _sent(found)
        distributed.broadcast(sent, rank)
        found = sent.cpu()
    return int(found)
