"""The batch selection methods and the stages they share."""

from typing import TYPE_CHECKING

from d2ace.selectors._engine.flat import FlatSampler as FlatSampler
from d2ace.selectors._engine.inputs import feature_matrix as feature_matrix
from d2ace.selectors._engine.loss import weighted_loss as weighted_loss
from d2ace.selectors._engine.multiprocess import BatchPart as BatchPart
from d2ace.selectors._engine.multiprocess import SharedSelector as SharedSelector
from d2ace.selectors._engine.options import CommonOptions as CommonOptions
from d2ace.selectors._engine.options import options_of as options_of
from d2ace.selectors._engine.reminders import warm_up_sentence as warm_up_sentence

from .base import Selector as Selector
from .distributed import DistributedSelector as DistributedSelector
from .finding import SELECTOR_FAMILY as SELECTOR_FAMILY
from .finding import find_selector as find_selector
from .finding import make_selector as make_selector
from .history import Memory as Memory
from .indexed import IndexedDataset as IndexedDataset
from .neighbors import nearest as nearest
from .registry import *  # noqa: F403 - every method; type checkers know what is in it
from .registry import SELECTORS as SELECTORS

if not TYPE_CHECKING:  # type checkers read the imports
    __all__ = [
        "SELECTOR_FAMILY",
        "SELECTORS",
        "BatchPart",
        "CommonOptions",
        "DistributedSelector",
        "FlatSampler",
        "IndexedDataset",
        "Memory",
        "Selector",
        "SharedSelector",
        "feature_matrix",
        "find_selector",
        "make_selector",
        "nearest",
        "options_of",
        "warm_up_sentence",
        "weighted_loss",
        *(method.__name__ for method in SELECTORS.values()),
    ]
