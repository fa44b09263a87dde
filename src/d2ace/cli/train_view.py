"""Progress of a run: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

from d2ace.evaluation import METRICS
from d2ace.training import RunConfig

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

__all__ = ["EpochLines", "EpochTable", "TenthLines"]


class _Story:
    """What both views show: the best score so far, and the time left."""

    def __init__(self, config: RunConfig) -> None:
        self._start(config)

    def _start(self, config: RunConfig, title: str = "") -> None:
        self.config, self.title = config, title
        self.best: tuple[int, float] | None = None
        self._begun: tuple[float, int] | None = None

    def add(self, entry: dict[str, Any]) -> None:
        monitor = self.config.monitor
        score = entry["validation"][monitor]
        best = math.nan if self.best is None else self.best[1]
        higher = METRICS[monitor].higher_is_better
        if self.best is None or math.isnan(best) or (score > best if higher else score < best):
            self.best = (entry["epoch"], score)
        if self._begun is None:  # the first epoch seen shows how long one takes
            self._begun = (monotonic() - sum(entry["seconds"].values()), entry["epoch"] - 1)

    def left(self, epoch: int) -> str:
        """Minutes and seconds to go, from the mean of the epochs seen."""
        assert self._begun is not None  # noqa: S101 - add comes first
        start, before = self._begun
        seconds = (monotonic() - start) / (epoch - before) * (self.config.epochs - epoch)
        return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"

    def score(self, entry: dict[str, Any]) -> str:
        """The monitored score of the epoch, and the best so far."""
        assert self.best is not None  # noqa: S101 - add comes first
        assert self._begun is not None  # noqa: S101
        (epoch, best), before = self.best, self._begun[1]
        since = f" since epoch {before + 1}:" if before else ""  # a resumed run had others before
        score = f"{entry['validation'][self.config.monitor]:.4f}"
        return f"{score} (best{since} {best:.4f} in epoch {epoch})"

    def selection(self, entry: dict[str, Any]) -> str:
        if entry["p_beta"] is None and entry["pressure"] is None:
            return f"{entry['distinct_rows']} rows"
        parts = [f"{entry['distinct_rows']} rows, {entry['effective_rows']:.0f} effective"]
        if entry["pressure"] is not None:
            parts.append(f"s {entry['pressure']:.3g}")
        if entry["p_beta"] is not None:
            parts.append(f"p_beta {entry['p_beta']:.2f}")
        return ", ".join(parts)


class EpochLines(_Story):
    """One plain line for an epoch."""

    def __init__(self, config: RunConfig, stream: TextIO | None = None) -> None:
        super().__init__(config)
        self._stream = stream

    def candidate(self, config: RunConfig, title: str) -> None:
        """Start the next run of a search."""
        self._start(config, title)
        self._say(title)

    def __call__(self, entry: dict[str, Any]) -> None:
        """Print the epoch."""
        self.add(entry)
        self._say(
            f"epoch {entry['epoch']}/{self.config.epochs}  loss {entry['train_loss']:.4f}  "
            f"{self.config.monitor} {self.score(entry)}  {self.selection(entry)}  "
            f"left {self.left(entry['epoch'])}"
        )

    def _say(self, line: str) -> None:
        print(line, file=self._stream or sys.stderr, flush=True)


class EpochTable(_Story):
    """A table that stays in place; enter it before the run and leave it afterwards."""

    def __init__(self, config: RunConfig, console: Any) -> None:
        super().__init__(config)
        self._console = console
        self._live: Live | None = None

    def __enter__(self) -> EpochTable:
        from rich.live import Live

        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def candidate(self, config: RunConfig, title: str) -> None:
        """Start the next run of a search."""
        self._start(config, title)
        if self._live is not None:
            self._live.update(title)

    def __call__(self, entry: dict[str, Any]) -> None:
        """Show the epoch."""
        self.add(entry)
        if self._live is not None:
            self._live.update(self._table(entry))

    def _table(self, entry: dict[str, Any]) -> Table:
        from rich.markup import escape
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        config = self.config
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="dim")
        table.add_column()
        table.add_row(
            "run",
            escape(f"{config.data}, {config.model}, {config.selector}, fold {config.fold}"),
        )
        if self.title:
            table.add_row("search", self.title)
        table.add_row("", ProgressBar(config.epochs, entry["epoch"], width=40))
        table.add_row(
            "epoch", f"{entry['epoch']} of {config.epochs}, {self.left(entry['epoch'])} left"
        )
        table.add_row("loss", f"{entry['train_loss']:.4f}")
        table.add_row(METRICS[config.monitor].title, self.score(entry))
        table.add_row("selection", self.selection(entry))
        return table


class TenthLines:
    """Prints each tenth of the work before training, unless one step does it all."""

    def __init__(self, what: str) -> None:
        self._what = what  # as in "features of {done} of {total} images"
        self._printed = -1

    def __call__(self, done: int, total: int) -> None:
        """Print it when it is due."""
        at_once = done == total and self._printed < 0
        if 10 * done // total > self._printed and not at_once:
            self._printed = 10 * done // total
            line = self._what.format(done=f"{done:,}", total=f"{total:,}")
            print(line, file=sys.stderr, flush=True)
