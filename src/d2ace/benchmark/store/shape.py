"""What a stored run must look like, so that tables can be made of it.

Each check raises a ValueError whose text continues "the run ...". Checksums find what a disk has
changed; these find what somebody else, or another version, has written.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from d2ace.benchmark.plan.specs import FIRST, LARGEST
from d2ace.evaluation import METRICS
from d2ace.training import LABEL_COUNTS, LABEL_SCORES

Arrays = dict[str, np.ndarray[Any, Any]]


def parse(text: Any) -> dict[str, Any]:
    """The table that JSON text holds; what is not a number to JSON is not one here."""
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"holds what is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"holds {_shortened(found)} where a table is wanted")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


# Configurations -----------------------------------------------------------------------------


def _metric(value: Any) -> bool:
    return isinstance(value, str) and value in METRICS


def _word(value: Any) -> bool:
    return isinstance(value, str)


def _word_or_nothing(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _table(value: Any) -> bool:
    return isinstance(value, dict)


def _whole(value: Any) -> bool:
    return type(value) is int and abs(value) <= LARGEST


_SETTINGS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("data", "model", "selector", "protocol"), _word),
    "monitor": _metric,
    **dict.fromkeys(("model_options", "selector_options"), _table),
    **dict.fromkeys(("fold", "folds", "seed", "epochs"), _whole),
    **dict.fromkeys(("selector_source", "model_source", "data_source"), _word_or_nothing),
    **dict.fromkeys(("model_files", "root"), _word_or_nothing),
}
"""Settings that names and tables are made of -> whether a value is of its kind."""


def check_config(config: dict[str, Any]) -> None:
    """Refuse a configuration of which no table can be made."""
    for name in FIRST:
        if name not in config:
            raise ValueError(f"lacks the setting {name}")
    for name, fits in _SETTINGS.items():
        if not fits(config.get(name)):
            raise ValueError(f"has {_shortened(config.get(name))} for the setting {name}")


# Results ------------------------------------------------------------------------------------

_NUMBERS = ("validation", "test", "undefined", "seconds")
"""Parts of a result that are tables of numbers."""


def check_result(result: Any) -> None:
    """Refuse a result of which no table can be made."""
    if not isinstance(result, dict):
        raise ValueError("is finished and has no result")
    for name in _NUMBERS:
        _check_numbers(result.get(name), f"{name} of its result")
    sizes = result.get("dataset")
    if not isinstance(sizes, dict) or not all(
        _number(sizes.get(name)) and sizes[name] > 0 for name in ("train", "test")
    ):
        raise ValueError("lacks the numbers of its training and test rows")
    _check_numbers({k: v for k, v in sizes.items() if not _word(v)}, "dataset of its result")
    environment = result.get("environment", {})
    if not _table(environment) or not all(map(_plain, environment.values())):
        raise ValueError(f"has {_shortened(environment)} for its environment")
    for name in ("best_epoch", "cpu_seconds"):
        if not _number_or_nothing(result.get(name)):
            raise ValueError(f"has {_shortened(result[name])} for {name} of its result")
    history = result.get("history")
    if not isinstance(history, list):
        raise ValueError(f"has {_shortened(history)} for its history")
    for place, entry in enumerate(history, start=1):
        where = f"epoch {place} of its history"
        if not isinstance(entry, dict) or not _whole(entry.get("epoch")):
            raise ValueError(f"has {_shortened(entry)} for {where}")
        for name in ("validation", "seconds"):
            _check_numbers(entry.get(name) or {}, f"{name} in {where}")
        for name in ("train_loss", "epoch_loss", "effective_rows", "distinct_rows"):
            if not _number_or_nothing(entry.get(name)):
                raise ValueError(f"has {_shortened(entry[name])} for {name} in {where}")
    if result.get("per_label") is not None:  # older runs have none
        _check_columns(result["per_label"])


def _check_columns(table: Any) -> None:
    """Refuse scores of labels that are not a table in columns."""
    kinds: dict[str, Callable[[Any], bool]] = {
        "label": _word,
        **dict.fromkeys(LABEL_COUNTS, _whole),
        **dict.fromkeys(LABEL_SCORES, _number_or_nothing),
    }
    if not _table(table) or set(table) != set(kinds):
        raise ValueError(f"has {_shortened(table)} for the scores of its labels")
    for name, fits in kinds.items():
        column = table[name]
        if not isinstance(column, list) or len(column) != len(table["label"]):
            raise ValueError(f"has {_shortened(column)} for {name} of its labels")
        for value in column:
            if not fits(value):
                raise ValueError(f"has {_shortened(value)} for {name} of a label")


def _plain(value: Any) -> bool:
    return not isinstance(value, (dict, list))


def _check_numbers(table: Any, where: str) -> None:
    if not isinstance(table, dict):
        raise ValueError(f"has {_shortened(table)} for {where}")
    for name, value in table.items():
        if not _number_or_nothing(value):
            raise ValueError(f"has {_shortened(value)} for {name} in {where}")


def _number(value: Any) -> bool:
    return type(value) in (int, float)  # what JSON knows; true is not one


def _number_or_nothing(value: Any) -> bool:
    return value is None or type(value) in (int, float)


# Recordings ---------------------------------------------------------------------------------


def unpacked(recording: Any) -> Arrays:
    """The arrays of a ``record.npz``; nothing is unpickled, and every byte is checked."""
    try:
        with np.load(io.BytesIO(recording), allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, EOFError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"has a recording that cannot be read ({error})") from None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, MemoryError) as error:
        raise ValueError(f"has a recording that cannot be read ({error})") from None


_AXES = {
    "rows": "n",
    "draw_counts": "n",
    "outlier": "n",
    "label_names": "q",
    "label_auc": "tq",
    "epochs": "m",
    "P": "mn",
    "loss": "mn",
}
"""Array of a recording -> its axes: rows, labels, epochs trained, epochs recorded."""


def check_recording(arrays: Arrays) -> None:
    """Refuse a recording whose arrays are not those of one run."""
    sizes: dict[str, int] = {}
    weights = {name: "tq" for name in arrays if name.startswith("label_weight_")}
    for name, axes in {**_AXES, **weights}.items():
        if name not in arrays:
            raise ValueError(f"has a recording without {name}")
        array = arrays[name]
        found = dict(zip(axes, array.shape, strict=False))
        kinds = "US" if name == "label_names" else "iufb"
        if (
            len(axes) != array.ndim
            or array.dtype.kind not in kinds
            or {**found, **sizes}
            != {
                **sizes,
                **found,
            }
        ):
            raise ValueError(f"has a recording in which {name} does not fit the others")
        sizes |= found
    if min(sizes["n"], sizes["q"], sizes["t"]) < 1:
        raise ValueError("has a recording of nothing")


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
