"""What a run is: its complete configuration, its key, and the names tables show for it."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from d2ace._util.errors import UserError
from d2ace._util.hints import did_you_mean
from d2ace._util.own_class import shown_name
from d2ace.data import catalogue
from d2ace.data.images import PLACES
from d2ace.models import MODELS
from d2ace.selectors import SELECTORS, Selector
from d2ace.training import RunConfig, protocol_of

DEFAULTS: dict[str, Any] = {
    **{key: value for key, value in RunConfig(data="").to_dict().items() if key != "data"},
    "data_source": None,
    "model_files": None,
}
"""Every key of a configuration but ``data``, with the value it has for a table.

``data_source`` is the checksum of a data file (`checks.data_checksum`), and ``model_files`` that of
files which options of the model name (`checks.files_checksum`). A grid keeps them for itself:
training compares what it reads with what it began with.
"""

FILES = ("weights", "label_vectors")
"""Options of models that may name a file."""

FIRST = (
    *("data", "model", "model_options", "selector", "selector_options", "selector_source"),
    *("fold", "folds", "seed", "epochs", "batch_size", "warmup", "learning_rate", "weight_decay"),
    *("validation", "monitor", "min_positives", "repair", "protocol"),
    *("epoch_loss", "record", "precision"),
)
"""The settings of a run when the first runs were stored; they are in every key."""

LARGEST = 2**63 - 1
"""The largest whole number that a store can keep."""

METHODS = {name: method.title for name, method in SELECTORS.items()}
"""Selector -> its name in tables."""


@dataclass(frozen=True)
class RunSpec:
    """One run to be made, and where it will be shown.

    Parameters
    ----------
    study : str
        "main", "ablation", "sweep", or your own word.
    method : str
        The label in tables: "D2ACE", "D2ACE (reference)", "A", "K=6".
    config : dict
        Keys of ``d2ace.train``; whatever is missing is filled in.
    own_values : dict, optional
        The default values of your own selector's ``selector_options`` (`checks.own_values`). They
        are stored, so that a report need not run the code.
    """

    study: str
    method: str
    config: dict[str, Any]
    own_values: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", complete(self.config))

    @cached_property
    def key(self) -> str:
        """The run's name in a store: equal for equal work, whatever it is called."""
        return key_of(self.config)

    @property
    def dataset(self) -> str:
        """Dataset as shown."""
        return dataset_name(self.config)

    @property
    def model(self) -> str:
        """Model as shown."""
        return model_name(self.config)

    @property
    def title(self) -> str:
        """The run in a line, for progress and messages."""
        where = f"fold {self.config['fold']}, seed {self.config['seed']}"
        return f"{self.dataset} / {self.model} / {self.method} / {where}"


