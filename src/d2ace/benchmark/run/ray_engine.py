"""Runs as tasks of a Ray cluster; their results come back to the process that stores them."""

from __future__ import annotations

import json
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from d2ace._util.errors import RunError
from d2ace._util.machine import cores
from d2ace.benchmark.plan.specs import RunSpec

from .engines import Event, final_event
from .execute import execute, sentence

RETRIES = 3
"""How often a run is tried again after its process or machine died; not if the run failed."""
PATIENCE = 10.0
"""Seconds in which a cluster must answer."""


class RayEngine:
    """A task per run, each in a separate process that ends with it.

    Only the process that has the engine writes to the store. A run whose process or machine dies
    is tried again, where there is room, from its last checkpoint if that machine has the folder.

    Parameters
    ----------
    jobs : int
        Tasks at the same time on a cluster that is started here. On a running cluster (``address``)
        as many tasks as it has processors for, also when machines join or leave.
    address : str, optional
        Of a running cluster, as ``ray.init`` takes it: "auto", "host:port" or "ray://host:port".
        Its machines need this library, the data under the same paths, and, to resume
        half-finished runs, the folder beside the store.
    """

    def __init__(self, jobs: int, address: str | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise RunError(
                "the engine ray needs Ray; install it with "
                'pip install ".[ray]" in a checkout of d2ace'
            ) from None
        self._ray: Any = ray  # its types do not know all that it takes
        self._own = not ray.is_initialized()
        self._printing = redirect_stdout(sys.stderr)  # Ray prints there that a process died
        if self._own:
            _refuse_silent(address or "local")
            # "local": otherwise Ray joins a cluster that runs here, and refuses num_cpus
            started: dict[str, Any] = {"address": address or "local"}
            if not address:
                started["num_cpus"] = cores()
            try:
                ray.init(include_dashboard=False, log_to_driver=False, **started)
            except Exception as error:
                if not address:
                    raise RunError(f"no Ray cluster on this machine: {sentence(error)}") from None
                raise RunError(
                    f"no Ray cluster {address}: {sentence(error)}; if it asks for a token, set "
                    "RAY_AUTH_MODE=token, with the token of the first machine"
                ) from None
        self._printing.__enter__()
        self._grows = address is not None
        self.slots = self._available() if self._grows else min(jobs, self._available())
        self._threads = 1 if self._grows else max(1, self._available() // self.slots)
        # A process per task, so that one run cannot disturb the next.
        options = {"num_cpus": self._threads, "max_calls": 1, "max_retries": RETRIES}
        self._task = self._ray.remote(**options)(_run)
        self._running: dict[Any, tuple[RunSpec, Path]] = {}
        self._stopping = False

    def _available(self) -> int:
        """Processors of all machines that are there now."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 0)))

    def start(self, runs: Sequence[tuple[RunSpec, Path]]) -> None:
        """Submit each run."""
        for spec, folder in runs:
            task = self._task.remote(json.dumps(spec.config), str(folder), self._threads)
            self._running[task] = (spec, folder)

    def events(self, seconds: float) -> list[Event]:
        """The runs that have ended."""
        ended, _ = (
            self._ray.wait(list(self._running), timeout=seconds) if self._running else ([], [])
        )
        if self._grows:
            self.slots = self._available()
        return [self._event(task) for task in ended]

    def _event(self, task: Any) -> Event:
        spec, folder = self._running.pop(task)
        try:
            text, result, recording = self._ray.get(task)
        except Exception as error:
            if self._stopping:
                return Event(spec, "stopped")
            return Event(spec, "failed", error=sentence(error))
        message = json.loads(text)
        if message["state"] == "finished":
            return Event(spec, "finished", result=json.loads(result), recording=recording)
        return final_event(spec, folder, message)

    def stop(self) -> None:
        """End the tasks; they resume from what they saved after their last epoch."""
        self._stopping = True
        for task in self._running:
            self._ray.cancel(task, force=True)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self._own:
            self._ray.shutdown()
        self._printing.__exit__(None, None, None)


def _refuse_silent(address: str) -> None:
    """Refuse an address at which nobody answers; Ray takes two minutes to say so."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=PATIENCE).close()
        except OSError as error:
            raise RunError(
                f"no Ray cluster answers at {address} ({error.strerror or error}); start one with "
                "ray start --head, and give the address that it prints"
            ) from None


def _run(config: str, folder: str, threads: int) -> tuple[str, str, bytes | None]:
    """One task: returns the last message, the result as JSON and the recording.

    On a machine without the folder beside the store, the run uses a temporary one, and
    starts over if the machine dies.
    """
    if Path(folder).parent.is_dir():
        return _run_in(folder, config, threads)
    with tempfile.TemporaryDirectory(prefix="d2ace-") as own:
        return _run_in(str(Path(own) / Path(folder).name), config, threads)


def _run_in(folder: str, config: str, threads: int) -> tuple[str, str, bytes | None]:
    from .execute import outcome

    messages: list[dict[str, Any]] = []
    execute(json.loads(config), folder, threads, messages.append, process=False)
    left = outcome(Path(folder)) if messages[-1] == {"state": "finished"} else None
    result, recording = left or ({}, None)
    return json.dumps(messages[-1]), json.dumps(result), recording
