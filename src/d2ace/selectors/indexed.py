"""A dataset that also says which row each item is."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch.utils.data import Dataset


class IndexedDataset(Dataset[tuple[Any, ...]]):
    """Yields ``(index, *item)`` for the items of ``dataset``.

    An item that is a tuple or list is spread; anything else (a dictionary, a tensor) is kept whole
    behind the index. Of a file that is mapped read-only (``np.load(path, mmap_mode="r")``), rows
    are copied: torch takes no others.
    """

    def __init__(self, dataset: Any) -> None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise TypeError(
                f"IndexedDataset needs a dataset with __getitem__ and __len__, "
                f"got {type(dataset).__name__}."
            )
        self.dataset = dataset

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return self._row(index, self.dataset[index])

    def __getitems__(self, indices: list[int]) -> list[tuple[Any, ...]]:
        """A whole batch at once, by the dataset's own ``__getitems__`` where it has one."""
        fetch = getattr(self.dataset, "__getitems__", None)
        items = fetch(indices) if fetch else [self.dataset[index] for index in indices]
        return [self._row(index, item) for index, item in zip(indices, items, strict=True)]

    def __len__(self) -> int:
        return len(self.dataset)

    @staticmethod
    def _row(index: int, item: Any) -> tuple[Any, ...]:
        parts = item if isinstance(item, (tuple, list)) else (item,)
        return (index, *map(_writable, parts))


def _writable(part: Any) -> Any:
    mapped = isinstance(part, np.ndarray) and not part.flags.writeable
    return np.array(part) if mapped else part
