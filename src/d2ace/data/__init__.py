"""Multi-label data: load it, prepare it, split it, describe it, make it.

Examples
--------
>>> import d2ace.data
>>> data = d2ace.data.make_multilabel(200, 20, 5, seed=1)
>>> prepared = d2ace.data.prepare(data)
>>> for train, test in d2ace.data.folds(prepared.data.Y, n_splits=5, seed=0):
...     scaled = prepared.scaled(train)
"""

from d2ace.data.readers.npz import save

from .annotated import AnnotatedData
from .container import DataError, DataWarning, MultiLabelData, UnknownDataError
from .description import describe
from .digits import load_digits
from .fetch import fetch
from .foldfiles import StoredFolds, labels_digest, protocol_folds, read_folds, write_folds
from .load import load, load_features
from .prepare import PreparationReport, Prepared, prepare
from .scaling import Scaler
from .stratify import balance_error, fold_numbers, folds, validation_split
from .synthetic import make_multilabel

# isort: split
# For the packages that stand above this one:
from . import catalogue as catalogue
from .cache import cache_dir as cache_dir
from .cache import digest as digest
from .digits import DIGIT_ROWS as DIGIT_ROWS
from .digits import DIGIT_SIDE as DIGIT_SIDE
from .load import numbered as numbered
from .missing import Missing as Missing
from .missing import filled as filled
from .prepare import PROTOCOLS as PROTOCOLS
from .readers.label_names import label_file as label_file

__all__ = [
    "AnnotatedData",
    "DataError",
    "DataWarning",
    "MultiLabelData",
    "PreparationReport",
    "Prepared",
    "Scaler",
    "StoredFolds",
    "UnknownDataError",
    "balance_error",
    "describe",
    "fetch",
    "fold_numbers",
    "folds",
    "labels_digest",
    "load",
    "load_digits",
    "load_features",
    "make_multilabel",
    "prepare",
    "protocol_folds",
    "read_folds",
    "save",
    "validation_split",
    "write_folds",
]
