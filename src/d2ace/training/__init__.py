"""One run of the paper's protocol: train, validate, save checkpoints, test.

You call :func:`train` and :func:`load_run`. The other names are for packages built on this one:
benchmark, integrations, report and the command line.
"""

from .api import train
from .config import IMAGE_MODELS, IMAGE_PROTOCOL, RunConfig, protocol_of, reads_images
from .corrections import corrections_checksum
from .fabric import first_process, make_fabric
from .interruption import RunInterrupted
from .label_scores import LABEL_COUNTS, LABEL_SCORES
from .loading import load_run
from .loop import refuse_undefined_monitor
from .predicting import SavedRun
from .predictions import refuse_other_file, write_predictions
from .problem import Rows, Split
from .result import STILL_IMPROVING, RunResult, still_improving
from .single import train_config
from .split import make_problem
from .stack import StackedRun, may_stack, same_stack, train_stack
from .trainer import Trainer
from .tuning import MODEL_GRIDS, SELECTOR_GRIDS, tuned
from .verified import load_tensors, make_folder, save_tensors

__all__ = [
    "IMAGE_MODELS",
    "IMAGE_PROTOCOL",
    "LABEL_COUNTS",
    "LABEL_SCORES",
    "MODEL_GRIDS",
    "SELECTOR_GRIDS",
    "STILL_IMPROVING",
    "Rows",
    "RunConfig",
    "RunInterrupted",
    "RunResult",
    "SavedRun",
    "Split",
    "StackedRun",
    "Trainer",
    "corrections_checksum",
    "first_process",
    "load_run",
    "load_tensors",
    "make_fabric",
    "make_folder",
    "make_problem",
    "may_stack",
    "protocol_of",
    "reads_images",
    "refuse_other_file",
    "refuse_undefined_monitor",
    "same_stack",
    "save_tensors",
    "still_improving",
    "train",
    "train_config",
    "train_stack",
    "tuned",
    "write_predictions",
]
