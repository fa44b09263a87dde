"""Progress of a grid: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from d2ace.benchmark.plan import RunSpec
from d2ace.benchmark.run import Event, Monitor


class ProgressLines(Monitor):
    """Prints a line when a run ends."""

    def __init__(self, *arguments: Any, to: TextIO | None = None) -> None:
        super().__init__(*arguments)
        self._to = to or sys.stderr

    def ended(self, event: Event) -> None:
        """Print how it ended."""
        super().ended(event)
        count = sum(self.done.values())
        self._say(f"[{count}/{self.total}] {self.title(event.spec)}: {outcome_of(event)}")

    def stopping(self) -> None:
        """Show that stopping may take a moment."""
        self._say("stopping: saving the runs in progress")

    def _say(self, line: str) -> None:
        print(line, file=self._to, flush=True)


class ProgressTable(Monitor):
    """A live table with the runs in progress and the time left."""

    RECENT = 6

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        from rich.console import Console
        from rich.live import Live

        self._waiting: Sequence[RunSpec] = ()
        self._recent: list[str] = []
        self._note = ""
        self._live = Live(
            console=Console(stderr=True), get_renderable=self._render, auto_refresh=False
        )

    def __enter__(self) -> ProgressTable:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def ended(self, event: Event) -> None:
        """Keep the last few visible."""
        super().ended(event)
        line = f"{self.title(event.spec)}: {outcome_of(event)}"
        self._recent = [*self._recent, line][-self.RECENT :]

    def stopping(self) -> None:
        """Show that stopping may take a moment."""
        self._note = "stopping: saving the runs in progress"

    def tick(self, waiting: Sequence[RunSpec]) -> None:
        """Draw again."""
        self._waiting = waiting
        self._live.refresh()

    def _render(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        left = self.seconds_left(self._waiting)
        counts = (
            f"{self.done['finished']} finished, {self.done['failed']} failed, "
            f"{len(self._waiting) + len(self.running)} to go"
        )
        ahead = f", about {duration(left)} left" if left else ""
        now = Table(box=None, pad_edge=False, show_header=False)
        for spec, since, epoch in self.running.values():
            now.add_row(
                Text(self.title(spec)),
                f"epoch {epoch}/{spec.config['epochs']}",
                ProgressBar(spec.config["epochs"], epoch, width=20),
                duration(time.monotonic() - since),
            )
        lines = [Text(line, style="dim") for line in self._recent]
        done = self.done["finished"] + self.done["failed"]
        whole = Table.grid(padding=(0, 2))
        bar = ProgressBar(max(1, self.total), done, width=40)
        whole.add_row(bar, Text(f"{counts}{ahead}", style="bold"))
        return Group(*lines, whole, now, Text(self._note))


def make_view(
    total: int,
    slots: int,
    seconds: Mapping[tuple[str, str], float] | None = None,
    names: Mapping[str, str] | None = None,
) -> Monitor:
    """The view for a terminal, or for a pipe or file."""
    kind = ProgressTable if sys.stderr.isatty() else ProgressLines
    return kind(total, slots, seconds, names)


def outcome_of(event: Event) -> str:
    """How a run ended, in a few words."""
    if event.kind == "failed":
        return f"failed: {event.error}"
    if event.kind == "stopped" or event.result is None:
        return "stopped"
    monitor = event.spec.config["monitor"]
    score = event.result["test"].get(monitor)
    shown = "undefined" if score is None else f"{score:.4f}"
    return f"test {monitor} {shown} in {duration(event.result['seconds']['total'])}"


def duration(seconds: float) -> str:
    """A time span to read: "48 s", "12 min", "3 h 20 min"."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
