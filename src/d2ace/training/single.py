"""One run of a configuration, from its data to its result."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from d2ace._util.callbacks import Progress, Watch
from d2ace._util.errors import UserError
from d2ace._util.paths import given_path
from d2ace.data import MultiLabelData

from .config import RunConfig, whole
from .fabric import first_process, launch, make_fabric
from .folder import RunFolder
from .result import RunResult
from .run import Run
from .split import make_problem
from .watching import EventFiles, together

if TYPE_CHECKING:
    from d2ace.data.images import ImageData

_MOST_THREADS = 1024


def train_config(
    config: RunConfig,
    data: MultiLabelData | ImageData | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = True,
    checkpoint_every: int | None = None,
    devices: int = 1,
    accelerator: str = "auto",
    threads: int | None = None,
    workers: int | None = None,
    tensorboard: bool = False,
    watch: Watch | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """:func:`train` for a configuration; ``data`` overrides its data.

    While features are stored, ``progress`` gets the number of finished images and of all images.
    """
    checkpoint_every = (
        None if checkpoint_every is None else whole(checkpoint_every, "checkpoint_every")
    )
    threads = None if threads is None else whole(threads, "threads")
    workers = None if workers is None else whole(workers, "workers", 0)
    devices = whole(devices, "devices")
    if threads is not None and threads > _MOST_THREADS:  # torch would silently end the process
        raise UserError(f"threads is {threads}; torch can use {_MOST_THREADS} at most.")
    if out is None and (tensorboard or checkpoint_every or config.record or config.insights):
        raise UserError(
            "Checkpoints, event files, records and insights need a folder; choose one with out."
        )
    folder = None if out is None else RunFolder(given_path(out, "out"), config)
    if folder is not None:
        folder.check(resume=resume)  # before the data are loaded
    fabric = make_fabric(devices, accelerator, config.precision)
    started = perf_counter()
    problem = make_problem(config, data, fabric.device, workers, progress)
    with ExitStack() as stack:
        if folder is not None:
            ended = problem, fabric.world_size
            done = folder.finished(*ended) if resume else None  # a result never changes
            if done is None and first_process():  # the only one that writes
                stack.enter_context(folder.alone())
                folder.check(resume=resume)
                done = folder.finished(*ended) if resume else None
            if done is not None:
                return done
            if tensorboard:
                watch = together(watch, EventFiles(folder.path / "tensorboard"))
        prepared = perf_counter() - started
        run = Run(config, problem, folder, checkpoint_every, threads, watch, resume, prepared)
        return RunResult.from_dict(json.loads(launch(fabric, run)))