def complete(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with every key, of JSON's plain types, and datasets by their own name."""
    known = ["data", *DEFAULTS]
    for key in config:
        if key not in known:
            raise UserError(
                f"a run has no setting {key!r}{did_you_mean(str(key), known)}; "
                f"it has {', '.join(known)}"
            )
    if not isinstance(config.get("data"), str):
        raise UserError(f"a run needs the name or path of its data, got {config.get('data')!r}")
    given = {key: _plain(key, value) for key, value in config.items()}
    usual = json.loads(canonical(protocol_of(given.get("model", DEFAULTS["model"]))))
    filled = {"data": "", "data_source": None, "model_files": None, **usual, **given}
    entry = catalogue.find(filled["data"])
    filled["data"] = filled["data"] if entry is None else entry.name
    return filled


def _plain(key: str, value: Any) -> Any:
    """A setting in JSON's plain types."""
    try:
        json.dumps(value, ensure_ascii=False).encode()  # as a store keeps names
        return json.loads(canonical(value))
    except UnicodeEncodeError:
        raise UserError(
            f"the setting {key} is {value!r}, which is not UTF-8; rename the file, or its folder"
        ) from None
    except (TypeError, ValueError):
        raise UserError(
            f"the setting {key} is {value!r}; write a plain value (a finite number, true or false, "
            "a word, or a list or table of these)"
        ) from None


def canonical(value: Any) -> str:
    """JSON in which equal values are equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def key_of(config: Mapping[str, Any]) -> str:
    """sha256 of a complete configuration, apart from what cannot change the result."""
    return hashlib.sha256(canonical(work_of(config)).encode()).hexdigest()


def work_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """What of a complete configuration can change the result, each thing said in one way.

    Options that say what is the case anyway do not count (``neighbors=6`` is D2ACE as it is), nor
    does a folder above the file of a selector, a model, its weights or data, whose content counts.
    A setting that runs did not always have counts where it is not as it was before there was a
    choice, so that keys last.
    """
    work = {
        key: value
        for key, value in config.items()
        if key in FIRST or canonical(_numbers(value)) != canonical(_numbers(DEFAULTS.get(key)))
    }
    work["selector_options"] = _effective(config)
    work["model_options"] = _without_default_preset(config["model_options"])
    if config.get("model_files"):
        work["model_options"] = _without_folders(work["model_options"])
    if config["data"] in PLACES or config.get("data_source"):
        work.pop("root", None)  # what is known by name or content is the same wherever it lies
    for kind in ("selector", "model"):
        if config.get(f"{kind}_source"):
            path, _, name = config[kind].rpartition(":")
            work[kind] = f"{Path(path).name}:{name}"
    if config.get("data_source"):
        work["data"] = Path(config["data"]).name
    if config.get("labels_source"):
        work.pop("labels_from", None)  # whose content counts
    return _numbers(work)


def training_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as `d2ace.train` takes it."""
    return {
        key: value for key, value in config.items() if key not in ("data_source", "model_files")
    }


def dataset_name(config: Mapping[str, Any]) -> str:
    """The dataset in tables: its name, or its file's; what was done to it in brackets."""
    data = data_place(config)
    name = Path(data).stem if "/" in data or "\\" in data else data
    notes = ["repaired"] * bool(config["repair"])
    if config["protocol"] != DEFAULTS["protocol"]:
        notes.append(str(config["protocol"]))
    return f"{name} ({', '.join(notes)})" if notes else name


def data_place(config: Mapping[str, Any]) -> str:
    """A dataset's name or file; for a layout of images, which says nothing, their folder."""
    root = config.get("root")
    return str(root if root and config["data"] not in PLACES else config["data"])


def model_name(config: Mapping[str, Any]) -> str:
    """The model in tables: "CLIF", "CLIF (reference)", "MLP (h=64)", "HST (frozen resnet50)"."""
    model, options = str(config["model"]), dict(config["model_options"])
    words = []
    if model in MODELS and MODELS[model].input == "image":
        frozen = "frozen " * (options.pop("freeze", None) == "backbone")
        words = [f"{frozen}{options.pop('backbone', 'resnet101')}"]
        if options.get("weights") == "pretrained":
            del options["weights"]
    name = MODELS[model].title if model in MODELS else shown_name(model)
    return _with_options(name, options, words)


def method_name(config: Mapping[str, Any]) -> str:
    """The label a method has unless it is given one."""
    selector = str(config["selector"])
    name = METHODS.get(selector, shown_name(selector))
    return _with_options(name, config["selector_options"])


def _with_options(name: str, options: Mapping[str, Any], first: Sequence[str] = ()) -> str:
    shown = _without_default_preset(options)
    words = [*first, shown.pop("preset")] if "preset" in shown else [*first]
    words += [f"{key}={canonical(value)}" for key, value in shown.items()]
    return f"{name} ({', '.join(words)})" if words else name


def _without_default_preset(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if (key, value) != ("preset", "paper")}


def _without_folders(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: Path(value).name if key in FILES and isinstance(value, str) else value
        for key, value in options.items()
    }


def _effective(config: Mapping[str, Any]) -> dict[str, Any]:
    """Selector options without those that repeat a default.

    Under another preset nothing is left out: an explicit value wins over what the preset says.
    """
    options = _without_default_preset(config["selector_options"])
    if "preset" in options or config["selector"] not in SELECTORS:
        return options
    usual = _option_defaults(SELECTORS[config["selector"]])
    return {
        key: value
        for key, value in options.items()
        if key not in usual or canonical(_numbers(value)) != canonical(_numbers(usual[key]))
    }


def _option_defaults(method: type[Selector]) -> dict[str, Any]:
    parameters = inspect.signature(method.__init__).parameters.values()
    plain = (bool, int, float, str, tuple)
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY and isinstance(parameter.default, plain)
    }


def _numbers(value: Any) -> Any:
    """1.0 as 1: the same number must not make two runs."""
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
