"""One run of the paper's protocol: trained, validated, saved at every step of the way, tested."""

from .api import train, train_config
from .config import RunConfig
from .interruption import RunInterrupted
from .predicting import SavedRun, load_run
from .result import RunResult

__all__ = [
    "RunConfig",
    "RunInterrupted",
    "RunResult",
    "SavedRun",
    "load_run",
    "train",
    "train_config",
]
