"""Multi-label data: load it, prepare it, split it, describe it, make it.

Examples
--------
>>> import d2ace.data
>>> data = d2ace.data.make_multilabel(200, 20, 5, seed=1)
>>> prepared = d2ace.data.prepare(data)
>>> for train, test in d2ace.data.folds(prepared.data.Y, n_splits=5, seed=0):
...     scaled = prepared.scaled(train)
"""

from d2ace.data.readers.label_names import label_file
from d2ace.data.readers.npz import save

from . import catalogue
from .annotated import AnnotatedData
from .cache import cache_dir, digest
from .container import DataError, DataWarning, MultiLabelData, UnknownDataError
from .description import describe
from .digits import DIGIT_ROWS, DIGIT_SIDE, load_digits
from .fetch import fetch
from .foldfiles import StoredFolds, labels_digest, protocol_folds, read_folds, write_folds
from .load import load, load_features, numbered
from .missing import Missing, filled
from .prepare import PROTOCOLS, PreparationReport, Prepared, prepare
from .scaling import Scaler
from .stratify import balance_error, fold_numbers, folds, validation_split
from .synthetic import make_multilabel

__all__ = [
    "DIGIT_ROWS",
    "DIGIT_SIDE",
    "PROTOCOLS",
    "AnnotatedData",
    "DataError",
    "DataWarning",
    "Missing",
    "MultiLabelData",
    "PreparationReport",
    "Prepared",
    "Scaler",
    "StoredFolds",
    "UnknownDataError",
    "balance_error",
    "cache_dir",
    "catalogue",
    "describe",
    "digest",
    "fetch",
    "filled",
    "fold_numbers",
    "folds",
    "label_file",
    "labels_digest",
    "load",
    "load_digits",
    "load_features",
    "make_multilabel",
    "numbered",
    "prepare",
    "protocol_folds",
    "read_folds",
    "save",
    "validation_split",
    "write_folds",
]
