"""One run of the paper's protocol: trained, validated, saved at every step of the way, tested."""

from .api import train
from .config import RunConfig
from .interruption import RunInterrupted
from .loading import load_run
from .predicting import SavedRun
from .result import RunResult
from .single import train_config

__all__ = [
    "RunConfig",
    "RunInterrupted",
    "RunResult",
    "SavedRun",
    "load_run",
    "train",
    "train_config",
]
