"""One run of the protocol, from a dataset to its test metrics."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from d2ace._util.callbacks import Watch
from d2ace.data import MultiLabelData

from .config import RunConfig
from .fabric import first_process
from .result import RunResult
from .single import train_config
from .split import no_data
from .tuning import tuned

if TYPE_CHECKING:
    from d2ace.data.images import ImageData

__all__ = ["train", "train_config"]


def train(
    data: str | os.PathLike[str] | MultiLabelData | ImageData,
    model: str = "clif",
    selector: str = "d2ace",
    *,
    out: str | Path | None = None,
    resume: bool = True,
    checkpoint_every: int | None = None,
    devices: int = 1,
    accelerator: str = "auto",
    threads: int | None = None,
    workers: int | None = None,
    tensorboard: bool = False,
    tune: bool = False,
    watch: Watch | None = None,
    **settings: Any,
) -> RunResult:
    """Train ``model`` on ``data`` with batches drawn by ``selector``, by the paper's protocol.

    Parameters
    ----------
    data : name, path, MultiLabelData or ImageData
        For images a layout ("voc2007", "coco", "corel5k-images", "csv", "yolo"), with ``root``.
    model, selector : str
        Keys of ``MODELS`` and ``SELECTORS``, or your own class as ``package.module:Class`` or
        ``path/to/file.py:Class``.
    out : folder, optional
        Folder for checkpoints, the best weights and the result. With ``resume``, an interrupted run
        resumes from there, and a finished run is returned unchanged.
    checkpoint_every : int, optional
        Also save after this many steps, not only after every epoch.
    devices, accelerator
        Number of processes on this machine, and their device ("auto", "cpu", "cuda", "mps").
    threads : int, optional
        CPU threads of torch for this run.
    workers : int, optional
        Processes that read images; by default one per processor, up to eight.
    insights : bool
        A setting: find probably wrong labels while training; see ``load_run(out).insights``.
    labels_from : path, optional
        A setting: CSV file with corrected labels of training rows, as
        ``insights.label_issues().to_csv`` writes it. Test rows are never corrected.
    tensorboard : bool
        Write event files to ``out/tensorboard``.
    tune : bool
        Try the paper's grid of hyperparameters and keep the run with the best validation score.
    watch : function of a dict, optional
        Called with the history entry of every finished epoch.
    settings
        Everything else that defines a run (:class:`RunConfig`): ``fold``, ``folds``, ``seed``,
        ``epochs``, ``batch_size``, ``warmup``, ``learning_rate``, ``weight_decay``,
        ``validation``, ``monitor``, ``insights``, ``labels_from``, ``model_options``,
        ``selector_options``; for images also
        ``root``, ``image_size``, ``cache_features``, ``unlabelled``, ``on_broken``.

    Examples
    --------
    >>> result = d2ace.train("digits", "mlp", "d2ace", epochs=30)  # doctest: +SKIP
    """
    name, given = _named(data)
    config = RunConfig.from_dict({"data": name, "model": model, "selector": selector, **settings})
    if config.only_warm_up and first_process():
        warnings.warn(config.only_warm_up, stacklevel=2)
    running: dict[str, Any] = {
        "resume": resume,
        "checkpoint_every": checkpoint_every,
        "devices": devices,
        "accelerator": accelerator,
        "threads": threads,
        "workers": workers,
        "tensorboard": tensorboard,
        "watch": watch,
    }
    if tune:
        return tuned(config, given, out, running)
    return train_config(config, given, out=out, **running)


def _named(data: Any) -> tuple[str, MultiLabelData | ImageData | None]:
    """The name of the data, and the data themselves if you passed them."""
    if isinstance(data, str | os.PathLike):
        return os.fspath(data), None
    if isinstance(data, MultiLabelData):
        return data.name, data
    from d2ace.data.images import ImageData

    if not isinstance(data, ImageData):
        raise no_data(data)
    return data.name, data
