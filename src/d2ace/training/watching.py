"""Functions called after every epoch of a run: several as one, and TensorBoard's event files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from d2ace._util.callbacks import Watch
from d2ace._util.errors import UserError

from .verified import make_folder

__all__ = ["EventFiles", "together"]


def together(*watches: Watch | None) -> Watch:
    """One function that tells all."""
    return _Together([watch for watch in watches if watch is not None])


class _Together:
    """A class, so that it can be sent to new processes."""

    def __init__(self, watches: list[Watch]) -> None:
        self.watches = watches

    def __call__(self, entry: dict[str, Any]) -> None:
        for watch in self.watches:
            watch(entry)


class EventFiles:
    """Every epoch as TensorBoard events; an epoch trained again replaces the earlier one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer: Any = None
        make_folder(folder)
        try:
            import tensorboard  # noqa: F401 - asked for before hours of training, not after
        except ImportError as error:
            raise UserError(
                "tensorboard is not installed; install it with "
                'pip install ".[tensorboard]" in a checkout of d2ace'
            ) from error

    def __call__(self, entry: dict[str, Any]) -> None:
        """Write the epoch."""
        epoch = entry["epoch"]
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self.folder), purge_step=epoch)
        scalars = {
            "loss/drawn": entry["train_loss"],
            "loss/all": entry["epoch_loss"],
            "learning_rate": entry["learning_rate"],
            **{f"validation/{name}": value for name, value in entry["validation"].items()},
            **{f"seconds/{part}": value for part, value in entry["seconds"].items()},
            **{
                f"selection/{name}": entry[name]
                for name in ("pressure", "p_beta", "effective_rows", "distinct_rows", "entropy")
            },
        }
        for name, value in scalars.items():
            if value is not None and math.isfinite(value):
                self._writer.add_scalar(name, value, epoch)
        self._writer.flush()
