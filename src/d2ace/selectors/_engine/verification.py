"""Whether a loader still draws what the selector draws, after a framework had its hands on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data import BatchSampler, Subset
from torch.utils.data.distributed import DistributedSampler

from d2ace.selectors.indexed import IndexedDataset

if TYPE_CHECKING:
    from d2ace.selectors.base import Selector

__all__ = ["verify"]

_DEPTH = 6  # wrappers around wrappers; no framework piles up more


def verify(selector: Selector, loader: Any) -> None:
    """Raise a ValueError that says what stands in the selector's place; see Selector.verify."""
    batches = getattr(loader, "batch_sampler", None)
    if batches is None:
        raise ValueError(
            f"The loader ({type(loader).__name__}) has no batch sampler, so it cannot draw from a "
            "selector; make it with DataLoader(dataset, batch_sampler=selector)."
        )
    if not _stands_for(batches, selector):
        _refuse_flat(selector, batches)
    _refuse_early_snapshots(loader)
    dataset = getattr(loader, "dataset", None)
    _refuse_numbers_of_other_rows(dataset)
    rows = _length(dataset)
    if rows is not None and rows != selector.n:
        raise ValueError(
            f"The loader's dataset has {rows} rows, but the selector was made for {selector.n}; "
            "make it with the labels of the same rows in the same order."
        )


def _refuse_flat(selector: Selector, batches: Any) -> None:
    """Refuse anything but a plain BatchSampler that cuts the flat view into the same batches."""
    rows = getattr(batches, "sampler", None)
    if not _is_plain(batches) or not _stands_for(rows, selector):
        raise ValueError(_replaced(selector, batches))
    if hasattr(rows, "observe"):
        raise ValueError(
            "The loader takes whole batches for rows (sampler=selector); make it with "
            "batch_sampler=selector and no batch_size, or with sampler=selector.sampler and "
            f"batch_size={selector.batch_size}."
        )
    if batches.batch_size != selector.batch_size:
        raise ValueError(
            f"The loader cuts batches of {batches.batch_size} rows, but the selector draws "
            f"batches of {selector.batch_size}; give both the same batch_size."
        )
    if batches.drop_last:
        raise ValueError(
            "The loader drops the last batch (drop_last=True), which the selector draws and "
            "expects to observe; use drop_last=False."
        )


def _is_plain(batches: Any) -> bool:
    """Whether this is torch's BatchSampler, or torchdata's, which cuts the same batches."""
    kind = type(batches)
    return kind is BatchSampler or (kind.__name__, kind.__module__.partition(".")[0]) == (
        "BatchSampler",
        "torchdata",
    )


def _refuse_early_snapshots(loader: Any) -> None:
    """A loader that saves the selector by itself may do so before a batch is observed.

    That is torchdata's StatefulDataLoader, which has this setting, also inside other wrappers.
    Without workers it saves when it is asked to; accelerate asks it too early.
    """
    if not hasattr(loader, "snapshot_every_n_steps"):
        return
    if getattr(loader, "use_stateful_dataloader", False):
        why, remedy = "in accelerate", "use_stateful_dataloader=False"
    elif loader.num_workers:
        why, remedy = f"with num_workers={loader.num_workers}", "torch's DataLoader"
    else:
        return
    raise ValueError(
        f"The loader is torchdata's StatefulDataLoader {why}, which saves the selector before it "
        "has observed the batches drawn, so that others come after resuming; use "
        f"{remedy}, save selector.state_dict() yourself and load that alone."
    )


def _refuse_numbers_of_other_rows(dataset: Any) -> None:
    """A Subset of numbered rows keeps their old numbers, so predictions go to wrong rows."""
    subset = False
    for _ in range(_DEPTH):
        if isinstance(dataset, IndexedDataset):
            break
        subset |= isinstance(dataset, Subset)
        dataset = getattr(dataset, "dataset", None)
    if subset and isinstance(dataset, IndexedDataset):
        raise ValueError(
            "The loader's dataset is a Subset of an IndexedDataset, which numbers its rows as "
            "they were before; make it IndexedDataset(Subset(dataset, rows))."
        )


def _replaced(selector: Selector, batches: Any) -> str:
    chain = _chain(batches)
    names = " over ".join(type(link).__name__ for link in chain)
    if hasattr(batches, "observe"):
        return (
            f"The loader draws from another selector ({_method(batches)}); give it the one "
            "that observes its batches."
        )
    if not any(_stands_for(link, selector) for link in chain):
        return (
            f"The loader draws from {names}, not from this selector; pass batch_sampler=selector "
            "and keep the framework from replacing it."
        )
    if any(isinstance(link, DistributedSampler) for link in chain):
        return (
            f"The loader deals the selector's rows out to processes through {names}; pass "
            "Trainer(use_distributed_sampler=False) and batch_sampler=DistributedSelector(selector)"
            " (d2ace.selectors.distributed)."
        )
    if any(type(link).__name__ == "BatchSamplerShard" for link in chain):
        return (
            f"The loader deals whole batches out to processes and repeats some through {names}; "
            "leave the loader out of accelerator.prepare and pass "
            "batch_sampler=DistributedSelector(selector) (d2ace.selectors.distributed)."
        )
    return (
        f"The loader changes what the selector draws through {names}; pass the selector itself "
        "as batch_sampler (a selector resumes after loading its state without skipping batches)."
    )


def _chain(batches: Any) -> list[Any]:
    """The batch sampler and what it wraps, outermost first, as far as one can see."""
    chain = [batches]
    while len(chain) < _DEPTH:
        link = chain[-1]
        inner = getattr(link, "batch_sampler", None) or getattr(link, "sampler", None)
        if inner is None:  # Lightning's wrapper calls the sampler it wraps a dataset
            inner = getattr(getattr(link, "dataset", None), "_sampler", None)
        if inner is None or any(inner is known for known in chain):
            break
        chain.append(inner)
    return chain


def _stands_for(candidate: Any, selector: Selector) -> bool:
    """Whether this is the selector, or a view that says so (flat, or one process's part)."""
    return candidate is selector or getattr(candidate, "selector", None) is selector


def _method(batches: Any) -> str:
    """The class of a selector, or of that behind one process's part."""
    return type(getattr(batches, "selector", batches)).__name__


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except TypeError:
        return None
