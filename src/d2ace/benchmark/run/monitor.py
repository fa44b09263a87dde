"""How far a grid is: what runs, what is done, and how long the rest may take."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from d2ace.benchmark.plan.specs import RunSpec

from .engines import Event


class Monitor:
    """Knows how far a grid is, and shows nothing; subclasses do.

    Parameters
    ----------
    total : int
        Runs to be done.
    slots : int
        Runs at the same time.
    seconds : dict
        Mean duration of earlier runs by (dataset, model).
    names : dict
        Run key -> dataset; files of the same name get different names.
    """

    def __init__(
        self,
        total: int,
        slots: int = 1,
        seconds: Mapping[tuple[str, str], float] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.total, self.slots = total, slots
        self._names = names or {}
        self.done = {"finished": 0, "failed": 0, "stopped": 0}
        self.running: dict[str, tuple[RunSpec, float, int]] = {}
        self._means = {key: (mean, 1) for key, mean in (seconds or {}).items()}

    def title(self, spec: RunSpec) -> str:
        """The run in a line."""
        return spec.title.replace(spec.dataset, self._names.get(spec.key, spec.dataset), 1)

    def started(self, spec: RunSpec) -> None:
        """A run begins."""
        self.running[spec.key] = (spec, time.monotonic(), 0)

    def epoch(self, spec: RunSpec, epoch: int) -> None:
        """A run has ended an epoch."""
        if spec.key in self.running:
            self.running[spec.key] = (*self.running[spec.key][:2], epoch)

    def ended(self, event: Event) -> None:
        """A run is finished, failed, or stopped."""
        self.running.pop(event.spec.key, None)
        self.done[event.kind] += 1
        if event.kind == "finished" and event.result is not None:
            place = (event.spec.dataset, event.spec.model)
            mean, count = self._means.get(place, (0.0, 0))
            took = event.result["seconds"]["total"]
            self._means[place] = ((mean * count + took) / (count + 1), count + 1)

    def tick(self, waiting: Sequence[RunSpec]) -> None:
        """Time passes."""

    def stopping(self) -> None:
        """A signal came."""

    def seconds_left(self, waiting: Sequence[RunSpec]) -> float | None:
        """Time left if runs take as long as earlier ones on their dataset and model."""
        if not self._means:
            return None
        usual = sum(mean for mean, _ in self._means.values()) / len(self._means)

        def expected(spec: RunSpec) -> float:
            return self._means.get((spec.dataset, spec.model), (usual, 1))[0]

        left = sum(expected(spec) for spec in waiting)
        for spec, _, epoch in self.running.values():
            left += expected(spec) * (1 - epoch / spec.config["epochs"])
        return left / max(1, min(self.slots, len(waiting) + len(self.running)))

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *_: object) -> None:
        pass
